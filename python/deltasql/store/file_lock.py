"""A lock on a file that a process has while it lives: it is gone with the process."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file; False when somebody else has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def open_to_lock(path: str) -> int | None:
    """Open an empty file; None when it belongs to another user, or the folder is full."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return None


class FileLock:
    """The lock of a small file that stays open, and bytes in it for all who want the lock."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None

    def try_take(self) -> bool:
        """Take it, or still have it; True as well where no file can be locked."""
        descriptor = self._opened()
        try:
            return descriptor is None or try_lock(descriptor)
        except OSError:
            return True  # a file system without such locks

    def give_back(self) -> None:
        """Let others take it, if it was taken."""
        if self._descriptor is not None:
            with suppress(OSError):  # a file system without such locks
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def read(self, size: int) -> bytes:
        """Return the first bytes of the file, as many as there are."""
        descriptor = self._opened()
        return b"" if descriptor is None else os.pread(descriptor, size, 0)

    def write(self, data: bytes, at: int) -> None:
        """Write some bytes that need not last; a full disk keeps what was there."""
        descriptor = self._opened()
        if descriptor is not None:
            with suppress(OSError):
                os.pwrite(descriptor, data, at)

    def _opened(self) -> int | None:
        if self._descriptor is None:
            self._descriptor = open_to_lock(self._path)
        return self._descriptor

    def forget(self) -> None:
        """Close the file, when no thread is about to use it; in a fork its lock stays as it is."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    __del__ = forget
