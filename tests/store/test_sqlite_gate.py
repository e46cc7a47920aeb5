"""The line before SQLite's write lock: it gives turns, and nothing depends on it."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

import pytest
from tests.interrupts import interrupted

import deltasql
from deltasql.store.file_lock import FileLock, try_lock
from deltasql.store.sqlite import SqliteDialect, SqliteSession, _Borrowed
from deltasql.store.sqlite_gate import Gate
from deltasql.store.sqlite_seats import Seats

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

LONG_S = 60.0


def connected(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        folder / "meta.db", isolation_level=None, check_same_thread=False, timeout=0
    )


def enter(gate: Gate, connection: sqlite3.Connection) -> None:
    """Begin, and let other threads begin as well."""
    try:
        gate.enter(connection)
    finally:
        gate.leave()


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = connected(tmp_path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x)")
    yield connection
    connection.close()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(f"{tmp_path}/meta.db", LONG_S)


@pytest.mark.parametrize("place", ["queue", "writer"])
def test_who_was_stopped_in_line_or_before_he_began_holds_up_nobody(
    tmp_path: Path, connection: sqlite3.Connection, gate: Gate, place: str
) -> None:
    stopped = os.open(f"{tmp_path}/meta.db-{place}", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        enter(gate, connection)
        assert connection.in_transaction
    finally:
        os.close(stopped)


def test_line_that_cannot_be_is_no_obstacle(tmp_path: Path, connection: sqlite3.Connection) -> None:
    for file in ("folder-queue", "folder-writer"):
        (tmp_path / file).mkdir()
    for path in ("folder", "nowhere/meta.db"):
        enter(Gate(f"{tmp_path}/{path}", LONG_S), connection)
        connection.execute("ROLLBACK")


def test_who_has_a_turn_does_not_stand_in_line_again(
    tmp_path: Path, connection: sqlite3.Connection, gate: Gate
) -> None:
    gate._seats._turn_s = LONG_S
    enter(gate, connection)
    connection.execute("COMMIT")
    (tmp_path / "meta.db-queue").unlink()
    enter(gate, connection)
    assert not (tmp_path / "meta.db-queue").exists()


def test_turn_ends_and_the_line_is_left_when_the_lock_was_had(
    tmp_path: Path, connection: sqlite3.Connection, gate: Gate
) -> None:
    enter(gate, connection)
    assert gate._seats._own_end < time.monotonic() + 1
    line = os.open(f"{tmp_path}/meta.db-queue", os.O_RDWR)
    try:
        fcntl.flock(line, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(line)


@pytest.mark.parametrize("timeout_s", [0.0, 0.05])
def test_lock_that_is_not_given_back_is_sqlites_own_error(
    tmp_path: Path, connection: sqlite3.Connection, timeout_s: float
) -> None:
    other = connected(tmp_path)
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        enter(Gate(f"{tmp_path}/meta.db", timeout_s), other)
    connection.execute("ROLLBACK")
    # The line is free again.
    enter(Gate(f"{tmp_path}/meta.db", timeout_s), other)
    other.close()


def test_thread_whose_time_is_up_behind_another_gets_sqlites_own_error(
    tmp_path: Path, connection: sqlite3.Connection
) -> None:
    gate, other = Gate(f"{tmp_path}/meta.db", 0.05), connected(tmp_path)
    other.execute("BEGIN IMMEDIATE")
    with (
        ThreadPoolExecutor(1) as thread,
        gate._threads,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        thread.submit(enter, gate, connection).result()
    other.close()


def test_threads_wait_until_the_transaction_of_another_is_over(
    tmp_path: Path, connection: sqlite3.Connection, gate: Gate
) -> None:
    begun = threading.Event()
    gate.enter(connection)

    def write() -> None:
        own = connected(tmp_path)
        enter(gate, own)
        begun.set()
        own.close()

    waiting = threading.Thread(target=write)
    waiting.start()
    assert not begun.wait(0.1)
    connection.execute("COMMIT")
    gate.leave()
    waiting.join(LONG_S / 2)
    assert begun.is_set()


def test_forked_process_does_not_wait_for_a_thread_of_its_parent(
    tmp_path: Path, gate: Gate
) -> None:
    connected(tmp_path).close()
    with gate._threads:
        child = get_context("fork").Process(target=_enter, args=(tmp_path, gate))
        child.start()
        child.join(LONG_S / 2)
    assert child.exitcode == 0


def _enter(folder: Path, gate: Gate) -> None:
    connection = connected(folder)
    enter(gate, connection)
    assert connection.in_transaction
    connection.close()


def test_who_stands_in_line_again_has_not_the_lock_that_others_wait_for(
    tmp_path: Path, connection: sqlite3.Connection, gate: Gate
) -> None:
    """Another program has SQLite's lock for longer than a turn."""
    gate._seats._turn_s = 0.05
    gate._seats.take()
    other = connected(tmp_path)
    other.execute("BEGIN IMMEDIATE")
    assert not gate._begun_in_turn(connection)
    assert FileLock(f"{tmp_path}/meta.db-writer").try_take()
    other.close()


