"""The streaming source of `format("deltasql")`: first a snapshot, then one version after another.

An offset records what the stream has returned: everything before its version, and the first
`index` files of that version or of its snapshot. A version of a change feed is never split. An
offset identifies the table by its id. The files of a version always have the same order, so that a
batch has the same rows if Spark repeats it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from deltasql.api.catalog.connect import connect
from deltasql.exceptions import (
    TableChangedError,
    TxnLogConfigError,
    TxnLogSchemaError,
    VersionNotFoundError,
)
from deltasql.model.clock import to_ms
from deltasql.model.schema.schema import StructType
from deltasql.operations.changes.log import (
    ChangeLog,
    VersionChanges,
    changed_files,
    physical_partitioning,
)
from deltasql.spark.source.read import Reading, change_parts
from deltasql.spark.source.stream_rules import Offset, StreamRules, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    import pyarrow as pa

    from deltasql.api.catalog.base import CatalogTable
    from deltasql.api.catalog.catalog import Catalog
    from deltasql.operations.changes.log import ChangedFile
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.spark.source.options import SourceOptions

_QUIET_VERSIONS = 100
_LIMITS = ("maxFilesPerTrigger", "maxBytesPerTrigger")


@dataclass(slots=True)
class Budget:
    """The size limits of one batch; a batch contains at least one group of files."""

    files: int | None
    size: int | None
    taken: int = 0

    def takes(self, files: int, size: int) -> bool:
        """Add a group of files if it fits or the batch is empty; return whether it was added."""
        over = (self.files is not None and files > self.files) or (
            self.size is not None and size > self.size
        )
        if over and self.taken:
            return False
        self.taken += files
        self.files = None if self.files is None else max(0, self.files - files)
        self.size = None if self.size is None else max(0, self.size - size)
        return True


class TableStream(DataSourceStreamReader):
    """Plans batches on the driver; workers read them with `reading`."""

    def __init__(self, options: SourceOptions, reading: Reading, version: int) -> None:
        self.options, self.reading, self.version = options, reading, version
        self.rules = StreamRules.of(options)
        self._opened: Catalog | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark sends this to workers, so leave out the connection and the URI of the database.
        return {"reading": self.reading}

    # Offsets and batches

    def initialOffset(self) -> dict[str, Any]:
        head = self._snapshot()
        start = self.rules.start(head, self._version_at)
        if start is not None and start.version < (first := self._log().bounds()[0]):
            raise VersionNotFoundError(
                f"the changes of version {start.version} are not in the log of "
                f"{head.table.full_name}",
                table=head.table.full_name,
                version=start.version,
                help=f"Start at version {first} or later, or leave out the start to begin with a "
                "snapshot.",
            )
        return asdict(start or Offset(head.table.table_uuid, head.version, 0, initial=True))

    def _after_head(self) -> dict[str, Any]:
        """Return the offset after the latest version."""
        head = self._snapshot()
        return asdict(Offset(head.table.table_uuid, head.version).after())

    def _next_offset(
        self, start: dict[str, Any], budget: Budget, last: int | None
    ) -> dict[str, Any]:
        """Return the end of the batch that begins at `start`, up to the version `last`."""
        at, head = Offset(**start), self._snapshot()
        self._check_table(at, head)
        if at.initial:
            for file in self._snapshot_files(at.version)[at.index :]:
                if not budget.takes(1, file.size):
                    return asdict(at)
                at = replace(at, index=at.index + 1)
            at = at.after()
        last = head.version if last is None else min(head.version, last)
        changed = self._columns_change(at.version, last)
        until = last if changed is None else changed - 1
        for changes in self._log().versions(at.version, until):
            steps = self.rules.steps(changes)
            for files in steps[at.index :]:
                if not budget.takes(len(files), sum(file.size for file in files)):
                    return asdict(at)
                at = replace(at, index=at.index + 1)
            at = at.after()
        if budget.taken:
            return asdict(at)
        if changed is not None:
            raise self._other_columns(changed)
        # Versions without rows make no batch, unless reading them again each time would be slow.
        return start if at.version - start["version"] <= _QUIET_VERSIONS else asdict(at)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begins, ends = Offset(**start), Offset(**end)
        for offset in (begins, ends):
            self._check_table(offset, self._snapshot())
        versions = list(self._between(begins, ends))
        self._log().require(versions, ends.version)
        return change_parts(versions)

    def _between(self, begins: Offset, ends: Offset) -> Iterator[VersionChanges]:
        first, skipped = begins.version, begins.index
        if begins.initial:
            until = ends.index if ends.initial else None
            files = self._snapshot_files(begins.version)[begins.index : until]
            yield self._inserted(begins.version, files)
            first, skipped = begins.version + 1, 0
        if ends.initial:
            return
        last = ends.version if ends.index else ends.version - 1
        for changes in self._log().versions(first, last):
            step_from = skipped if changes.version == first else 0
            step_to = ends.index if changes.version == ends.version else None
            yield from self.rules.chosen(changes, step_from, step_to)

    # Read and stop

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.reading.read(partition)

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # The table

    def _catalog(self) -> Catalog:
        if self._opened is None:
            self._opened = connect(self.options.table(), self.reading.config)
        return self._opened

    def _table(self) -> CatalogTable:
        return self._catalog().table(str(self.options.table().table_name))

    def _snapshot(self, version: int | None = None) -> Snapshot:
        return self._table().snapshot(version)

    def _log(self) -> ChangeLog:
        return ChangeLog(self._catalog().store, self._table().row, self.reading.config.storage)

    def _snapshot_files(self, version: int) -> list[ChangedFile]:
        return changed_files(self._snapshot(version).scan().arrow, may_be_gone=True)

    def _inserted(self, version: int, files: list[ChangedFile]) -> VersionChanges:
        snapshot = self._snapshot(version)
        return VersionChanges(
            version,
            snapshot.committed_at_ms,
            partitioned_by=physical_partitioning(snapshot.metadata),
            added=files,
        )

    def _version_at(self, timestamp: datetime) -> int:
        """Return the first version that was committed at or after a timestamp."""
        head = self._snapshot()
        at_ms = to_ms(timestamp)
        if head.committed_at_ms < at_ms:
            raise VersionNotFoundError(
                f"{head.table.full_name} has no version that was committed at "
                f"{timestamp.isoformat()} or later",
                table=head.table.full_name,
                latest=head.version,
                help="Give an earlier startingTimestamp, or startingVersion 'latest'.",
            )
        store, table_id = self._catalog().store, head.table.table_id
        rows = store.query("head_at_time", table_id=table_id, timestamp_ms=at_ms - 1)
        return int(rows[0][1]) + 1 if rows else self._log().bounds()[0]

    def _check_table(self, offset: Offset, head: Snapshot) -> None:
        if offset.table != head.table.table_uuid:
            raise TableChangedError(
                f"the checkpoint belongs to an earlier table with the name {head.table.full_name}",
                table=head.table.full_name,
                help="Another table has this name now: use a new checkpoint.",
            )

    def _columns_change(self, first: int, last: int) -> int | None:
        """Return the first version whose columns differ from those of the stream, or None."""
        own = columns_of(self.reading.state.schema)
        for version, metadata in self._log().metadata_between(max(first, self.version + 1), last):
            if columns_of(StructType.from_json(metadata.schema_string)) != own:
                return version
        return None

    def _other_columns(self, version: int) -> TxnLogSchemaError:
        table = self.reading.state.table.full_name
        return TxnLogSchemaError(
            f"version {version} changed the columns of {table}",
            table=table,
            help="Load the stream again with the same checkpoint to continue with the new columns.",
        )


class UnlimitedStream(TableStream):
    """A stream for PySpark 4.0 and 4.1, which do not tell a source where a batch begins.

    A batch therefore contains everything up to the latest version.
    """

    def __init__(self, options: SourceOptions, reading: Reading, version: int) -> None:
        super().__init__(options, reading, version)
        self._stopped_at: int | None = None
        given = next((name for name in _LIMITS if options.text(name) is not None), None)
        if given is not None:
            raise TxnLogConfigError(
                f"the option {given} needs PySpark 4.2 or newer",
                key=given,
                help=f"Leave out {given}: a batch then contains all new rows.",
            )

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        found = self._after_head()
        changed = self._columns_change(self.version + 1, found["version"] - 1)
        if changed is None:
            return found
        # Spark asks again only after it has read everything before the change.
        if self._stopped_at == changed:
            raise self._other_columns(changed)
        self._stopped_at = changed
        return {**found, "version": changed}
