"""The lock of a file: the kernel releases it when the process that has it dies."""

from __future__ import annotations

import fcntl


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file; False when somebody else has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
