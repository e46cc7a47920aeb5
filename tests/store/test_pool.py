"""The connection pool is bounded, replaces broken connections, survives a fork and closes all."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pytest
from tests.conftest import add_file
from tests.interrupts import interrupted

import deltasql
from deltasql.exceptions import (
    StoreBusyError,
    StoreClosedError,
    StoreUnavailableError,
    TxnLogStoreError,
)
from deltasql.store.sqlite.pool import Pool, _ConnectionContext
from deltasql.uri import DeltaSqlUri

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog

SCHEMA = pa.schema([("id", pa.int64())])


class FakeConnection:
    """A fake connection."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def pool_of(made: list[FakeConnection], **options: float) -> Pool[FakeConnection]:
    def connect() -> FakeConnection:
        made.append(FakeConnection())
        return made[-1]

    return Pool(connect, FakeConnection.close, lambda thing: not thing.closed, **options)  # type: ignore[arg-type]


def test_interrupt_never_blocks_other_threads_of_the_pool() -> None:
    pool = pool_of(
        [], max_size=1_000
    )  # an interrupt may lose a connection, but must not keep the lock

    def use_connection() -> None:
        with pool.connection():
            pass

    with ThreadPoolExecutor(1) as other:
        for at in itertools.count():
            try:
                with interrupted(at, Pool, _ConnectionContext, threading.Condition):
                    use_connection()
                break
            except KeyboardInterrupt:
                pass
            other.submit(use_connection).result(timeout=10)
    assert at > 10


def test_connection_is_reused() -> None:
    made: list[FakeConnection] = []
    pool = pool_of(made)
    for _ in range(3):
        with pool.connection():
            pass
    assert len(made) == 1


def test_closed_idle_connection_is_replaced() -> None:
    made: list[FakeConnection] = []
    pool = pool_of(made)
    with pool.connection() as first:
        pass
    first.close()
    with pool.connection() as second:
        assert not second.closed
    assert pool.usage() == {"lent": 0, "idle": 1, "max": 8}


def test_connection_that_breaks_in_use_is_not_reused() -> None:
    made: list[FakeConnection] = []
    pool = pool_of(made)
    with pytest.raises(OSError, match="cut"), pool.connection() as thing:
        thing.close()
        raise OSError("cut")
    assert pool.usage()["idle"] == 0


def test_connection_is_kept_after_a_failed_statement() -> None:
    made: list[FakeConnection] = []
    pool = pool_of(made)
    with pytest.raises(ValueError, match="wrong"), pool.connection():
        raise ValueError("wrong")
    assert pool.usage()["idle"] == 1


def test_connection_past_its_lifetime_is_replaced() -> None:
    made: list[FakeConnection] = []
    pool = pool_of(made, max_lifetime_s=0.0)
    for _ in range(2):
        with pool.connection():
            pass
    assert [thing.closed for thing in made] == [True, False]


def test_exhausted_pool_raises_store_busy_after_its_timeout() -> None:
    pool = pool_of([], max_size=1, timeout_s=0.05)
    with pool.connection(), pytest.raises(StoreBusyError, match=r"0\.05 s"), pool.connection():
        pass


def test_failed_connect_frees_its_slot() -> None:
    def fail() -> FakeConnection:
        raise OSError("refused")

    pool = Pool(fail, FakeConnection.close, lambda _: True, max_size=1, timeout_s=0.05)
    for _ in range(2):
        with pytest.raises(OSError, match="refused"), pool.connection():
            pass


def test_threads_never_use_more_than_the_maximum() -> None:
    made: list[FakeConnection] = []
    pool = pool_of(made, max_size=3)
    inside, most = 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            with pool.connection():
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 3
    assert len(made) <= 3


def test_close_closes_idle_connections_now_and_used_connections_on_return() -> None:
    made: list[FakeConnection] = []
    pool = pool_of(made)
    with pool.connection() as lent:
        with pool.connection():
            pass
        pool.close()
        assert [thing.closed for thing in made] == [False, True]
        with pytest.raises(StoreClosedError), pool.connection():
            pass
    assert lent.closed


# On real databases


