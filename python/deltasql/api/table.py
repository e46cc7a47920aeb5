"""CatalogTable: snapshots, files and history of one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.snapshot.snapshot import Scan, Snapshot, open_snapshot
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.store.records import TableRow, VersionRow


class CatalogTable:
    """A table of a catalog. Each method reads from the database when it is called."""

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
        """The name for `catalog.table`: `sales`, or `crm.sales` in another namespace."""
        return join_table_name(self.row.namespace, self.row.name)

    @property
    def location(self) -> str:
        """The folder or bucket prefix of the data files and of the published `_delta_log`."""
        return self.row.location

    @property
    def is_following(self) -> bool:
        """Whether the authority of the table is its log, so that it is read-only here."""
        return self.row.is_following

    @property
    def uri(self) -> str:
        """The `deltasql://` URI of this table; it includes the password of the catalog's URI."""
        return self.catalog.uri.with_table(self.name, self.namespace).to_string()

    def snapshot(
        self, version: int | None = None, *, timestamp: datetime | None = None
    ) -> Snapshot:
        """Return the table at its latest version, at a version or at a timestamp."""
        catalog = self.catalog
        return open_snapshot(
            catalog.store, self.row, catalog.cache, version=version, timestamp=timestamp
        )

    def version(self) -> int:
        """Return the latest version."""
        return self.snapshot().version

    def files(self, version: int | None = None) -> pa.Table:
        """Return the live files as an Arrow table."""
        return self.snapshot(version).files()

    def scan(self, predicate: object = None, *, version: int | None = None) -> Scan:
        """Return the files that can contain rows that match a predicate."""
        return self.snapshot(version).scan(predicate)

    def history(self, limit: int | None = None) -> list[VersionRow]:
        """Return commits, newest first."""
        return list(self.snapshot().history(limit))

    def describe(self) -> dict[str, Any]:
        """Return location, version, schema, protocol and totals of the table."""
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
