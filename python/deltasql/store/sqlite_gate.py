"""Waiting for SQLite's one write lock, so that nobody starves and nobody waits in line for nothing.

SQLite's own handler sleeps longer and longer: whoever just wrote writes again, and another
process may get no turn for seconds. Here everybody passes a gate, tries, and tries again after
a short random sleep. Who has waited too long closes the gate behind himself: others who want to
write stay outside until he had his turn. Correctness does not depend on the gate, which is a lock
on an empty file: who ignores it still meets SQLite's own lock.
"""

from __future__ import annotations

import fcntl
import os
import random
import sqlite3
import time

_STARVING_S = 0.25
_SHORTEST_S, _LONGEST_S = 0.00025, 0.008


class Gate:
    """The way to the write lock of one file."""

    def __init__(self, path: str, timeout_s: float) -> None:
        self._path, self._timeout_s = path, timeout_s
        self._restore = f"PRAGMA busy_timeout = {int(timeout_s * 1000)}"

    def enter(self, connection: sqlite3.Connection) -> None:
        """Begin a transaction that holds the write lock; SQLite's error when the time is up."""
        start = time.monotonic()
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            self._wait(connection, start)
        finally:
            connection.execute(self._restore)

    def _wait(self, connection: sqlite3.Connection, start: float) -> None:
        descriptor = self._opened()
        starving, pause_s = False, _SHORTEST_S
        try:
            # Waits while a starving one has his turn.
            _flock(descriptor, fcntl.LOCK_SH)
            _flock(descriptor, fcntl.LOCK_UN)
            while not self._try(connection, start):
                if not starving and time.monotonic() - start > _STARVING_S:
                    starving, pause_s = True, _SHORTEST_S
                    _flock(descriptor, fcntl.LOCK_EX)
                time.sleep(pause_s * random.uniform(0.5, 1.5))
                # Who is patient lets the writer of the moment go on with its pages in memory.
                pause_s = min(2 * pause_s, _SHORTEST_S if starving else _LONGEST_S)
        finally:
            if descriptor is not None:
                if starving:
                    # A process forked meanwhile has it too: closing ours does not open the gate.
                    _flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)

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

    def _opened(self) -> int | None:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            # The file belongs to another user, or the folder is full: go without the gate.
            return None


def _flock(descriptor: int | None, operation: int) -> None:
    if descriptor is not None:
        fcntl.flock(descriptor, operation)
