"""PostgreSQL through psycopg: values, errors, and lost, shared and scarce connections."""

from __future__ import annotations

import os
import resource
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from tests.commit.proxy import Proxy
from tests.conftest import add_file

import deltasql
from deltasql.exceptions import (
    StoreBusyError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TxnLogStoreError,
)
from deltasql.store.dialect import Fault
from deltasql.store.postgres.dialect import conninfo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

FUTURE_MS = 2**60
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def catalog(postgres_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(postgres_uri, tmp_path) as opened:
        yield opened


@pytest.fixture
def admin(catalog: Catalog, postgres_uri: DeltaSqlUri) -> Iterator[psycopg.Connection[Any]]:
    """A separate connection to the same schema."""
    with psycopg.connect(conninfo(postgres_uri, catalog.config), autocommit=True) as opened:
        opened.execute(f"SET search_path = {postgres_uri.search_path}")
        yield opened


def open_catalog(uri: DeltaSqlUri, folder: Path, **pool: float) -> Catalog:
    return deltasql.connect(
        uri,
        create=True,
        mirror={"mode": "off"},
        table={"data_root": str(folder)},
        pool=pool or {},
    )


def append(catalog: Catalog, path: str) -> None:
    with catalog.begin() as tx:
        tx.stage_table("t", [add_file(path)])


def intents(catalog: Catalog) -> list[str]:
    return sorted(path for _, _, path, _ in catalog.store.intents_before(FUTURE_MS))


def test_intents_keep_paths_unchanged(catalog: Catalog) -> None:
    paths = [
        "/lake/plain",
        '/lake/a "quoted" \\ name',
        "/lake/{comma, brace}",
        "NULL",
        "",
        "größe😀",
    ]
    catalog.store.record_intents("one", 1, paths)
    assert intents(catalog) == sorted(paths)


def test_many_intents_are_recorded_at_once(catalog: Catalog) -> None:
    paths = [f"/lake/{'x' * 500}-{number}" for number in range(5_000)]
    catalog.store.record_intents("one", 1, paths)
    assert intents(catalog) == sorted(paths)


def test_failed_intent_raises_and_the_next_intent_is_recorded(
    catalog: Catalog, admin: psycopg.Connection[Any]
) -> None:
    with pytest.raises(TxnLogStoreError, match="NUL"):
        catalog.store.record_intents("one", 1, ["/lake/a\0b"])
    admin.execute("ALTER TABLE dl_staged_files RENAME TO elsewhere")
    with pytest.raises(TxnLogStoreError, match="dl_staged_files"):
        catalog.store.record_intents("one", 1, ["/lake/a"])
    admin.execute("ALTER TABLE elsewhere RENAME TO dl_staged_files")
    catalog.store.record_intents("one", 1, ["/lake/b"])
    assert intents(catalog) == ["/lake/b"]


def test_paths_do_not_depend_on_the_client_encoding(
    catalog: Catalog, postgres_uri: DeltaSqlUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_table("t", SCHEMA)
    with catalog.begin() as tx:
        tx.stage_table("t", [replace(add_file("a"), path="größe=😀,a")])
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with open_catalog(postgres_uri, tmp_path) as other:
        assert other.table("t").snapshot().scan().paths() == ["größe=😀,a"]


def test_appends_succeed_after_a_rollback(catalog: Catalog) -> None:
    """psycopg discards its prepared statements after a ROLLBACK."""
    catalog.create_table("t", SCHEMA)
    for number in range(4):
        for again in range(3):
            append(catalog, f"{number}-{again}")
        for _ in range(3):
            with catalog.store.session() as session:
                session.begin()
                session.query("list_tables", namespace=None, limit=10, after="")
    assert catalog.table("t").version() == 12


def test_appends_succeed_after_deallocate_all(catalog: Catalog) -> None:
    catalog.create_table("t", SCHEMA)
    for number in range(4):
        append(catalog, f"before-{number}")
    with catalog.store.session() as session:
        session.script("DEALLOCATE ALL")
    append(catalog, "after")
    assert catalog.table("t").version() == 5


def test_connection_lost_in_a_session_is_classified_as_lost(
    catalog: Catalog, admin: psycopg.Connection[Any]
) -> None:
    with catalog.store.session() as session:
        connection: psycopg.Connection[Any] = session._connection  # type: ignore[attr-defined]
        admin.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])
        with pytest.raises(psycopg.OperationalError) as lost:
            session.query("applied_migrations")
    assert catalog.store.classify(lost.value) is Fault.LOST
    assert catalog.tables() == []


