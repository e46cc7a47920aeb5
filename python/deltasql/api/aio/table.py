"""AsyncTable: a table of a catalog, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from deltasql.api.changes import changes
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    import pyarrow as pa

    from deltasql.api.aio.catalog import AsyncCatalog
    from deltasql.api.deltalake_compat.delta_table import DeltaTable
    from deltasql.model.schema.schema import StructType
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.store.records import TableRow, VersionRow

T = TypeVar("T")


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
        """Return commits, newest first."""
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
        """Yield the rows that versions inserted and deleted, in batches.

        Both versions are included; `to_version` defaults to the latest version.
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
        """Call a function with a DeltaTable of this table in a thread; return its result.

        `await table.run(lambda dt: dt.delete("day < '2024-01-01'"))` returns metrics.
        """
        return await self.catalog.worker.run(lambda: function(self._handle()))

    def _reader(self, columns: Sequence[str] | None, predicate: str | None) -> pa.RecordBatchReader:
        # late: it parses SQL
        from deltasql.api.deltalake_compat.handle.scan import read_rows

        return read_rows(self._raw(), columns, predicate, views=False)

    def _raw(self) -> Any:
        from deltasql.api.deltalake_compat.handle.raw_table import (
            RawTable,  # late: importing deltalake is slow
        )

        return RawTable(self.catalog.sync, self.row, version=self._version)

    def _handle(self) -> DeltaTable:
        from deltasql.api.deltalake_compat.delta_table import DeltaTable

        handle = DeltaTable.__new__(DeltaTable)
        handle._storage_options, handle._table = None, self._raw()
        return handle
