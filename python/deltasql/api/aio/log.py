"""Read the log: over async connections to PostgreSQL, or in a thread for other databases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.snapshot.files import from_rows, to_arrow
from deltasql.snapshot.snapshot import HISTORY_PAGE, Snapshot, open_snapshot
from deltasql.store.open import open_async
from deltasql.store.records import Head, TableRow, VersionRow, live_name
from deltasql.uri import split_table_name

if TYPE_CHECKING:
    import pyarrow as pa

    from deltasql.api.aio.work import Worker
    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.store.dialect import Row

# Up to this many files are converted to Arrow in the event loop; more are read in a thread.
_FEW_FILES = 5_000


class AsyncLog:
    """Queries on the log of one catalog."""

    def __init__(self, catalog: BaseCatalog, worker: Worker) -> None:
        self._catalog, self._worker = catalog, worker
        self._native = open_async(catalog.store, catalog.uri, catalog.config)

    async def query(self, name: str, /, **params: Any) -> list[Row]:
        """Run a named statement that reads, and return its rows."""
        if self._native is not None:
            if not self._catalog.store.is_found:
                await self._worker.run(self._catalog.store.check_exists)
            return await self._native.query(name, **params)
        return await self._worker.run(self._catalog.store.query, name, **params)

    async def close(self) -> None:
        if self._native is not None:
            await self._native.close()

    async def tables(self, namespace: str | None = None) -> list[TableRow]:
        """List all tables, or those of one namespace."""
        rows = await self.query("list_tables", namespace=namespace)
        return [TableRow.from_row(row) for row in rows]

    async def find(self, name: str) -> TableRow | None:
        """Return a table's row by name; None if no table has this name."""
        rows = await self.query("table_by_name", live_name=live_name(*split_table_name(name)))
        return TableRow.from_row(rows[0]) if rows else None

    async def resolve(self, name: str) -> TableRow:
        """Return a table's row; the error for an unknown name suggests a similar one."""
        found = await self.find(name)
        if found is not None:
            return found
        return await self._worker.run(self._catalog.resolve, name, fresh=True)

    async def snapshot(self, table: TableRow, version: int | None = None) -> Snapshot:
        """Return a snapshot of the table at `version`, by default at the latest version."""
        if version is None:
            rows = await self.query("read_head", table_id=table.table_id)
        else:
            rows = await self.query("head_at_version", table_id=table.table_id, version=version)
        heads = [Head(*row) for row in rows]
        if not heads or (version is None and heads[0].live_name is None):
            return await self._worker.run(self._open, table, version)
        return Snapshot(self._catalog.store, table, self._catalog.cache, heads[0])

    async def history(self, table: TableRow, limit: int | None = None) -> list[VersionRow]:
        """Return the latest `limit` commits, or all commits; each statement reads one page."""
        last = (await self.snapshot(table)).version
        remaining = last + 1 if limit is None else limit
        found: list[VersionRow] = []
        while remaining > 0 and last >= 0:
            rows = await self.query(
                "history",
                table_id=table.table_id,
                first=0,
                last=last,
                limit=min(remaining, HISTORY_PAGE),
            )
            if not rows:
                break
            found += [VersionRow.from_row(row) for row in rows]
            remaining -= len(rows)
            last = rows[-1][0] - 1
        return found

    async def files(self, table: TableRow, version: int | None = None) -> pa.Table:
        """Return the live files as an Arrow table."""
        snapshot = await self.snapshot(table, version)
        if self._native is None or snapshot.next_file_id > _FEW_FILES:
            return await self._worker.run(snapshot.files)
        rows = await self._native.query(
            "files_all",
            table_id=table.table_id,
            version=snapshot.version,
            first_file_id=0,
            next_file_id=snapshot.next_file_id,
        )
        if not rows:  # statements return no files of an expired version
            await self._worker.run(snapshot.check_not_expired)
        return to_arrow(from_rows(rows, "files_all"))

    def _open(self, table: TableRow, version: int | None) -> Snapshot:
        return open_snapshot(self._catalog.store, table, self._catalog.cache, version=version)