def test_one_connection_serves_many_threads(postgres_uri: DeltaSqlUri, tmp_path: Path) -> None:
    with open_catalog(postgres_uri, tmp_path, max_size=1) as catalog:
        catalog.create_table("t", SCHEMA)
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda number: append(catalog, str(number)), range(20)))
        assert catalog.table("t").version() == 20
        assert catalog.store.dialect.usage() == {"lent": 0, "idle": 1, "max": 1}


def test_pool_of_one_connection_in_use_is_busy(postgres_uri: DeltaSqlUri, tmp_path: Path) -> None:
    with open_catalog(postgres_uri, tmp_path, max_size=1, timeout_s=0.1) as catalog:
        with catalog.store.session(), pytest.raises(StoreBusyError, match=r"0\.1 s"):
            catalog.tables()
        assert catalog.tables() == []


def test_close_does_not_wait_for_connections_in_use(
    postgres_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    catalog = open_catalog(postgres_uri, tmp_path)
    with catalog.store.session() as session:
        connection: psycopg.Connection[Any] = session._connection  # type: ignore[attr-defined]
        catalog.close()
        assert session.query("applied_migrations")
    assert connection.closed


def test_thread_waiting_for_a_connection_gets_store_closed(
    postgres_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    catalog = open_catalog(postgres_uri, tmp_path, max_size=1)
    with ThreadPoolExecutor(1) as thread, catalog.store.session():
        waiting = thread.submit(catalog.tables)  # it waits, or finds the store closed at once
        catalog.close()
        with pytest.raises(deltasql.exceptions.StoreClosedError):
            waiting.result(timeout=10)


class LeftBlockError(Exception):
    """Leaves the session block in a forked child."""


def test_fork_in_a_session_keeps_the_parents_transaction(catalog: Catalog) -> None:
    catalog.create_table("t", SCHEMA)
    try:
        with catalog.store.session() as session:
            session.begin()
            session.query("applied_migrations")
            pid = os.fork()
            if pid == 0:
                try:
                    append(catalog, "child")
                except BaseException:
                    os._exit(1)
                raise LeftBlockError  # must not end the parent's transaction
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert session.query("applied_migrations")
            session.commit()
    except LeftBlockError:
        os._exit(0)
    assert catalog.table("t").version() == 1


def test_catalog_reconnects_after_the_server_was_unreachable(
    postgres_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with Proxy() as proxy, open_catalog(proxy.uri(postgres_uri), tmp_path) as catalog:
        assert catalog.tables() == []
        proxy.stop_accepting()
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match="cannot connect to PostgreSQL"):
                catalog.tables()
        proxy.accept()
        assert catalog.tables() == []


def test_socket_number_above_1023_works(postgres_uri: DeltaSqlUri, tmp_path: Path) -> None:
    """`select` does not accept such a socket."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip("this machine allows no socket above 1,023")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    low: list[int] = []
    try:
        while not low or low[-1] < 1024:  # the next socket is above all of them
            low.append(os.open(os.devnull, os.O_RDONLY))
        with open_catalog(postgres_uri, tmp_path) as catalog:
            catalog.create_table("t", SCHEMA)
            append(catalog, "a")
            with catalog.store.session() as session:
                assert session._connection.pgconn.socket >= 1024  # type: ignore[attr-defined]
    finally:
        for each in low:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_write_to_a_read_only_database_is_refused_before_a_file_is_written(
    catalog: Catalog, postgres_uri: DeltaSqlUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read replica answers writes with the same SQLSTATE."""
    catalog.create_table("t", SCHEMA)
    append(catalog, "a")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setenv("PGOPTIONS", "-c default_transaction_read_only=on")
    with open_catalog(postgres_uri, tmp_path) as reader:
        assert reader.table("t").version() == 1
        with pytest.raises(StoreReadOnlyError, match="read-only"), reader.begin() as tx:
            tx.write("t", pa.table({"id": [1]}))
        with pytest.raises(StoreReadOnlyError):
            append(reader, "b")
        with pytest.raises(StoreReadOnlyError):
            reader.create_table("u", SCHEMA)
    assert sorted(tmp_path.rglob("*")) == before
    assert catalog.table("t").version() == 1