def test_closing_closes_the_file_unless_a_thread_is_writing(
    connection: sqlite3.Connection, gate: Gate
) -> None:
    gate.enter(connection)
    with ThreadPoolExecutor(1) as other:
        other.submit(gate.close).result()
    assert gate._writer._descriptor is not None
    gate.leave()
    connection.execute("COMMIT")
    gate.close()
    assert gate._writer._descriptor is None
    enter(gate, connection)  # and it is opened again


def test_forked_process_has_no_part_in_the_lock_of_its_parent(
    tmp_path: Path, connection: sqlite3.Connection, gate: Gate
) -> None:
    gate.enter(connection)
    child = get_context("fork").Process(target=_see_it_taken, args=(gate,))
    child.start()
    child.join(LONG_S / 2)
    assert child.exitcode == 0
    other = FileLock(f"{tmp_path}/meta.db-writer")
    assert not other.try_take()
    gate.leave()
    assert other.try_take()


def _see_it_taken(gate: Gate) -> None:
    assert not gate._writer.try_take()


def test_long_transactions_one_after_another_let_others_in_between(
    tmp_path: Path, connection: sqlite3.Connection, gate: Gate
) -> None:
    """They leave the lock for microseconds only: whoever looks now and then would not see it."""
    done, over = 0, threading.Event()

    def write_without_a_pause() -> None:
        nonlocal done
        writer, own = connected(tmp_path), Gate(f"{tmp_path}/meta.db", LONG_S)
        while not over.is_set():
            enter(own, writer)
            time.sleep(0.05)  # longer than a turn
            writer.execute("COMMIT")
            done += 1
        writer.close()

    busy = threading.Thread(target=write_without_a_pause)
    busy.start()
    try:
        while not done:
            time.sleep(0.01)
        before = done
        for _ in range(5):
            enter(gate, connection)
            connection.execute("COMMIT")
        # Each of ours waits for the one under way, and perhaps for one more.
        assert done - before <= 15
    finally:
        over.set()
        busy.join()


@pytest.mark.parametrize("ends", ["commit", "rollback", "left", "failed"])
def test_session_lets_the_next_thread_on_however_it_ends(
    sqlite_uri: DeltaSqlUri, ends: str
) -> None:
    with deltasql.connect(sqlite_uri, store={"busy_timeout_ms": 20_000}) as catalog:
        with (
            contextlib.suppress(sqlite3.OperationalError),
            catalog.store.session() as session,
        ):
            session.begin()
            if ends == "failed":
                session.script("NONSENSE")
            elif ends != "left":
                getattr(session, ends)()
        with ThreadPoolExecutor(1) as other:
            other.submit(catalog.create_namespace, "other").result(timeout=10)


@pytest.mark.parametrize("ends", ["commit", "rollback", "left"])
def test_interrupt_at_any_instant_leaves_the_way_free(sqlite_uri: DeltaSqlUri, ends: str) -> None:
    with (
        deltasql.connect(sqlite_uri, store={"busy_timeout_ms": 60_000}) as catalog,
        ThreadPoolExecutor(1) as other,
    ):

        def write() -> None:
            dialect._gate._seats._own_end = 0.0  # by way of the line
            with dialect.session() as session:
                session.begin()
                if ends != "left":
                    getattr(session, ends)()

        dialect = catalog.store.dialect
        assert isinstance(dialect, SqliteDialect)
        # Not where the file of an earlier test is closed, whenever that is.
        of_the_file = (FileLock.try_take, FileLock.give_back, FileLock.read, FileLock.write)
        ways = (Gate, Seats, *of_the_file, SqliteSession, _Borrowed, try_lock)
        for at in itertools.count():
            try:
                with interrupted(at, *ways):
                    write()
                break
            except KeyboardInterrupt:
                pass
            other.submit(write).result(timeout=10)
            write()
            for path in (dialect._gate._line_path, dialect._gate._writer._path):
                with open(path) as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert at > 30
