"""AsyncCatalog and AsyncTable: a catalog and its tables for asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self, TypeVar

from deltasql.api.aio.log import AsyncLog
from deltasql.api.aio.transaction import AsyncTransaction
from deltasql.api.aio.work import Worker, to_the_end
from deltasql.api.catalog import connect as sync
from deltasql.api.changes import changes
from deltasql.exceptions import CatalogNotFoundError, StoreClosedError
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Sequence
    from types import TracebackType

    import pyarrow as pa

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.deltalake_compat.delta_table import DeltaTable
    from deltasql.config import Config
    from deltasql.model.schema.schema import StructType
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.store.records import TableRow, VersionRow
    from deltasql.uri import DeltaSqlUri

T = TypeVar("T")
_THREADS = 8


def connect(
    uri: str | DeltaSqlUri,
    config: Config | None = None,
    *,
    threads: int = _THREADS,
    **settings: Any,
) -> AsyncCatalog:
    """Open a catalog by URI: `async with connect(uri) as catalog`, or `await connect(uri)`.

    Blocking work runs in at most `threads` threads. The other keyword arguments are those of
    `deltasql.connect`: `create`, and settings.

    >>> import asyncio, tempfile, pyarrow as pa
    >>> async def tables(uri):
    ...     async with connect(uri) as catalog:
    ...         await catalog.create_table("orders", pa.schema([("id", pa.int64())]))
    ...         return [table.full_name for table in await catalog.tables()]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(tables(f"deltasql://sqlite/{folder}/meta.db"))
    ['orders']
    """
    return AsyncCatalog(lambda: sync.connect(uri, config, **settings), threads)


class AsyncCatalog:
    """The tables whose logs are in one database; use it as an async context manager."""

    def __init__(self, opening: Callable[[], Catalog], threads: int = _THREADS) -> None:
        self.worker = Worker(threads)
        self._opening = opening
        self._sync: Catalog | None = None
        self._log: AsyncLog | None = None

    def __repr__(self) -> str:
        return f"Async{self._sync!r}" if self._sync else "AsyncCatalog(closed)"

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        try:
            await self.worker.run(self._open)
        except asyncio.CancelledError:
            await self.close()  # the thread may have opened the catalog before the cancellation
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Publish all commits that are not published yet, and close every connection.

        Closing a closed catalog does nothing.
        """
        opened, self._sync = self._sync, None
        if opened is not None and self._log is not None:
            await to_the_end(self._close(opened, self._log))

    async def _close(self, opened: Catalog, log: AsyncLog) -> None:
        try:
            await log.close()
        finally:
            await self.worker.run(opened.close)
            await self.worker.close()

    @property
    def sync(self) -> Catalog:
        """The synchronous catalog that does the work."""
        if self._sync is None:
            raise _not_open()
        return self._sync

    @property
    def log(self) -> AsyncLog:
        """The queries on the log."""
        if self._log is None or self._sync is None:
            raise _not_open()
        return self._log

    async def tables(self, namespace: str | None = None) -> list[AsyncTable]:
        """List all tables, or those of one namespace, sorted by namespace and name."""
        return [AsyncTable(self, row) for row in await self.log.tables(namespace)]

    async def table(self, name: str, version: int | None = None) -> AsyncTable:
        """Return a table by name; with `version`, its reads see that version."""
        found = AsyncTable(self, await self.log.resolve(name), version)
        if version is not None:
            await found.snapshot()  # raises if the version does not exist
        return found

    async def exists(self, name: str) -> bool:
        """Return whether a table has this name; False if the database has no catalog."""
        try:
            return await self.log.find(name) is not None
        except CatalogNotFoundError:
            return False

    async def create_table(self, name: str, schema: object, **options: Any) -> AsyncTable:
        """Create an empty table at version 0, with the options of `Catalog.create_table`."""
        created = await self.run(lambda catalog: catalog.create_table(name, schema, **options))
        return AsyncTable(self, created.row)

    def begin(self) -> AsyncTransaction:
        """Start a transaction over any number of tables, all seen at the same point in time."""
        return AsyncTransaction(self.sync.begin(), self.worker)

    async def run(self, function: Callable[[Catalog], T]) -> T:
        """Call a function with the synchronous catalog in a thread; return its result."""
        return await self.worker.run(function, self.sync)

    def _open(self) -> None:
        if self._sync is None:
            opened = self._opening()
            self._sync, self._log = opened, AsyncLog(opened, self.worker)


