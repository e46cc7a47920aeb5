"""Memory that was freed, but that allocators keep for later."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable


def give_back_memory() -> None:
    """Let the system have what was freed: between steps that take much, each for a moment."""
    pa.default_memory_pool().release_unused()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Return the function of the C library that does it; only that of GNU has one."""
    if os.name != "posix":
        return None
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim
