"""ReadSide: location, schema, metadata, versions and history, in the form of deltalake."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import deltalake

from deltasql.api.deltalake_compat.handle.arguments import check_text_given, parse_moment, unsigned
from deltasql.api.deltalake_compat.handle.scan import ScanSide
from deltasql.exceptions import VersionNotFoundError
from deltasql.exceptions.prefixes import KERNEL_ERROR
from deltasql.model.reported_protocol import reported_properties
from deltasql.storage.location import location_url

if TYPE_CHECKING:
    from deltalake import Schema

    from deltasql.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class RawMetadata:
    """The metaData of a version, with the attributes of deltalake's RawDeltaTableMetaData."""

    id: str
    name: str | None
    description: str | None
    partition_columns: list[str]
    created_time: int | None
    configuration: dict[str, str]


class ReadSide(ScanSide):
    """The methods of deltalake's RawDeltaTable that read."""

    def table_uri(self) -> str:
        """Return the table's location as a URL that ends with a slash."""
        return location_url(self.row.location) + "/"

    # Schema and metadata

    @property
    def schema(self) -> Schema:
        """The schema as a deltalake Schema."""
        return deltalake.Schema.from_json(self.snapshot.metadata.schema_string)

    def metadata(self) -> RawMetadata:
        """Return name, description, partition columns and properties."""
        found = self.snapshot.metadata
        return RawMetadata(
            id=found.id,
            name=found.name,
            description=found.description,
            partition_columns=list(found.partition_columns),
            created_time=found.created_time,
            configuration=reported_properties(found.configuration),
        )

    def protocol_versions(self) -> tuple[int, int, list[str] | None, list[str] | None]:
        """Return the reader and the writer version, then the writer and the reader features.

        In-commit timestamps are left out: they matter only for readers of the published log.
        """
        found = self.reported_protocol()
        return (
            found.min_reader_version,
            found.min_writer_version,
            None if found.writer_features is None else list(found.writer_features),
            None if found.reader_features is None else list(found.reader_features),
        )

    def table_config(self) -> tuple[bool, int, bool]:
        """Return the default values of options that deltalake removed."""
        return False, 4 * (os.cpu_count() or 1), False

    # Versions

    def version(self) -> int:
        """Return the version of the current snapshot."""
        return self.snapshot.version

    def get_latest_version(self) -> int:
        """Return the latest version of the table."""
        return self._open().version

    def load_version(self, version: int) -> None:
        """Change the snapshot to another version."""
        self.snapshot = self.at_version(version)

    def at_version(self, version: int) -> Snapshot:
        """Return a snapshot of a version; the error for a missing version is deltalake's."""
        wanted = unsigned(version)
        try:
            return self._open(wanted)
        except VersionNotFoundError as error:
            raise VersionNotFoundError(
                f"Requested snapshot version {wanted} is not available: {error.message}",
                table=self.name,
                version=wanted,
                latest=error.latest,
                prefix=KERNEL_ERROR,
            ) from error

    def load_with_datetime(self, ds: str) -> None:
        """Change the snapshot to the version at a timestamp, as `at_moment` does."""
        self.snapshot = self.at_moment(parse_moment(ds))

    def at_moment(self, moment: datetime) -> Snapshot:
        """Return a snapshot at a timestamp; before the first commit, of the first version."""
        try:
            return self._open(timestamp=moment)
        except VersionNotFoundError:
            store = self.catalog.store
            first, _ = store.query("version_bounds", table_id=self.row.table_id)[0]
            return self._open(first)

    def update_incremental(self) -> None:
        """Change the snapshot to the latest version."""
        self.snapshot = self._open()

    # History

    def history(self, limit: int | None = None) -> tuple[int, list[str]]:
        """Return the current version, and the commitInfo of commits, newest first."""
        wanted = None if limit is None else unsigned(limit)
        commits = [
            json.dumps(row.info.body(), separators=(",", ":"), ensure_ascii=False)
            for row in self.snapshot.history(wanted)
        ]
        return self.snapshot.version, commits

    def transaction_version(self, app_id: str) -> int | None:
        """Return the last transaction version that an application committed; None if none."""
        check_text_given(app_id)
        return self.snapshot.transaction_version(app_id)