def _not_open() -> StoreClosedError:
    return StoreClosedError(
        "the catalog is not open", help="Use it inside `async with`, or await it."
    )


class AsyncTable:
    """A table of a catalog; every read sees the latest version, or a fixed one."""

    def __init__(self, catalog: AsyncCatalog, row: TableRow, version: int | None = None) -> None:
        """With `version`, all reads see that version; without it, each sees the latest one."""
        self.catalog, self.row = catalog, row
        self._version = version

    def __repr__(self) -> str:
        return f"AsyncTable({self.full_name!r}, location={self.location!r})"

    @property
    def full_name(self) -> str:
        """The name for `catalog.table`: `sales`, or `crm.sales` in another namespace."""
        return join_table_name(self.row.namespace, self.row.name)

    @property
    def location(self) -> str:
        """The folder or bucket prefix of the data files and of the published `_delta_log`."""
        return self.row.location

    # The log

    async def snapshot(self) -> Snapshot:
        """Return a snapshot of the version that reads of this object see."""
        return await self.catalog.log.snapshot(self.row, self._version)

    async def version(self) -> int:
        """Return the version that reads of this object see."""
        return (await self.snapshot()).version

    async def schema(self) -> StructType:
        """Return the schema of the table."""
        snapshot = await self.snapshot()
        return await self.catalog.worker.run(lambda: snapshot.schema)

    async def history(self, limit: int | None = None) -> list[VersionRow]:
        """Return the latest `limit` commits, or all commits; newest first."""
        return await self.catalog.log.history(self.row, limit)

    async def files(self) -> pa.Table:
        """Return the live files as an Arrow table."""
        return await self.catalog.log.files(self.row, self._version)

    # The rows

    async def scan(
        self, columns: Sequence[str] | None = None, predicate: str | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Yield the rows that match a predicate, or all rows, in batches."""
        worker = self.catalog.worker
        reader = await worker.run(self._reader, columns, predicate)
        async for batch in worker.iterate(reader):
            yield batch

    async def to_arrow(
        self, columns: Sequence[str] | None = None, predicate: str | None = None
    ) -> pa.Table:
        """Return the rows that match a predicate, or all rows, as an Arrow table."""
        return await self.catalog.worker.run(lambda: self._reader(columns, predicate).read_all())

    async def to_pandas(
        self, columns: Sequence[str] | None = None, predicate: str | None = None
    ) -> Any:
        """Return the rows that match a predicate, or all rows, as a pandas data frame."""
        return await self.catalog.worker.run(lambda: self._reader(columns, predicate).read_pandas())

    async def changes(
        self,
        from_version: int,
        to_version: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Yield the rows that a range of versions inserted and deleted, in batches.

        Both ends are included; `to_version` defaults to the latest version.
        """
        worker = self.catalog.worker
        reader = await worker.run(
            changes,
            self.catalog.sync,
            self.row,
            from_version,
            to_version,
            columns=columns,
            predicate=predicate,
        )
        async for batch in worker.iterate(reader):
            yield batch

    # Writes

    async def write(self, data: object, **options: Any) -> int:
        """Write rows in one commit; `options` are those of `AsyncTransaction.write`.

        Returns the version of the commit.
        """
        async with self.catalog.begin() as tx:
            await tx.write(self.full_name, data, **options)
        return tx.versions[self.full_name]

    async def run(self, function: Callable[[DeltaTable], T]) -> T:
        """Call a function in a thread, with this table as a DeltaTable; return its result.

        `await table.run(lambda dt: dt.delete("day < '2024-01-01'"))` returns the delete's metrics.
        """
        return await self.catalog.worker.run(lambda: function(self._handle()))

    def _reader(self, columns: Sequence[str] | None, predicate: str | None) -> pa.RecordBatchReader:
        # lazy import: loads the SQL parser
        from deltasql.api.deltalake_compat.handle.scan import read_rows

        return read_rows(self._raw(), columns, predicate, views=False)

    def _raw(self) -> Any:
        from deltasql.api.deltalake_compat.handle.raw_table import (
            RawTable,  # lazy import: importing deltalake is slow
        )

        return RawTable(self.catalog.sync, self.row, version=self._version)

    def _handle(self) -> DeltaTable:
        from deltasql.api.deltalake_compat.delta_table import DeltaTable
        from deltasql.deltalake_internals import set_raw_table

        handle = DeltaTable.__new__(DeltaTable)
        set_raw_table(handle, self._raw(), None)
        return handle
