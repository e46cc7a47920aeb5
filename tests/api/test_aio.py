"""Async catalogs never block the event loop, and a cancelled task leaves nothing half done."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import deltasql
from deltasql import phases
from deltasql.exceptions import (
    StoreClosedError,
    TxnLogTableNotFoundError,
    VersionNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from deltasql.api.aio import AsyncCatalog
    from deltasql.uri import DeltaSqlUri

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
FUTURE_MS = 2**60
PATIENCE_S = 30


@pytest.fixture
def run_async(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Callable[[Any], None]:
    """Run a coroutine function on an open catalog with one empty table."""

    def run(body: Callable[[AsyncCatalog], Awaitable[None]]) -> None:
        async def main() -> None:
            async with opened(catalog_uri, tmp_path) as catalog:
                await body(catalog)

        asyncio.run(main())

    return run


@asynccontextmanager
async def opened(uri: DeltaSqlUri, folder: Path) -> AsyncIterator[AsyncCatalog]:
    settings: dict[str, Any] = {
        "mirror": {"mode": "off"},
        "table": {"data_root": str(folder / "lake")},
    }
    async with deltasql.aio.connect(uri, **settings) as catalog:
        await catalog.create_table("t", ROWS.schema)
        yield catalog


def test_async_api_reads_writes_and_lists_history(run_async: Any) -> None:
    async def body(catalog: AsyncCatalog) -> None:
        async with catalog.begin() as tx:
            await tx.create_table("u", ROWS.schema)
            await tx.write("t", ROWS)
            await tx.write("u", ROWS)
        assert tx.versions == {"t": 1, "u": 0}
        table = await catalog.table("t")
        assert await table.write(ROWS, mode="overwrite") == 2
        assert [row.version for row in await table.history()] == [2, 1, 0]
        assert [row.version for row in await table.history(1)] == [2]
        assert (await table.files()).num_rows == 1
        assert (await table.to_arrow(predicate="id > 1"))["id"].to_pylist() == [2, 3]
        assert (await table.to_pandas(["id"]))["id"].tolist() == [1, 2, 3]
        assert [t.full_name for t in await catalog.tables()] == ["t", "u"]
        old = await catalog.table("t", 0)
        assert (await old.version(), (await old.to_arrow()).num_rows) == (0, 0)
        assert (await table.schema()).names == ("id",)
        assert await table.run(lambda dt: dt.version()) == 2

    run_async(body)


def test_transaction_sees_its_own_changes_and_commits_them_together(run_async: Any) -> None:
    async def body(catalog: AsyncCatalog) -> None:
        async with catalog.begin() as tx:
            await tx.write("t", ROWS)
            await tx.delete("t", "id = 1")
            await tx.update("t", {"id": "id + 10"}, predicate="id = 2")
            assert sorted((await tx.read("t"))["id"].to_pylist()) == [3, 12]
            assert (await (await catalog.table("t")).to_arrow()).num_rows == 0
        assert tx.versions == {"t": 1}

    run_async(body)


def test_scan_and_changes_yield_batches(run_async: Any) -> None:
    async def body(catalog: AsyncCatalog) -> None:
        table = await catalog.table("t")
        await table.write(ROWS)
        seen = [number async for batch in table.scan() for number in batch["id"].to_pylist()]
        assert sorted(seen) == [1, 2, 3]
        kinds = [
            kind async for batch in table.changes(0) for kind in batch["_change_type"].to_pylist()
        ]
        assert kinds == ["insert"] * 3

    run_async(body)


def test_async_calls_raise_the_errors_of_the_sync_catalog(run_async: Any) -> None:
    async def body(catalog: AsyncCatalog) -> None:
        assert not await catalog.exists("nope")
        with pytest.raises(TxnLogTableNotFoundError, match="nope"):
            await catalog.table("nope")
        with pytest.raises(VersionNotFoundError, match="no version 7"):
            await catalog.table("t", 7)
        with pytest.raises(RuntimeError, match="mine"):
            async with catalog.begin() as tx:
                await tx.write("t", ROWS)
                raise RuntimeError("mine")
        await nothing_is_left(catalog)

    run_async(body)


def test_many_readers_share_few_connections(run_async: Any) -> None:
    async def body(catalog: AsyncCatalog) -> None:
        table = await catalog.table("t")
        versions = await asyncio.gather(*(table.version() for _ in range(50)))
        assert versions == [0] * 50

    run_async(body)


def test_concurrent_writers_all_commit(run_async: Any) -> None:
    async def body(catalog: AsyncCatalog) -> None:
        table = await catalog.table("t")
        versions = await asyncio.gather(*(table.write(ROWS) for _ in range(6)))
        assert sorted(versions) == [1, 2, 3, 4, 5, 6]

    run_async(body)


def test_cancel_during_write_leaves_no_file_and_no_intent(run_async: Any) -> None:
    async def body(catalog: AsyncCatalog) -> None:
        half, cancelled = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def data() -> Iterator[pa.RecordBatch]:
            yield from ROWS.to_batches()
            loop.call_soon_threadsafe(half.set)
            assert cancelled.wait(PATIENCE_S)
            yield from ROWS.to_batches()

        async def write() -> None:
            async with catalog.begin() as tx:
                await tx.write("t", pa.RecordBatchReader.from_batches(ROWS.schema, data()))

        task = asyncio.create_task(write())
        await half.wait()
        task.cancel()
        await asyncio.sleep(0)
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await nothing_is_left(catalog)

    run_async(body)


@pytest.mark.parametrize("phase", ["locked", "committing", "ratified"])
def test_cancel_during_commit_commits_all_tables_or_none(run_async: Any, phase: str) -> None:
    async def body(catalog: AsyncCatalog) -> None:
        arrived, cancelled = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def at(reached: str) -> None:
            if reached == phase and not cancelled.is_set():
                # If the event loop were blocked, it could not cancel the task.
                loop.call_soon_threadsafe(arrived.set)
                assert cancelled.wait(PATIENCE_S)

        await catalog.create_table("u", ROWS.schema)
        tx = catalog.begin()

        async def commit() -> None:
            async with tx:
                await tx.write("t", ROWS)
                await tx.write("u", ROWS)

        with phases.hooked(at):
            task = asyncio.create_task(commit())
            await arrived.wait()
            task.cancel()
            await asyncio.sleep(0)
            cancelled.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert tx.versions == {"t": 1, "u": 1}
        for name in ("t", "u"):
            table = await catalog.table(name)
            assert (await table.to_arrow()).num_rows == ROWS.num_rows
        assert await catalog.run(lambda sync: sync.store.intents_before(FUTURE_MS)) == []

    run_async(body)


def test_cancelled_queued_call_never_starts(catalog_uri: DeltaSqlUri, tmp_path: Path) -> None:
    async def main() -> None:
        async with deltasql.aio.connect(catalog_uri, threads=1) as catalog:
            begun, go = threading.Event(), threading.Event()
            loop = asyncio.get_running_loop()
            arrived = asyncio.Event()

            def hold(_: object) -> None:
                loop.call_soon_threadsafe(arrived.set)
                assert go.wait(PATIENCE_S)

            first = asyncio.create_task(catalog.run(hold))
            await arrived.wait()
            second = asyncio.create_task(catalog.run(lambda _: begun.set()))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            go.set()
            await first
            assert not begun.is_set()

    asyncio.run(main())


def test_cancel_during_close_still_closes_every_connection(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    async def main() -> None:
        async with opened(catalog_uri, tmp_path) as catalog:
            await catalog.tables()
            sync = catalog.sync
            closing = asyncio.create_task(catalog.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            with pytest.raises(StoreClosedError):
                sync.store.query("applied_migrations")
            assert not [t for t in threading.enumerate() if t.name.startswith("deltasql-aio")]

    asyncio.run(main())


def test_cancel_before_queued_commit_leaves_no_file(run_async: Any) -> None:
    async def body(catalog: AsyncCatalog) -> None:
        arrived, go = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def hold(_: object) -> None:
            loop.call_soon_threadsafe(arrived.set)
            assert go.wait(PATIENCE_S)

        async def work() -> None:
            async with catalog.begin() as tx:
                await tx.write("t", ROWS)
                holding = asyncio.create_task(tx.run(hold))
                await arrived.wait()
                task.cancel()  # while the commit waits in the queue
                loop.call_later(0.01, go.set)
            await holding

        task = asyncio.create_task(work())
        with pytest.raises(asyncio.CancelledError):
            await task
        table = await catalog.table("t")
        assert await table.version() == 0
        assert await catalog.run(lambda sync: sync.store.intents_before(FUTURE_MS)) == []
        assert not list(Path(table.location).rglob("*.parquet"))

    run_async(body)


def test_event_loop_is_not_blocked_by_writes_and_reads(run_async: Any) -> None:
    async def body(catalog: AsyncCatalog) -> None:
        many = pa.table({"id": pa.array(range(1_000_000), pa.int64())})
        table = await catalog.table("t")
        await table.write(ROWS)  # so that the measured part imports nothing
        await table.to_arrow()
        stalls: list[float] = []

        async def tick() -> None:
            while True:
                before = time.perf_counter()
                await asyncio.sleep(0.001)
                stalls.append(time.perf_counter() - before)

        for _ in range(3):  # a slow machine is unlikely to stall three times
            stalls.clear()
            ticking = asyncio.create_task(tick())
            began = time.perf_counter()
            await table.write(many)
            await table.to_arrow()
            await table.history()
            took = time.perf_counter() - began
            ticking.cancel()
            if max(stalls) < max(0.25, took / 2):
                break
        assert max(stalls) < max(0.25, took / 2)
        assert len(stalls) > 5

    run_async(body)


def test_call_on_closed_catalog_raises(sqlite_uri: DeltaSqlUri) -> None:
    async def main() -> None:
        catalog = await deltasql.aio.connect(sqlite_uri)
        await catalog.close()
        await catalog.close()
        with pytest.raises(StoreClosedError, match="not open"):
            await catalog.tables()

    asyncio.run(main())


def test_postgres_log_is_read_without_a_thread(
    postgres_uri: DeltaSqlUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(postgres_uri, tmp_path) as catalog:
            await (await catalog.table("t")).write(ROWS)

            async def refused(*_: object, **__: object) -> None:
                raise AssertionError("a thread was used")

            with monkeypatch.context() as patch:
                patch.setattr(catalog.worker, "run", refused)
                table = await catalog.table("t")
                assert await table.version() == 1
                assert [row.version for row in await table.history()] == [1, 0]
                assert (await table.files()).num_rows == 1
                assert len(await catalog.tables()) == 1

    asyncio.run(main())


async def nothing_is_left(catalog: AsyncCatalog) -> None:
    table = await catalog.table("t")
    assert await table.version() == 0
    assert list(Path(table.location).rglob("*.parquet")) == []
    assert await catalog.run(lambda sync: sync.store.intents_before(FUTURE_MS)) == []
