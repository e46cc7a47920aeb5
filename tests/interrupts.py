"""Raise KeyboardInterrupt at a chosen instruction."""

from __future__ import annotations

import contextlib
import dis
import itertools
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

_LOOKS = {"RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD"}


@contextlib.contextmanager
def interrupted(at: int, *ways: type | FunctionType) -> Iterator[None]:
    """Interrupt at the n-th point of some functions or classes at which Python handles signals."""
    places = itertools.count()
    codes = {code for way in ways for code in _codes(way)}

    def local(frame: FrameType, event: str, _: object) -> Any:
        before = frame.f_lasti if event == "call" else last.get(frame, 0)
        last[frame] = frame.f_lasti
        looks = event == "call" or dis.opname[frame.f_code.co_code[before]] in _LOOKS
        if event in ("call", "opcode") and looks and next(places) == at:
            raise KeyboardInterrupt
        return local

    def start(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code not in codes:
            return None
        frame.f_trace_opcodes = True
        return local(frame, event, None)

    last: dict[FrameType, int] = {}
    sys.settrace(start)
    try:
        yield
    finally:
        sys.settrace(None)
        last.clear()


def _codes(way: type | FunctionType) -> Iterator[CodeType]:
    if isinstance(way, FunctionType):
        yield way.__code__
    else:
        yield from (e.__code__ for e in vars(way).values() if isinstance(e, FunctionType))
