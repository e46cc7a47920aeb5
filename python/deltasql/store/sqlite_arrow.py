"""Bulk reads of a SQLite file as Arrow, through the one copy of SQLite this process has.

A driver that brings its own copy cannot be used beside it: POSIX locks belong to the process, so
neither copy sees the other's, and each drops them for both. One then resets the log that the
other reads or writes, which damages the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql import _core

if TYPE_CHECKING:
    import sqlite3

# Rows that are Python objects at a time: so many fit a processor's cache.
_CHUNK = 2_000


def read_arrow(connection: sqlite3.Connection, text: str) -> pa.Table:
    """Run one read and return its rows; a column without any value is one of integers."""
    cursor = connection.execute(text)
    found = _core.ArrowRows([column[0] for column in cursor.description])
    while rows := cursor.fetchmany(_CHUNK):
        found.append(rows)
    return pa.RecordBatchReader.from_stream(found).read_all()
