"""The queue of writers to one SQLite file: fair among processes, with a timeout.

SQLite lets one connection write at a time. Its own wait, `busy_timeout`, sleeps up to 100 ms
between attempts, so the process that just wrote gets the lock again and the others starve. A writer
here takes two `flock`s before `BEGIN IMMEDIATE`. With the lock on `<database>-queue`, it is the
next writer. Then it takes the lock on `<database>-writer` and holds it until its transaction ends.
It releases the first lock as soon as it has the second. A process that commits again has to become
the next writer again, so it cannot overtake a waiting process.

`flock` has no timeout, so both locks are polled. The kernel releases them when a process dies. Only
fairness depends on these locks. SQLite's own lock still ensures that there is only one writer, even
if the lock files cannot be created or locked, or if a program does not use the queue.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from contextlib import suppress

from deltasql.exceptions import StoreBusyError
from deltasql.storage.platform import open_lock_file, try_lock, unlock
from deltasql.store.sqlite import fork

# The pauses between two attempts to lock. The next writer pauses for a shorter time, because the
# database is idle until it notices that the lock is free. A commit takes about 0.3 ms.
_WAITING_PAUSE_S, _NEXT_PAUSE_S = 0.001, 0.0001
# The next writer may be a suspended process. Other processes wait this long and then overtake it.
_OVERTAKE_AFTER_S = 0.5
_LONGEST_NAME = 300


class WriteQueue:
    """The writers' queue of one database, shared by the threads of a process."""

    def __init__(self, database: str, timeout_s: float) -> None:
        self._database, self.timeout_s = database, timeout_s
        self._next: int | None = None
        self._writer: int | None = None
        self._name = _process_name()
        # An RLock knows which thread holds it, so `release` works wherever Ctrl-C interrupted
        # `acquire`. There are two of them, as there are two files. With only one, a thread could
        # overtake waiting threads.
        self._next_thread, self._thread = threading.RLock(), threading.RLock()
        self._owner = 0
        fork.register(self)

    def acquire(self) -> float:
        """Wait for the write lock. `release` must be called afterwards, even if this fails.

        Returns the rest of the timeout in seconds, for the wait for SQLite's own lock.

        Raises:
            StoreBusyError: Another process or thread held the lock for the whole timeout.
        """
        deadline = time.monotonic() + self.timeout_s
        is_first = self._next_thread.acquire(timeout=self.timeout_s)
        if not is_first or not self._thread.acquire(timeout=max(0, deadline - time.monotonic())):
            raise self._busy()
        self._next_thread.release()
        self._owner = threading.get_ident()
        try:
            is_locked = self._lock_files(deadline)
        except OSError:
            is_locked = True  # a read-only folder, or a file system without `flock`
        if not is_locked:
            raise self._busy()
        return max(0.0, deadline - time.monotonic())

    def release(self) -> None:
        """Release the write lock; does nothing in a thread that does not hold it."""
        if self._owner == threading.get_ident():
            for descriptor in (self._next, self._writer):
                if descriptor is not None:
                    # Closing the file would not release the lock if a forked child has it open.
                    unlock(descriptor)
            self._owner = 0
        for lock in (self._next_thread, self._thread):
            with suppress(RuntimeError):  # this thread does not hold it
                lock.release()

    def close(self) -> None:
        """Close the lock files, unless a thread is using them."""
        if self._thread.acquire(blocking=False):
            try:
                self._close_files()
            finally:
                self._thread.release()

    def before_fork(self) -> None:
        """Do nothing: the pool waits until transactions end."""

    def after_fork(self, *, in_child: bool) -> None:
        """In a child, create new locks: the old ones and their threads belong to the parent."""
        if in_child:
            self._next_thread, self._thread = threading.RLock(), threading.RLock()
            self._owner = 0
            self._name = _process_name()
            self._close_files()

    def _lock_files(self, end: float) -> bool:
        if self._next is None:
            self._next = open_lock_file(f"{self._database}-queue")
        if self._writer is None:
            self._writer = open_lock_file(f"{self._database}-writer")
        until = min(end, time.monotonic() + _OVERTAKE_AFTER_S)
        _lock(self._next, until, _WAITING_PAUSE_S)
        is_locked = _lock(self._writer, end, _NEXT_PAUSE_S)
        unlock(self._next)
        if is_locked:
            _write_name(self._writer, self._name)
        return is_locked

    def locked_out(self) -> StoreBusyError:
        """Return the error for a writer that left the queue but did not get SQLite's own lock."""
        return self._busy(_write_lock_holder(self._database))

    def _busy(self, holder: str | None = None) -> StoreBusyError:
        return StoreBusyError(
            f"did not get the write lock of the SQLite database {self._database!r} within "
            f"{self.timeout_s * 1000:.0f} ms: {holder or self._holder()} holds it",
            help="Check whether that process is suspended or in a long transaction; then retry, "
            "or raise store.busy_timeout_ms.",
        )

    def _holder(self) -> str:
        """Return the process that last got the lock, as it wrote to the lock file."""
        try:
            with open(f"{self._database}-writer", "rb") as file:
                pid, _, host = file.read(_LONGEST_NAME).partition(b"\n")[0].partition(b" ")
        except OSError:
            return "another thread"
        if not pid.isdigit():
            return "another process"
        return f"process {int(pid)} on {host.decode(errors='replace')}"

    def _close_files(self) -> None:
        descriptors = (self._next, self._writer)
        self._next = self._writer = None
        for descriptor in descriptors:
            if descriptor is not None:
                os.close(descriptor)

    __del__ = _close_files


def _process_name() -> bytes:
    return f"{os.getpid()} {platform.node()}\n".encode()


def _write_name(descriptor: int, name: bytes) -> None:
    """Write the name of this process to a lock file, unless it is already there."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    if os.read(descriptor, len(name)) != name:
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, name)


def _write_lock_holder(database: str) -> str:
    """Return the process that holds SQLite's write lock, from Linux's list of file locks.

    The write lock is a POSIX lock on byte 120 of the `-shm` file. The file itself must not be
    opened here: closing it would release the locks of this process.
    """
    try:
        shm = os.stat(f"{database}-shm")
        with open("/proc/locks", encoding="ascii") as file:
            lines = file.read().splitlines()
    except OSError:
        return "another program"
    place = f"{os.major(shm.st_dev):02x}:{os.minor(shm.st_dev):02x}:{shm.st_ino}"
    for line in lines:
        _, _, *fields = line.replace("->", "").split()
        if len(fields) == 6 and fields[1] == "WRITE" and fields[3:5] == [place, "120"]:
            return f"process {fields[2]}"
    return "another program"


def _lock(descriptor: int, end: float, pause_s: float) -> bool:
    """Lock an open file; return False if another process still holds the lock at `end`."""
    while True:
        if try_lock(descriptor):
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(pause_s)
