"""Waiting for a SQLite file outside the gate, which readers need only where somebody has all of it.

To tell SQLite how long to wait takes as long as a small statement, and who writes must tell it
twice. So connections do not wait, and a statement that found the file taken is run again by
one that does.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

IMPATIENT = "PRAGMA busy_timeout = 0"


def is_busy(error: sqlite3.Error) -> bool:
    """Tell whether another connection has what this one needs."""
    # Errors of the module itself have no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


@contextmanager
def patient(connection: sqlite3.Connection, timeout_ms: int) -> Iterator[None]:
    """Let the statements of a block wait for others."""
    connection.execute(f"PRAGMA busy_timeout = {timeout_ms}")
    try:
        yield
    finally:
        connection.execute(IMPATIENT)
