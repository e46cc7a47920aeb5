"""What differs between operating systems: file locks, forks and flags of open files.

deltasql is tested on Linux only. Elsewhere, a feature that is missing is replaced or left out.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:  # only on Windows
    msvcrt = None  # type: ignore[assignment]

READ_FLAGS: int = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags to open a file for reading: do not wait for a named pipe (Unix), read bytes (Windows)."""
# Windows locks bytes, and no other process can read them. No lock file is this long.
_LOCKED_BYTE = 1 << 30


def open_lock_file(path: str) -> int:
    """Open a file to lock it, and create it if it is missing; child processes do not inherit it."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def try_lock(descriptor: int) -> bool:
    """Lock an open file without waiting; return False if another process holds the lock.

    Raises:
        OSError: The file system or the operating system has no such locks.
    """
    is_held = BlockingIOError if fcntl is not None else PermissionError
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            _lock_byte(descriptor, "LK_NBLCK")
    except is_held:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Release the lock of an open file; do nothing if it has none."""
    with suppress(OSError):
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        else:
            _lock_byte(descriptor, "LK_UNLCK")


def register_at_fork(
    *,
    before: Callable[[], None] = lambda: None,
    after_in_parent: Callable[[], None] = lambda: None,
    after_in_child: Callable[[], None] = lambda: None,
) -> None:
    """Call functions when this process forks; do nothing where processes cannot fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
        )


def _lock_byte(descriptor: int, mode: str) -> None:
    if msvcrt is None:
        raise OSError(errno.ENOTSUP, "this operating system has no file locks")
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    msvcrt.locking(descriptor, getattr(msvcrt, mode), 1)  # type: ignore[attr-defined]
