"""Bulk reads of SQLite return the same rows as the sqlite3 module and keep its locks."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltasql.store.sqlite import connection as sqlite_connection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import _core

ROWS = [
    (1, "ä", b"\x00\xff", 0.5, None, None),
    (-(2**63), "", b"", float("inf"), None, "late"),
    (2**63 - 1, "x" * 70_000, b"\x01" * 70_000, -0.0, None, None),
    (None, None, None, None, None, None),
]
READ = "SELECT a, b, c, d, e, f FROM t ORDER BY rowid"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "meta.db"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as opened:
        opened.execute("PRAGMA journal_mode = WAL")
        opened.execute("CREATE TABLE t (a INTEGER, b TEXT, c BLOB, d REAL, e TEXT, f TEXT) STRICT")
        opened.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", ROWS)
        yield opened


@pytest.fixture
def library() -> _core.SqliteLibrary:
    found = sqlite_connection._library()
    if found is None:
        pytest.skip("the sqlite3 module of this Python contains SQLite itself")
    return found


def by_the_module(connection: sqlite3.Connection, text: str) -> pa.Table:
    return sqlite_connection._table(sqlite_connection._rows(connection, text))


def test_bulk_read_returns_the_same_values_as_the_sqlite3_module(
    connection: sqlite3.Connection, path: Path, library: _core.SqliteLibrary
) -> None:
    found = sqlite_connection._table(library.read(str(path), READ, 1000))
    assert found.equals(by_the_module(connection, READ))
    assert [tuple(row.values()) for row in found.to_pylist()] == ROWS
    assert found.schema.types[4:] == [pa.int64(), pa.string()]


def test_bulk_read_without_rows_returns_an_empty_table(
    connection: sqlite3.Connection, path: Path, library: _core.SqliteLibrary
) -> None:
    text = "SELECT a, b FROM t WHERE a = 7"
    found = sqlite_connection._table(library.read(str(path), text, 1000))
    assert found.equals(by_the_module(connection, text))
    assert found.num_rows == 0


def test_bulk_read_keeps_the_row_order_over_many_chunks(
    connection: sqlite3.Connection, path: Path, library: _core.SqliteLibrary
) -> None:
    connection.execute("CREATE TABLE many (n INTEGER) STRICT")
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO many VALUES (?)", ((n,) for n in range(150_000)))
    connection.execute("COMMIT")
    found = sqlite_connection._table(library.read(str(path), "SELECT n FROM many ORDER BY n", 1000))
    assert found["n"].to_pylist() == list(range(150_000))


def test_bulk_read_error_is_raised_by_the_sqlite3_module(
    connection: sqlite3.Connection, path: Path
) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such column: nope"):
        sqlite_connection.read_arrow(connection, path, "SELECT nope FROM t", busy_timeout_ms=10)


def test_bulk_read_does_not_create_a_missing_file(
    tmp_path: Path, library: _core.SqliteLibrary
) -> None:
    missing = tmp_path / "missing.db"
    with pytest.raises(OSError, match="unable to open"):
        library.read(str(missing), "SELECT 1", 10)
    assert not missing.exists()


def test_replaced_sqlite3_module_disables_the_native_bulk_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Other(sqlite3.Connection):
        pass

    monkeypatch.setattr(sqlite3, "Connection", Other)
    assert sqlite_connection._library.__wrapped__() is None


TRIES_TO_WRITE = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    other.execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as error:
    print(error)
else:
    print("not locked")
"""


def test_bulk_read_keeps_the_lock_of_a_writer_in_the_same_process(
    connection: sqlite3.Connection, path: Path
) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO t (a) VALUES (5)")
    with closing(sqlite3.connect(path)) as reader:
        found = sqlite_connection.read_arrow(reader, path, READ, busy_timeout_ms=10)
    assert found.num_rows == len(ROWS)  # the uncommitted row is not visible
    other = subprocess.run(
        [sys.executable, "-c", TRIES_TO_WRITE, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == "database is locked"
    connection.execute("COMMIT")
