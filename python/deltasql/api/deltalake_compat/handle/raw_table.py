"""RawTable: replaces deltalake's RawDeltaTable, which deltalake's DeltaTable class calls."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import deltalake
from arro3.core import RecordBatchReader

from deltasql import deltalake_internals
from deltasql.api.arguments import (
    check_sequence,
    check_text,
    check_texts,
    parse_timestamp,
    unsigned,
)
from deltasql.api.deltalake_compat.handle import alter, cdf, dml, maintenance
from deltasql.api.deltalake_compat.handle import files as file_lists
from deltasql.api.deltalake_compat.handle.open_table import OpenTable
from deltasql.exceptions import TxnLogMirrorError, VersionNotFoundError
from deltasql.exceptions.prefixes import KERNEL_ERROR
from deltasql.mirror.publish.targets import OWN
from deltasql.model.reported_protocol import reported_properties
from deltasql.storage.location import location_url

if TYPE_CHECKING:
    from deltalake import Schema


@dataclass(frozen=True, slots=True)
class RawMetadata:
    """The metaData of a version, with the attributes of deltalake's RawDeltaTableMetaData."""

    id: str
    name: str | None
    description: str | None
    partition_columns: list[str]
    created_time: int | None
    configuration: dict[str, str]


class RawTable(OpenTable):
    """A table at one version; its log is read from the database, and changes are committed there.

    The methods and their positional arguments are those of deltalake's RawDeltaTable. Methods that
    are only assigned here are functions of other modules that take the table as first argument.
    """

    # Location, schema and metadata

    def table_uri(self) -> str:
        """Return the table's location as a URL that ends with a slash."""
        return location_url(self.row.location) + "/"

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

        In-commit timestamps are left out, because they only matter to readers of the published log.
        """
        found = self.reported_protocol()
        return (
            found.min_reader_version,
            found.min_writer_version,
            None if found.writer_features is None else list(found.writer_features),
            None if found.reader_features is None else list(found.reader_features),
        )

    def table_config(self) -> tuple[Any, ...]:
        """Return the default values of options that deltalake removed."""
        return deltalake_internals.config_result((False, 4 * (os.cpu_count() or 1), False))

    # Versions and history

    def version(self) -> int:
        """Return the version of the current snapshot."""
        return self.snapshot.version

    def get_latest_version(self) -> int:
        """Return the latest version of the table."""
        return self.snapshot_at().version

    def load_version(self, version: int) -> None:
        """Load the snapshot of another version; raise deltalake's error if it does not exist."""
        wanted = unsigned(version)
        try:
            self.snapshot = self.snapshot_at(wanted)
        except VersionNotFoundError as error:
            raise VersionNotFoundError(
                f"Requested snapshot version {wanted} is not available: {error.message}",
                table=self.name,
                version=wanted,
                latest=error.latest,
                prefix=KERNEL_ERROR,
            ) from error

    def load_with_datetime(self, ds: str) -> None:
        """Load the snapshot at a timestamp; before the first commit, load the first version."""
        timestamp = parse_timestamp(ds)
        try:
            self.snapshot = self.snapshot_at(timestamp=timestamp)
        except VersionNotFoundError:
            store = self.catalog.store
            first, _ = store.query("version_bounds", table_id=self.row.table_id)[0]
            self.snapshot = self.snapshot_at(first)

    def update_incremental(self) -> None:
        """Load the snapshot of the latest version."""
        self.snapshot = self.snapshot_at()

    def history(self, limit: int | None = None) -> Any:
        """Return the commitInfo of commits, newest first.

        For deltalake 1.6.1 and newer, the result is a pair of the current version and this list.
        """
        wanted = None if limit is None else unsigned(limit)
        commits = [
            json.dumps(row.info.body(), separators=(",", ":"), ensure_ascii=False)
            for row in self.snapshot.history(wanted)
        ]
        return deltalake_internals.history_result(self.snapshot.version, commits)

    def transaction_version(self, app_id: str) -> int | None:
        """Return the last transaction version that an application committed, or None."""
        check_text(app_id)
        return self.snapshot.transaction_version(app_id)

    # Rows

    def scan(
        self, columns: list[str] | None = None, predicate: str | None = None
    ) -> RecordBatchReader:
        """Stream the rows that match a predicate, or all rows."""
        # lazy import: loads the SQL parser
        from deltasql.api.deltalake_compat.handle.scan import read_rows

        if columns is not None:
            check_sequence(columns, str)
        check_texts(predicate)
        return RecordBatchReader.from_arrow(read_rows(self, columns, predicate))

    load_cdf = cdf.load_cdf
    write = dml.write
    create_write_transaction = dml.create_write_transaction
    delete = dml.delete
    update = dml.update
    create_merge_builder = dml.create_merge_builder
    merge_execute = dml.merge_execute

    # Files

    def has_files(self) -> bool:
        """Return True: deltalake before 1.6.6 could open a table without its list of files."""
        return True

    files = file_lists.file_uris  # deltalake's `files` returns URIs, too
    file_uris = file_lists.file_uris
    get_add_file_sizes = file_lists.get_add_file_sizes
    get_active_partitions = file_lists.get_active_partitions
    get_add_actions = file_lists.get_add_actions
    dataset_partitions = file_lists.dataset_partitions
    deletion_vectors = file_lists.deletion_vectors
    get_num_index_cols = file_lists.get_num_index_cols
    get_stats_columns = file_lists.get_stats_columns

    # ALTER TABLE

    add_columns = alter.add_columns
    add_feature = alter.add_feature
    add_constraints = alter.add_constraints
    drop_constraints = alter.drop_constraints
    drop_column_not_null = alter.drop_column_not_null
    set_table_properties = alter.set_table_properties
    set_table_name = alter.set_table_name
    set_table_description = alter.set_table_description
    set_column_metadata = alter.set_column_metadata

    # Maintenance

    compact_optimize = maintenance.compact_optimize
    z_order_optimize = maintenance.z_order_optimize
    restore = maintenance.restore
    repair = maintenance.repair
    vacuum = maintenance.vacuum
    create_checkpoint = maintenance.create_checkpoint
    cleanup_metadata = maintenance.cleanup_metadata
    compact_logs = maintenance.compact_logs
    generate = maintenance.generate

    # The published log

    def published(self, purpose: str = "QueryBuilder") -> Any:
        """Open this version with deltalake; publish the version first if needed."""
        deltalake_internals.require(purpose)
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
        return deltalake_internals.open_raw_table(
            location_url(self.row.location),
            self.snapshot.version,
            self.storage_options(),
            purpose=purpose,
        )

    def is_published(self) -> bool:
        """Return whether this version is published at the table's own location."""
        targets = self.catalog.mirror.status(self.name, files=False)
        found = [each for each in targets if each.target == OWN]
        return bool(found) and found[0].published_version >= self.snapshot.version

    def __datafusion_table_provider__(self, session: Any | None = None) -> Any:
        """Return DataFusion's table provider for the published table."""
        raw = self.published("the table provider for DataFusion")
        return deltalake_internals.table_provider(raw, session)


deltalake_internals.reject_changed_methods(RawTable)
