"""Bulk reads of a SQLite file as Arrow, through the SQLite library that Python itself uses.

A driver with a copy of SQLite of its own must not open the same file: POSIX locks belong to the
process, so neither copy sees the locks of the other, and each releases them for both. Then one
copy can reset the write-ahead log while the other uses it, which damages the file. The Rust core
therefore calls the library that Python's `sqlite3` is linked to. Where that library exports no
functions, the rows are fetched through `sqlite3`.
"""

from __future__ import annotations

import sqlite3
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql import _core

if TYPE_CHECKING:
    from pathlib import Path

# Rows fetched as Python objects at a time: few enough for the processor's cache.
_CHUNK = 2_000


def read_arrow(
    connection: sqlite3.Connection, path: Path, text: str, *, busy_timeout_ms: int
) -> pa.Table:
    """Run one read and return its rows; a column without values has the type int64."""
    library = _library()
    if library is not None:
        try:
            return _table(library.read(str(path), text, busy_timeout_ms))
        except OSError:
            pass  # fall back to `sqlite3`, which also raises the driver's own errors
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
        return None  # another package with its own copy of SQLite replaced `sqlite3`
    module = getattr(_sqlite3, "__file__", None)  # None if it is built into the interpreter
    return None if module is None else _core.SqliteLibrary.behind(module)