@pytest.fixture
def table(catalog: Catalog) -> str:
    catalog.create_table("t", SCHEMA)
    append(catalog, "a")
    assert paths(catalog) == ["a"]
    return "t"


def append(catalog: Catalog, path: str) -> int:
    with catalog.begin() as tx:
        tx.stage_table("t", [add_file(path)])
    return tx.versions["t"]


def paths(catalog: Catalog) -> list[str]:
    return sorted(catalog.table("t").scan().paths())


def cut_connections(catalog: Catalog) -> None:
    """Close every idle connection of the catalog from outside."""
    if catalog.store.dialect.name == "sqlite":
        for entry in catalog.store.dialect._pool._idle:  # type: ignore[attr-defined]
            entry.connection.close()
    else:
        with psycopg.connect(os.environ["TEST_DATABASE_URL"], autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'cut me' AND pid <> pg_backend_pid()"
            )


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_lost_connections_are_replaced_without_an_error(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with deltasql.connect(
        catalog_uri,
        mirror={"mode": "off"},
        table={"data_root": str(tmp_path)},
        store={"application_name": "cut me"},
    ) as catalog:
        catalog.create_table("t", SCHEMA)
        for number in range(3):
            append(catalog, str(number))
            cut_connections(catalog)
            assert catalog.table("t").version() == number + 1
            cut_connections(catalog)
            assert len(paths(catalog)) == number + 1
            cut_connections(catalog)
        assert append(catalog, "last") == 4


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_catalog_without_a_free_connection_is_busy(
    catalog_uri: DeltaSqlUri,
) -> None:
    pool = {"max_size": 2, "timeout_s": 3}
    with deltasql.connect(catalog_uri, create=True, pool=pool) as catalog, ExitStack() as lent:
        for _ in range(2):
            lent.enter_context(catalog.store.session())
        with pytest.raises(StoreBusyError, match=r"3\.0 s") as caught:
            catalog.tables()
        assert "pool.max_size" in str(caught.value)
        lent.close()
        assert catalog.tables() == []


def test_closed_catalog_rejects_every_call(catalog: Catalog, table: str) -> None:
    handle, tx = catalog.table(table), catalog.begin()
    tx.stage_table(table, [add_file("late")])
    snapshot = handle.snapshot()
    catalog.close()
    catalog.close()
    uses: list[Callable[[], object]] = [
        catalog.tables,
        catalog.health,
        handle.version,
        tx.commit,
        snapshot.totals,
        lambda: snapshot.file_paths(),
        lambda: catalog.create_table("u", SCHEMA),
        catalog.migrate,
    ]
    for use in uses:
        with pytest.raises(StoreClosedError, match=r"deltasql\.connect"):
            use()


def test_unreachable_server_is_reported_quickly_without_the_password() -> None:
    uri = "deltasql://postgres/ann:s3cret-word@127.0.0.1:1/db?connect_timeout=2"
    start = time.monotonic()
    with pytest.raises(StoreUnavailableError) as caught:
        deltasql.connect(uri)
    assert time.monotonic() - start < 5
    assert "Connection refused" in str(caught.value)
    error: BaseException | None = caught.value
    while error is not None:
        assert "s3cret-word" not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__


def test_failed_connect_leaves_no_threads_or_output() -> None:
    code = """
import threading, deltasql
try:
    deltasql.connect("deltasql://postgres/ann@127.0.0.1:1/db")
except deltasql.exceptions.StoreUnavailableError:
    print([each.name for each in threading.enumerate() if "deltasql" in each.name])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_rejected_login_is_reported(postgres_uri: DeltaSqlUri) -> None:
    uri = DeltaSqlUri(
        backend="postgres",
        database="no_such_database",
        user=postgres_uri.user,
        host=postgres_uri.host,
        port=postgres_uri.port,
        password=postgres_uri.password,
    )
    with pytest.raises(StoreUnavailableError, match="no_such_database"):
        deltasql.connect(uri)


def test_duckdb_writer_waits_at_most_the_busy_timeout(tmp_path: Path) -> None:
    uri = DeltaSqlUri(backend="duckdb", database=str(tmp_path / "meta.duckdb"))
    with deltasql.connect(uri, store={"busy_timeout_ms": 100}) as catalog:
        catalog.create_table("t", SCHEMA)
        with ThreadPoolExecutor(1) as other, catalog.store.change():
            renaming = other.submit(catalog.rename, "t", "u")
            with pytest.raises(StoreBusyError, match="within 100 ms: another thread"):
                renaming.result(timeout=10)
        catalog.rename("t", "u")


def test_second_process_on_a_duckdb_file_gets_a_clear_error(tmp_path: Path) -> None:
    uri = f"deltasql://duckdb/{tmp_path}/meta.duckdb"
    code = f"import deltasql\ndeltasql.connect({uri!r})"
    with deltasql.connect(uri, create=True):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "StoreUnavailableError" in done.stderr
    assert "Only one process can open a DuckDB file" in done.stderr
    subprocess.run([sys.executable, "-c", code], check=True)


def test_file_that_is_not_a_database_is_rejected(tmp_path: Path) -> None:
    for backend in ("sqlite", "duckdb"):
        path = tmp_path / f"notes.{backend}"
        path.write_text("these are notes, not a database\n" * 100)
        with pytest.raises(TxnLogStoreError, match="notes"):
            deltasql.connect(f"deltasql://{backend}/{path}")
        assert path.read_text().startswith("these are notes")


# Fork


def in_child(work: Callable[[], None]) -> Callable[[], None]:
    """Run a function in a forked child; the result waits for it and reports its failure."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            print(f"in the child: {error!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    return lambda: _joined(pid)


def _joined(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_parent_and_forked_child_both_read_and_commit(catalog: Catalog, table: str) -> None:
    def work() -> None:
        assert catalog.table(table).version() >= 1
        for number in range(10):
            append(catalog, f"child-{number}")
        assert "a" in paths(catalog)

    join = in_child(work)
    for number in range(10):
        append(catalog, f"parent-{number}")
    join()
    assert len(paths(catalog)) == 21
    assert append(catalog, "after") == 22


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_forked_child_keeps_committing_after_the_parent_closes(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    settings = {"mirror": {"mode": "off"}, "table": {"data_root": str(tmp_path)}}
    catalog = deltasql.connect(catalog_uri, **settings)
    catalog.create_table("t", SCHEMA)
    ready, closed = os.pipe(), os.pipe()

    def work() -> None:
        append(catalog, "before")
        os.write(ready[1], b"x")
        os.read(closed[0], 1)
        append(catalog, "after")

    join = in_child(work)
    os.read(ready[0], 1)
    catalog.close()
    os.write(closed[1], b"x")
    join()
    with deltasql.connect(catalog_uri, **settings) as again:
        assert paths(again) == ["after", "before"]


def test_closing_one_catalog_keeps_the_locks_of_another(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    settings = {"mirror": {"mode": "off"}, "table": {"data_root": str(tmp_path)}}
    append_elsewhere = (
        "import deltasql\n"
        f"with deltasql.connect({sqlite_uri.to_string()!r}, mirror={{'mode': 'off'}}) as catalog:\n"
        "    with catalog.begin() as tx:\n"
        "        tx.stage_table('t', [deltasql.AddFile('elsewhere', {}, 1, 1)])\n"
    )
    with deltasql.connect(sqlite_uri, **settings) as kept:
        kept.create_table("t", SCHEMA)
        with deltasql.connect(sqlite_uri, **settings) as other:
            assert other.table("t").files().num_rows == 0
        subprocess.run([sys.executable, "-c", append_elsewhere], check=True)
        assert append(kept, "here") == 2
    with deltasql.connect(sqlite_uri, **settings) as again:
        assert paths(again) == ["elsewhere", "here"]


def test_duckdb_catalog_in_a_forked_child_raises_a_clear_error(tmp_path: Path) -> None:
    with deltasql.connect(f"deltasql://duckdb/{tmp_path}/meta.duckdb", create=True) as catalog:

        def work() -> None:
            with pytest.raises(StoreUnavailableError, match="before a fork"):
                catalog.tables()

        in_child(work)()
        assert catalog.tables() == []
