"""What a handle tells of its table: where it is, what it is, how it came to be."""

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
    """The reading half of deltalake's RawDeltaTable."""

    def table_uri(self) -> str:
        """Return the physical place as a URL, with a slash at its end."""
        return location_url(self.row.location) + "/"

    # What it is

    @property
    def schema(self) -> Schema:
        """The schema as deltalake's own class."""
        return deltalake.Schema.from_json(self.snapshot.metadata.schema_string)

    def metadata(self) -> RawMetadata:
        """Return name, partitioning and properties."""
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
        """Return reader and writer version, then the features of writers and of readers.

        In-commit timestamps are left out: they concern who reads the published log.
        """
        found = self.reported_protocol()
        return (
            found.min_reader_version,
            found.min_writer_version,
            None if found.writer_features is None else list(found.writer_features),
            None if found.reader_features is None else list(found.reader_features),
        )

    def table_config(self) -> tuple[bool, int, bool]:
        """Return the defaults of options that are no more."""
        return False, 4 * (os.cpu_count() or 1), False

    # Which version it is

    def version(self) -> int:
        """Return the version this handle looks at."""
        return self.snapshot.version

    def get_latest_version(self) -> int:
        """Return the latest version there is."""
        return self._open().version

    def load_version(self, version: int) -> None:
        """Look at another version."""
        self.snapshot = self.at_version(version)

    def at_version(self, version: int) -> Snapshot:
        """Return another version of this table."""
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
        """Look at the version of a moment; before the first commit that is the first one."""
        self.snapshot = self.at_moment(parse_moment(ds))

    def at_moment(self, moment: datetime) -> Snapshot:
        """Return the version of a moment, the first one for any moment before it."""
        try:
            return self._open(timestamp=moment)
        except VersionNotFoundError:
            store = self.catalog.store
            first, _ = store.query("version_bounds", table_id=self.row.table_id)[0]
            return self._open(first)

    def update_incremental(self) -> None:
        """Look at the latest version."""
        self.snapshot = self._open()

    # How it came to be

    def history(self, limit: int | None = None) -> tuple[int, list[str]]:
        """Return the version of the newest commit and the commitInfo of each, newest first."""
        wanted = None if limit is None else unsigned(limit)
        commits = [
            json.dumps(row.info.body(), separators=(",", ":"), ensure_ascii=False)
            for row in self.snapshot.history(wanted)
        ]
        return self.snapshot.version, commits

    def transaction_version(self, app_id: str) -> int | None:
        """Return the last version that an application committed."""
        check_text_given(app_id)
        return self.snapshot.transaction_version(app_id)
