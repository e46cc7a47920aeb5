"""When another program locks the SQLite file, statements wait for the timeout and then fail."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.conftest import add_file

import deltasql
from deltasql.exceptions import StoreBusyError
from deltasql.store.sqlite import connection as sqlite_connection
from deltasql.store.sqlite.dialect import SqliteSession
from deltasql.store.sqlite.queue import WriteQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql.uri import DeltaSqlUri

LONG_MS, SHORT_MS = 20_000, 50
BEGIN = {"write": "BEGIN IMMEDIATE", "all": "BEGIN EXCLUSIVE"}
INTENTS = [("t1", 1, "a", 0), ("t1", 1, "b", 0)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "meta.db"
    with closing(connected(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(
            "CREATE TABLE dl_staged_files (txn_id, table_id, path, staged_at_ms, UNIQUE (path))"
        )
    return path


def connected(path: Path, timeout_ms: int = 0) -> sqlite3.Connection:
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=timeout_ms / 1000
    )


@contextmanager
def session_on(path: Path, timeout_ms: int) -> Iterator[SqliteSession]:
    with closing(connected(path, timeout_ms)) as connection:
        yield SqliteSession(connection, WriteQueue(str(path), timeout_ms / 1000))


@contextmanager
def locked(path: Path, what: str) -> Iterator[sqlite3.Connection]:
    """Give another program the write lock, or an exclusive lock on the whole file."""
    with closing(connected(path)) as other:
        if what == "all":
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute(BEGIN[what])
        other.execute("DELETE FROM dl_staged_files")
        yield other


@contextmanager
def locked_briefly(path: Path, what: str) -> Iterator[None]:
    with locked(path, what) as other:
        giving_back = threading.Timer(0.3, other.close)
        giving_back.start()
        yield
        giving_back.join()


def read(session: SqliteSession) -> int:
    return len(session.query("has_ledger"))


def delete(session: SqliteSession) -> int:
    return session.execute("clear_staged_files", txn_id="t0")


def insert(session: SqliteSession) -> int:
    session.insert("insert_staged_file", INTENTS[:1])
    return 0


def insert_many(session: SqliteSession) -> int:
    session.insert("insert_staged_file", INTENTS)
    return 0


def begin(session: SqliteSession) -> int:
    try:
        session.begin()
    finally:
        session.rollback()
    return 0


STATEMENTS = [
    ("all", read),
    ("write", delete),
    ("write", insert),
    ("write", insert_many),
    ("write", begin),
]


@pytest.mark.parametrize(("what", "use"), STATEMENTS)
def test_statement_waits_for_the_lock_of_another_program(
    path: Path, what: str, use: Callable[[SqliteSession], int]
) -> None:
    with session_on(path, LONG_MS) as session, locked_briefly(path, what):
        assert use(session) == 0


@pytest.mark.parametrize(("what", "use"), STATEMENTS[:-1])
def test_statement_fails_with_sqlites_error_after_the_timeout(
    path: Path, what: str, use: Callable[[SqliteSession], int]
) -> None:
    with (
        session_on(path, SHORT_MS) as session,
        locked(path, what),
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        use(session)


def test_transaction_timeout_names_the_process_that_holds_the_lock(
    path: Path,
) -> None:
    with (
        session_on(path, SHORT_MS) as session,
        locked(path, "write"),
        pytest.raises(
            StoreBusyError, match=rf"within {SHORT_MS} ms: process {os.getpid()} holds it"
        ),
    ):
        begin(session)


def test_waits_for_the_queue_and_for_sqlites_lock_share_one_timeout(path: Path) -> None:
    # Two separate timeouts would take turn_s longer than one.
    timeout_ms, turn_s = 4_000, 3.6
    turn = WriteQueue(str(path), 10)
    turn.acquire()
    # Another thread may not release the locks, so it closes the files instead.
    freeing = threading.Timer(turn_s, turn._close_files)
    freeing.start()
    with session_on(path, timeout_ms) as session, locked(path, "write"):
        began = time.monotonic()
        with pytest.raises(StoreBusyError):
            begin(session)
        waited = time.monotonic() - began
        assert timeout_ms / 1000 <= waited < timeout_ms / 1000 + turn_s
        # Later statements keep the whole timeout.
        (busy_timeout,) = session._connection.execute("PRAGMA busy_timeout").fetchone()
        assert busy_timeout == timeout_ms
    freeing.join()


def test_commit_does_not_wait_for_the_timeout_twice(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with deltasql.connect(
        sqlite_uri,
        mirror={"mode": "off"},
        table={"data_root": str(tmp_path / "lake")},
        store={"busy_timeout_ms": 2_000},
    ) as catalog:
        catalog.create_table("t", pa.schema([("id", pa.int64())]))
        with locked(Path(sqlite_uri.database), "write"):
            began = time.monotonic()
            with pytest.raises(StoreBusyError, match="holds it"), catalog.begin() as tx:
                tx.stage_table("t", [add_file("a")])
            assert time.monotonic() - began < 2 * 2.0
        with catalog.begin() as tx:
            tx.stage_table("t", [add_file("a")])
        assert tx.versions == {"t": 1}


def test_insert_that_waited_for_a_lock_writes_each_row_once(path: Path) -> None:
    """Outside a transaction each row commits by itself: a retry could insert one twice."""
    with session_on(path, LONG_MS) as session, locked_briefly(path, "write"):
        insert_many(session)
        found = session._connection.execute("SELECT path FROM dl_staged_files ORDER BY path")
        assert found.fetchall() == [("a",), ("b",)]


def test_other_errors_are_not_retried(path: Path) -> None:
    with session_on(path, LONG_MS) as session, pytest.raises(sqlite3.OperationalError, match="dl_"):
        session.query("applied_migrations")


@pytest.mark.parametrize("timeout_ms", [0, SHORT_MS])
def test_opening_a_locked_catalog_raises_store_busy(
    sqlite_uri: DeltaSqlUri, timeout_ms: int
) -> None:
    deltasql.connect(sqlite_uri, create=True).close()
    with (
        locked(Path(sqlite_uri.database), "all"),
        pytest.raises(StoreBusyError, match=f"another program .* for {timeout_ms} ms"),
    ):
        deltasql.connect(sqlite_uri, store={"busy_timeout_ms": timeout_ms})


def test_bulk_read_through_the_sqlite3_module_waits_for_a_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connection, "_library", lambda: None)
    with closing(connected(path, LONG_MS)) as connection, locked_briefly(path, "all"):
        found = sqlite_connection.read_arrow(
            connection, path, "SELECT path FROM dl_staged_files", busy_timeout_ms=LONG_MS
        )
    assert found.num_rows == 0
