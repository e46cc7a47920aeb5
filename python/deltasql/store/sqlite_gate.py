"""Waiting for SQLite's one write lock, so that nobody starves and nobody waits for nothing.

SQLite's own handler sleeps longer and longer: whoever just wrote writes again, and another
process may get no turn for seconds. Here who writes has the lock of a small file as well: to
look at that costs a twentieth of a look at SQLite's. Who wants to write waits to be the first in
line, which is the lock of another file. With the writer's lock he has a seat for a turn of some
milliseconds, in which he need not stand in line again. There are two seats: one process prepares
what it writes while the other writes, and both have their pages in memory. The first in line
lets them go on to the end of a turn if they do come again; all others sleep, as do other threads
of the same process.
Correctness does not depend on these files: who ignores them still meets SQLite's own lock.
"""

from __future__ import annotations

import fcntl
import os
import random
import sqlite3
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from deltasql.store import fork
from deltasql.store.file_lock import FileLock, open_to_lock, try_lock
from deltasql.store.sqlite_patience import is_busy
from deltasql.store.sqlite_seats import Seats

if TYPE_CHECKING:
    from collections.abc import Iterator

_TURN_S = 0.030
# Who has a turn stays awake for about as long as a commit takes: to be woken would take as long.
_AWAKE_S = 0.0005
# Then the line is too long, or who is ahead was stopped by a signal: go without.
_TOO_LONG_S = 0.5
# Between two looks at the lock, and at one that somebody has for long.
_BRISK_S, _PATIENT_S, _SLOW_S = 0.00005, 0.001, 0.005
# Between two looks at the line: whoever wakes up takes the processor from those who write, so
# the longest pause is until a turn ended and the first in line had the lock.
_LINE_S, _LONGEST_S, _AFTER_TURN_S = 0.0005, 0.004, 0.002
# Who has a seat and did not come again for so long, twice what a commit takes, is not waited for.
_UNUSED_S = 0.001
# Of the threads of a process none has pages to load, and one comes after the other sooner.
_THREAD_TURN_S, _THREADS_S, _LONGEST_THREAD_S = 0.010, 0.00025, 0.004
_give_way = getattr(os, "sched_yield", lambda: time.sleep(0))


