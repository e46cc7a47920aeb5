"""Bulk reads of a SQLite file as Arrow, through the one copy of SQLite this process has.

A driver that brings its own copy cannot be used beside it: POSIX locks belong to the process, so
neither copy sees the other's, and each drops them for both. One then resets the log that the
other reads or writes, which damages the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import sqlite3

# Rows that are Python objects at a time.
_CHUNK = 20_000


def read_arrow(connection: sqlite3.Connection, text: str) -> pa.Table:
    """Run one read and return its rows; a column without any value is one of integers."""
    cursor = connection.execute(text)
    names = [column[0] for column in cursor.description]
    chunks: list[list[pa.Array]] = [[] for _ in names]
    while rows := cursor.fetchmany(_CHUNK):
        for column, values in zip(chunks, zip(*rows, strict=True), strict=True):
            column.append(pa.array(values))
    return pa.table([_column(column) for column in chunks], names=names)


def _column(chunks: list[pa.Array]) -> pa.ChunkedArray:
    kinds = [chunk.type for chunk in chunks if chunk.type != pa.null()]
    kind = kinds[0] if kinds else pa.int64()
    return pa.chunked_array([chunk.cast(kind) for chunk in chunks], type=kind)
