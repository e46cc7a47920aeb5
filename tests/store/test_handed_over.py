"""What is handed to PostgreSQL is done before anything that is asked later."""

from __future__ import annotations

import os
import resource
import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

import deltasql
from deltasql.config import Config
from deltasql.store import postgres_pool
from deltasql.store.postgres import conninfo
from deltasql.store.postgres_handed import collect, hand_over
from deltasql.store.postgres_pool import PostgresPool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

FUTURE_MS = 2**60
NOTE = {"txn_id": "one", "table_id": 1, "now_ms": 1, "paths": ["/lake/a"]}


@pytest.fixture
def catalog(postgres_uri: DeltaSqlUri) -> Iterator[Catalog]:
    with deltasql.connect(postgres_uri) as opened:
        yield opened


def noted(catalog: Catalog) -> list[str]:
    return sorted(path for _, _, path, _ in catalog.store.intents_before(FUTURE_MS))


def test_notes_are_there_for_whoever_asks_next(catalog: Catalog) -> None:
    paths = ["/lake/plain", '/lake/a "quoted" \\ name', "/lake/{comma, brace}", "/lake/größe"]
    catalog.store.record_intents("one", 1, paths)
    catalog.store.record_intents("two", 1, ["/lake/other"])
    assert noted(catalog) == sorted([*paths, "/lake/other"])


def test_notes_are_there_for_another_connection(catalog: Catalog) -> None:
    catalog.store.record_intents("one", 1, ["/lake/a"])
    found: list[list[str]] = []
    with catalog.store.session():  # the connection at hand is taken
        other = threading.Thread(target=lambda: found.append(noted(catalog)))
        other.start()
        other.join()
    assert found == [["/lake/a"]]


def test_many_notes_at_once(catalog: Catalog) -> None:
    paths = [f"/lake/{'x' * 500}-{number}" for number in range(5_000)]
    catalog.store.record_intents("one", 1, paths)
    assert len(noted(catalog)) == len(paths)


def test_a_note_that_is_refused_stops_nothing(catalog: Catalog, postgres_uri: DeltaSqlUri) -> None:
    with psycopg.connect(conninfo(postgres_uri, catalog.config), autocommit=True) as admin:
        admin.execute("ALTER TABLE dl_staged_files RENAME TO elsewhere")
        catalog.store.record_intents("one", 1, ["/lake/a"])
        assert catalog.tables() == []
        admin.execute("ALTER TABLE elsewhere RENAME TO dl_staged_files")
    catalog.store.record_intents("one", 1, ["/lake/b"])
    assert noted(catalog) == ["/lake/b"]


def test_a_connection_that_dies_after_a_note_is_replaced(catalog: Catalog) -> None:
    with catalog.store.session() as session:
        (pid,) = session._connection.execute("SELECT pg_backend_pid()").fetchone()  # type: ignore[attr-defined]
        other = psycopg.connect(session._connection.info.dsn)  # type: ignore[attr-defined]
    catalog.store.record_intents("one", 1, ["/lake/a"])
    with other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    catalog.store.record_intents("two", 1, ["/lake/b"])
    assert "/lake/b" in noted(catalog)


def test_closing_with_a_note_on_its_way(postgres_uri: DeltaSqlUri) -> None:
    with deltasql.connect(postgres_uri) as catalog:
        catalog.store.record_intents("one", 1, ["/lake/a"])
    with pytest.raises(deltasql.exceptions.StoreClosedError):
        catalog.store.record_intents("one", 1, ["/lake/b"])


@pytest.fixture
def pool(catalog: Catalog, postgres_uri: DeltaSqlUri) -> Iterator[PostgresPool]:
    config = Config.load(pool={"timeout_s": 60})
    opened = PostgresPool(conninfo(postgres_uri, config), config.pool, max_size=4)
    yield opened
    opened.close()


def test_a_socket_of_a_high_number(catalog: Catalog, postgres_uri: DeltaSqlUri) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip("this machine allows no socket above 1,023")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    low: list[int] = []
    try:
        while not low or low[-1] < 1024:  # the next socket is above all of them
            low.append(os.open(os.devnull, os.O_RDONLY))
        with psycopg.connect(conninfo(postgres_uri, catalog.config), autocommit=True) as opened:
            assert opened.pgconn.socket >= 1024
            assert hand_over(opened, "note_staged_files", NOTE)
            assert collect(opened, "note_staged_files", NOTE) == [(1,)]
    finally:
        for each in low:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert noted(catalog) == ["/lake/a"]


def test_another_threads_note_holds_nobody_up(
    pool: PostgresPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending, asked = threading.Event(), threading.Event()

    def slowly(*args: object) -> bool:
        sending.set()
        asked.wait()
        return hand_over(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(postgres_pool, "hand_over", slowly)
    sender = threading.Thread(target=pool.hand_over, args=("note_staged_files", NOTE))
    sender.start()
    sending.wait()
    with pool.lend() as connection:  # while the other one is at it, and the answer not taken
        assert connection.execute("SELECT 1").fetchone() == (1,)
    asked.set()
    sender.join()


def test_the_sender_waits_for_its_own_note(pool: PostgresPool) -> None:
    assert pool.hand_over("note_staged_files", NOTE)
    note, done = pool._home.note, threading.Event()
    assert note is not None
    pool._home.taken.acquire()  # another thread, which has not taken the answer yet
    found: list[object] = []

    def settle_later() -> None:
        note.settled.wait(0.2)
        found.append("settled")
        pool._settle(pool._home)
        done.wait()
        pool._home.taken.release()

    other = threading.Thread(target=settle_later)
    other.start()
    with pool.lend() as connection:
        found += connection.execute("SELECT path FROM dl_staged_files").fetchall()
    done.set()
    other.join()
    assert found == ["settled", ("/lake/a",)]


@pytest.mark.parametrize("step", ["hand_over", "collect"])
def test_an_interrupt_leaves_no_answer_to_somebody_else(
    pool: PostgresPool, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def interrupted(*args: object) -> bool:
        if step == "hand_over":
            hand_over(*args)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(postgres_pool, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.hand_over("note_staged_files", NOTE)
            pool.lend().__enter__()
    assert pool._home.connection is not None
    assert pool._home.connection.closed
    assert pool._lost_at > 0
    with pool.lend() as connection:
        assert connection.execute("SELECT 7").fetchone() == (7,)


def test_closing_lets_the_sender_go_on(pool: PostgresPool) -> None:
    assert pool.hand_over("note_staged_files", NOTE)
    note = pool._home.note
    pool.close()
    assert note is not None
    assert note.settled.is_set()


def test_a_long_note_is_waited_for(catalog: Catalog) -> None:
    home = catalog.store.dialect._pool._home  # type: ignore[attr-defined]
    catalog.store.record_intents("one", 1, [f"/lake/{each}" for each in range(100)])
    assert home.note is not None
    catalog.store.record_intents("two", 1, [f"/lake/{each}" for each in range(101)])
    assert home.note is None


def test_the_sender_is_told_the_answer_once(pool: PostgresPool) -> None:
    answers: list[object] = []
    assert pool.hand_over("note_staged_files", NOTE, answers.append)
    assert answers == []
    for _ in range(2):
        with pool.lend():
            pass
    assert answers == [[(1,)]]


def test_the_sender_is_told_that_a_note_was_refused(pool: PostgresPool) -> None:
    answers: list[object] = []
    with pool.lend() as connection:
        connection.execute("ALTER TABLE dl_staged_files RENAME TO elsewhere")
    assert pool.hand_over("note_staged_files", NOTE, answers.append)
    with pool.lend() as connection:
        connection.execute("ALTER TABLE elsewhere RENAME TO dl_staged_files")
    assert answers == [None]


def test_the_sender_is_told_that_the_connection_died(pool: PostgresPool) -> None:
    answers: list[object] = []
    with pool.lend() as connection:
        pid = connection.info.backend_pid
        other = psycopg.connect(connection.info.dsn)
    with other:
        other.execute("LOCK dl_staged_files")
        assert pool.hand_over("note_staged_files", NOTE, answers.append)
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    with pool.lend() as connection:
        assert connection.execute("SELECT 7").fetchone() == (7,)
    assert answers == [None]
