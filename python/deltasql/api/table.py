"""A table of a catalog: open it at any version, list its files, read its history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.snapshot.snapshot import Snapshot, open_snapshot
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.snapshot.scan import Scan
    from deltasql.store.records import TableRow, VersionRow


class CatalogTable:
    """A live table; nothing is read before it is asked for."""

    def __init__(self, catalog: Catalog, row: TableRow) -> None:
        self.catalog, self.row = catalog, row

    def __repr__(self) -> str:
        return f"CatalogTable({self.full_name!r}, location={self.location!r})"

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def namespace(self) -> str:
        return self.row.namespace

    @property
    def full_name(self) -> str:
        """The name as `catalog.table` takes it."""
        return join_table_name(self.row.namespace, self.row.name)

    @property
    def location(self) -> str:
        """Where the data files and the mirrored `_delta_log` are."""
        return self.row.location

    @property
    def is_following(self) -> bool:
        """Whether it only follows a log that others write, so that SQL may not change it."""
        return self.row.is_following

    @property
    def uri(self) -> str:
        """The `deltasql://` URI of this table, with its password if it has one."""
        return self.catalog.uri.with_table(self.name, self.namespace).to_string()

    def snapshot(
        self, version: int | None = None, *, timestamp: datetime | None = None
    ) -> Snapshot:
        """Open the table at its head, at a version, or as it was at a moment."""
        catalog = self.catalog
        return open_snapshot(
            catalog.store, self.row, catalog.cache, version=version, timestamp=timestamp
        )

    def version(self) -> int:
        """Return the latest version."""
        return self.snapshot().version

    def files(self, version: int | None = None) -> pa.Table:
        """Return the live files as Arrow."""
        return self.snapshot(version).files()

    def scan(self, predicate: object = None, *, version: int | None = None) -> Scan:
        """Plan a read: the files that can match a predicate."""
        return self.snapshot(version).scan(predicate)

    def history(self, limit: int | None = None) -> list[VersionRow]:
        """Return commits, newest first."""
        return list(self.snapshot().history(limit))

    def describe(self) -> dict[str, Any]:
        """Return what is known of the table, as plain values."""
        snapshot = self.snapshot()
        totals = snapshot.totals()
        return {
            "name": self.full_name,
            "location": self.location,
            "version": snapshot.version,
            "committed_at": snapshot.committed_at,
            "schema": snapshot.schema.to_json(),
            "partition_columns": list(snapshot.partition_columns),
            "properties": dict(snapshot.metadata.configuration),
            "protocol": snapshot.protocol.body(),
            "description": snapshot.metadata.description,
            "num_files": totals.num_files,
            "size_bytes": totals.size_bytes,
            "num_records": totals.num_records,
        }
