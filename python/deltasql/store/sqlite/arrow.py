"""Bulk reads of a SQLite file as Arrow, through the one copy of SQLite this process has.

A driver that brings its own copy cannot be used beside it: POSIX locks belong to the process, so
neither copy sees the other's, and each drops them for both. One then resets the log that the
other reads or writes, which damages the file. The Rust core therefore calls the library that
Python's module is linked to; where that shows no functions, rows come through the module.
"""

from __future__ import annotations

import sqlite3
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql import _core

if TYPE_CHECKING:
    from pathlib import Path

# Rows that are Python objects at a time: so many fit a processor's cache.
_CHUNK = 2_000


def read_arrow(
    connection: sqlite3.Connection, path: Path, text: str, *, busy_timeout_ms: int
) -> pa.Table:
    """Run one read and return its rows; a column without any value is one of integers."""
    library = _library()
    if library is not None:
        try:
            return _table(library.read(str(path), text, busy_timeout_ms))
        except OSError:
            pass  # the module reads it, or says in its own kinds of errors why it cannot
    return _table(_rows(connection, text))


def _rows(connection: sqlite3.Connection, text: str) -> _core.ArrowRows:
    cursor = connection.execute(text)
    found = _core.ArrowRows([column[0] for column in cursor.description])
    while rows := cursor.fetchmany(_CHUNK):
        found.append(rows)
    return found


def _table(found: _core.ArrowRows) -> pa.Table:
    return pa.RecordBatchReader.from_stream(found).read_all()


@cache
def _library() -> _core.SqliteLibrary | None:
    import _sqlite3

    if sqlite3.Connection is not _sqlite3.Connection:
        return None  # another package, with a copy of its own, is in the module's place
    module = getattr(_sqlite3, "__file__", None)  # None where it is part of the interpreter
    return None if module is None else _core.SqliteLibrary.behind(module)
