"""A lock on a file that a process has while it lives: it is gone with the process."""

from __future__ import annotations

import fcntl


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file; False when somebody else has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
