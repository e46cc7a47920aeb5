"""ScanSide: read the rows of a version with the engine, or from the published log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arro3.core import RecordBatchReader
from deltalake._internal import RawDeltaTable

from deltasql.api.deltalake_compat.handle.arguments import check_list, check_texts
from deltasql.api.deltalake_compat.handle.files import FilesSide
from deltasql.exceptions import TxnLogMirrorError
from deltasql.mirror.publish.targets import OWN
from deltasql.storage.location import location_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


class ScanSide(FilesSide):
    """The methods of the raw table that read rows."""

    def scan(
        self, columns: list[str] | None = None, predicate: str | None = None
    ) -> RecordBatchReader:
        """Stream the rows that match a predicate, or all rows."""
        check_list(columns)
        check_texts(predicate)
        return RecordBatchReader.from_arrow(self.read(columns, predicate))

    def read(
        self,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        *,
        files: pa.Table | None = None,
        views: bool = True,
    ) -> pa.RecordBatchReader:
        """Stream the rows that match a predicate, from `files` or from all files that can match.

        With `views`, strings and binary values have the view types of deltalake's scan.
        """
        from deltasql.api.deltalake_compat.handle.rows import read_rows  # late: it parses SQL

        return read_rows(self, columns, predicate, files=files, views=views)

    # The published log

    def published(self) -> RawDeltaTable:
        """Return this version as a table that deltalake opened; publish the version if needed."""
        mirror = self.catalog.mirror
        if not self.is_published():
            if mirror.mode == "off":
                raise TxnLogMirrorError(
                    f"version {self.snapshot.version} of {self.name} is not published, "
                    "and the mirror is off",
                    table=self.name,
                    version=self.snapshot.version,
                    help="Publish with catalog.mirror.publish(), or read with scan().",
                )
            mirror.publish(self.name)
        location = self.row.location
        return RawDeltaTable(
            location_url(location),
            version=self.snapshot.version,
            storage_options=self.storage_options(),
        )

    def is_published(self) -> bool:
        """Return whether this version is published at the table's own location."""
        told = self.catalog.mirror.status(self.name, files=False)
        found = [each for each in told if each.target == OWN]
        return bool(found) and found[0].published_version >= self.snapshot.version

    def storage_options(self) -> dict[str, str]:
        """Return the storage options of the table, secrets included: pass them to drivers only."""
        return self.catalog.config.storage.plain_options(self.row.location)

    def __datafusion_table_provider__(self, session: Any | None = None) -> Any:
        """Return DataFusion's table provider for the published table."""
        return self.published().__datafusion_table_provider__(session)
