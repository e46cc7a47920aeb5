"""Waiting for SQLite's one write lock, so that nobody starves and nobody waits for nothing.

SQLite's own handler sleeps longer and longer: whoever just wrote writes again, and another
process may get no turn for seconds. Here who wants to write waits to be the first in line, which
is a lock on an empty file. The first in line looks for SQLite's lock until he has it; with it he
has a turn of some milliseconds, in which he need not stand in line again, and looks often. So two
or three processes take turns at each commit, one prepares what it writes while another writes,
and both have their pages in memory; all others sleep, as do other threads of the same process.
Correctness does not depend on the line: who ignores it still meets SQLite's own lock.
"""

from __future__ import annotations

import fcntl
import os
import random
import sqlite3
import threading
import time
from typing import TYPE_CHECKING

from deltasql.store import fork
from deltasql.store.file_lock import try_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

_TURN_S = 0.010
# Who has a turn stays awake for about as long as a commit takes: to be woken would take as long.
_AWAKE_S = 0.0005
# The first in line lets those whose turn it is go on for so long, unless the lock is free.
_PATIENT_S = _TURN_S / 2
# Then the line is too long, or the first in it was stopped by a signal: go without it.
_IN_LINE_S = 0.25
# Between two looks: at the lock, at a lock that somebody has for long, and at the line.
_BRISK_S, _SLOW_S = 0.00005, 0.005
_NEXT_S, _LAST_S = 0.00025, 0.004
_give_way = getattr(os, "sched_yield", lambda: time.sleep(0))


class Gate:
    """The way to the write lock of one file."""

    def __init__(self, path: str, timeout_s: float) -> None:
        self._path, self._timeout_s = path, timeout_s
        self._restore = f"PRAGMA busy_timeout = {int(timeout_s * 1000)}"
        self._turn_ends = 0.0
        # It knows whose it is: who was interrupted while taking it can still tell, and leave.
        self._threads = threading.RLock()
        fork.watch(self)

    def before_fork(self) -> None:
        """Go on: what a transaction must not meet is the pool's to close."""

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self._threads = threading.RLock()  # another thread may have had it

    def enter(self, connection: sqlite3.Connection) -> None:
        """Begin a transaction that holds the write lock; SQLite's error when the time is up.

        Whatever came of it, `leave` is to be called when it is over: the other threads of this
        process wait for it, since two of them would only take the interpreter from each other.
        """
        start = time.monotonic()
        self._wait_for_threads(start)
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            if not self._begun_in_turn(connection, start):
                self._begin_from_line(connection, start)
        finally:
            connection.execute(self._restore)

    def leave(self) -> None:
        """Let the next thread on, if it is this one that the others wait for."""
        try:
            self._threads.release()
        except RuntimeError:
            return  # an interrupt came first, this thread waited too long, or it was forked

    def _wait_for_threads(self, start: float) -> None:
        """Wait for the other threads: they go on for a turn, then the lock is handed on.

        Who waited too long goes on without it, to look once, for SQLite's own error.
        """
        pauses = _pauses()
        while not self._threads.acquire(blocking=False):
            waited_s = time.monotonic() - start
            if waited_s > min(_TURN_S, self._timeout_s):
                self._threads.acquire(timeout=max(0, self._timeout_s - waited_s))
                return
            time.sleep(next(pauses))

    def _begun_in_turn(self, connection: sqlite3.Connection, start: float) -> bool:
        asleep_from = time.monotonic() + _AWAKE_S
        while time.monotonic() < self._turn_ends:
            if self._try(connection, start):
                return True
            if time.monotonic() < asleep_from:
                _give_way()
            else:
                time.sleep(_BRISK_S)
        return False

    def _begin_from_line(self, connection: sqlite3.Connection, start: float) -> None:
        line = self._open_line()
        try:
            if line is not None:
                self._stand_in(line, start)
            first_since = time.monotonic()
            while not self._try(connection, start):
                time.sleep(_until_next_look(time.monotonic() - first_since))
            self._turn_ends = time.monotonic() + _TURN_S
        finally:
            if line is not None:
                try:
                    # A process forked meanwhile has it too: closing ours would not let others on.
                    fcntl.flock(line, fcntl.LOCK_UN)
                except OSError:
                    pass  # a file system without such locks
                finally:
                    os.close(line)

    def _open_line(self) -> int | None:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            return None  # the file belongs to another user, or the folder is full

    def _stand_in(self, line: int, start: float) -> None:
        """Wait to be the first, unless the line does not move."""
        end = min(time.monotonic() + _IN_LINE_S, start + self._timeout_s)
        pauses = _pauses()
        try:
            while not try_lock(line) and time.monotonic() < end:
                time.sleep(next(pauses))
        except OSError:
            return  # a file system without such locks

    def _try(self, connection: sqlite3.Connection, start: float) -> bool:
        try:
            # IMMEDIATE: upgrading a read lock later fails without waiting.
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() - start > self._timeout_s:
                raise
            return False
        return True


def _pauses() -> Iterator[float]:
    """Yield how long the others sleep: about twice as long each time, and never all the same."""
    pause_s = _NEXT_S
    while True:
        yield pause_s * random.uniform(0.5, 1.5)
        pause_s = min(2 * pause_s, _LAST_S)


def _until_next_look(waited_s: float) -> float:
    """Return how long the first in line sleeps: longer and longer, and again from the start."""
    more_s = _PATIENT_S - waited_s
    if more_s > 0:
        return max(_BRISK_S, min(waited_s, more_s))
    return min(max(_BRISK_S, -more_s / 16), _SLOW_S)