class Gate:
    """The way to the write lock of one database."""

    def __init__(self, database: str, timeout_s: float) -> None:
        self._line_path, self._timeout_s = f"{database}-queue", timeout_s
        self._writer = FileLock(f"{database}-writer")
        self._writing_thread = 0
        self._seats = Seats(self._writer, _TURN_S)
        # It knows whose it is: who was interrupted while taking it can still tell, and leave.
        self._threads = threading.RLock()
        fork.watch(self)

    def before_fork(self) -> None:
        """Go on: what a transaction must not meet is the pool's to close."""

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self._threads = threading.RLock()  # another thread may have had it
            self._writer.forget()

    def enter(self, connection: sqlite3.Connection) -> None:
        """Begin a transaction that holds the write lock; SQLite's error when the time is up.

        Whatever came of it, `leave` is to be called when it is over: the other threads of this
        process wait for it, since two of them would only take the interpreter from each other.
        """
        start = time.monotonic()
        is_next = self._wait_for_threads(start)
        if not is_next:
            connection.execute("BEGIN IMMEDIATE")
            return
        self._writing_thread = threading.get_ident()
        if not self._begun_in_turn(connection):
            self._begin_from_line(connection, start)

    def leave(self) -> None:
        """Let the next one on, if it is this thread that the others wait for."""
        if self._writing_thread == threading.get_ident():
            self._writer.give_back()
            self._seats.leave()
        with suppress(RuntimeError):  # it waited too long, was forked, or leaves again
            self._threads.release()

    def close(self) -> None:
        """Close the file, unless a thread is writing: it would write to whatever has its number."""
        if self._threads.acquire(blocking=False):
            try:
                self._writer.forget()
            finally:
                self._threads.release()

    def _wait_for_threads(self, start: float) -> bool:
        """Wait for the other threads: they go on for a turn, then the lock is handed on.

        Who waited too long is only to look once, for SQLite's own error.
        """
        pauses = _pauses(_THREADS_S, _LONGEST_THREAD_S)
        while not self._threads.acquire(blocking=False):
            waited_s = time.monotonic() - start
            if waited_s > min(_THREAD_TURN_S, self._timeout_s):
                return self._threads.acquire(timeout=max(0, self._timeout_s - waited_s))
            time.sleep(next(pauses))
        return True

    def _begun_in_turn(self, connection: sqlite3.Connection) -> bool:
        self._seats.arrive()
        if self._seats.has_one():
            self._seats.come_again()
        since = time.monotonic()
        while self._seats.has_one():
            if self._writer.try_take() and _begun(connection):
                return True
            _wait_awake(time.monotonic() - since)
        # Somebody else may have SQLite's own lock for long: nobody is to wait for who waits.
        self._writer.give_back()
        return False

    def _begin_from_line(self, connection: sqlite3.Connection, start: float) -> None:
        line = open_to_lock(self._line_path)
        try:
            if line is not None:
                self._stand_in(line, start)
            self._begin_as_first(connection, start + self._timeout_s)
            self._seats.take()
        finally:
            if line is not None:
                try:
                    # A process forked meanwhile has it too: closing ours would not let others on.
                    fcntl.flock(line, fcntl.LOCK_UN)
                except OSError:
                    pass  # a file system without such locks
                finally:
                    os.close(line)

    def _stand_in(self, line: int, start: float) -> None:
        """Wait to be the first, unless the line does not move."""
        end = min(time.monotonic() + _TOO_LONG_S, start + self._timeout_s)
        # Who used his turn up does not pass by those who sleep, and sleeps until the line moves.
        is_patient = must_wait = self._seats.is_used_up() and self._seats.somebody_sleeps()
        pauses = _pauses(_LINE_S, _LONGEST_S)
        looks = 0
        try:
            while must_wait or not try_lock(line):
                if time.monotonic() > end:
                    return
                must_wait, looks = False, looks + 1
                pause_s = self._until_turn_ended(looks)
                self._seats.sleep(pause_s if is_patient else min(pause_s, next(pauses)))
        except OSError:
            return  # a file system without such locks

    def _until_turn_ended(self, looks: int) -> float:
        """Return how long it is until the line moves; who waits for long comes before others."""
        until_free_s = self._seats.until_free()
        after_s = _AFTER_TURN_S * (1 + 2 * random.uniform(0.8, 1.2) / looks)
        return until_free_s + after_s if until_free_s else _LONGEST_S

    def _begin_as_first(self, connection: sqlite3.Connection, end: float) -> None:
        """Look now and then while others have their turns, and often when one of these ended."""
        first_since = free_since = time.monotonic()
        while True:
            now = time.monotonic()
            # Who has the lock of the file for long may be writing, or was stopped before it.
            is_next = self._writer.try_take() or now > min(first_since + _TOO_LONG_S, end)
            if is_next and _begun(connection, is_last_try=now > end):
                return
            while (until_free_s := self._seats.until_free()) and self._seats.unused_s() < _UNUSED_S:
                waited_s = time.monotonic() - first_since
                time.sleep(min(max(_BRISK_S, waited_s), until_free_s, _PATIENT_S))
                free_since = time.monotonic()
            _wait_awake(time.monotonic() - free_since)


def _wait_awake(waited_s: float) -> None:
    """Wait for the one who is writing, asleep only when he takes longer than usual."""
    if waited_s < _AWAKE_S:
        _give_way()
    else:
        time.sleep(min(max(_BRISK_S, waited_s / 16), _SLOW_S))


def _begun(connection: sqlite3.Connection, *, is_last_try: bool = False) -> bool:
    try:
        # IMMEDIATE: upgrading a read lock later fails without waiting.
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if is_last_try or not is_busy(error):
            raise
        return False
    return True


def _pauses(first_s: float, last_s: float) -> Iterator[float]:
    """Yield how long the others sleep: about twice as long each time, and never all the same."""
    pause_s = first_s
    while True:
        yield pause_s * random.uniform(0.5, 1.5)
        pause_s = min(2 * pause_s, last_s)
