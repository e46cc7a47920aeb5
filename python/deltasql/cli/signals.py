"""Commands that run until they are told to stop."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_STOP = (signal.SIGTERM, signal.SIGINT)
_END = b"\x00"  # the number of no signal


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and Ctrl-C set while the block runs; the second one ends it.

    A thread sets it. A handler runs in the middle of whatever the main thread does, and where that
    is waiting for the event, it holds the lock that setting it takes: it would wait for itself.
    """
    stop = threading.Event()
    told, tells = os.pipe()
    os.set_blocking(tells, False)
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if len(asked) > 1:  # what runs does not listen
            raise KeyboardInterrupt

    # The number of the signal is written there before any handler runs.
    descriptor = signal.set_wakeup_fd(tells, warn_on_full_buffer=False)
    handlers = [(number, signal.signal(number, ask)) for number in _STOP]
    thread = threading.Thread(target=_watch, args=(told, stop), daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        for number, handler in handlers:
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(descriptor)
        os.write(tells, _END)
        thread.join()
        os.close(told)
        os.close(tells)


def _watch(told: int, stop: threading.Event) -> None:
    while True:
        found = os.read(told, 16)
        if {*found} & {*_STOP}:
            stop.set()
        if _END in found:
            return
