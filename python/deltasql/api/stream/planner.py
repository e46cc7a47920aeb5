"""Plans the micro-batches of a stream: first a snapshot, then one version after another.

An offset records what the stream has returned: everything before its version, and the first
`index` files of that version or of its snapshot. A version of a change feed is never split. An
offset identifies the table by its id. The files of a version always have the same order, so that a
batch has the same rows if Spark repeats it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltasql.api.stream.rules import Offset, StreamRules, columns_of
from deltasql.exceptions import TableChangedError, TxnLogSchemaError, VersionNotFoundError
from deltasql.model.clock import to_ms
from deltasql.model.schema.schema import StructType
from deltasql.operations.changes.log import (
    ChangeLog,
    VersionChanges,
    changed_files,
    physical_partitioning,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from deltasql.api.catalog.base import BaseCatalog, CatalogTable
    from deltasql.operations.changes.log import ChangedFile
    from deltasql.snapshot.snapshot import Snapshot

_QUIET_VERSIONS = 100
MAX_FILES = 1000
"""The maximum number of files in a batch if no option limits it."""


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


class StreamPlanner:
    """Finds the offsets and the files of a stream that reads one table."""

    def __init__(
        self,
        catalog: BaseCatalog,
        name: str,
        rules: StreamRules,
        *,
        schema: StructType,
        version: int,
    ) -> None:
        """`schema` has the columns of the stream, which the table has at `version`."""
        self._catalog, self._name, self.rules = catalog, name, rules
        self._columns, self._version = columns_of(schema), version

    # Offsets

    def initial_offset(self) -> Offset:
        """Return the offset at which a new stream starts."""
        head = self._snapshot()
        start = self.rules.start(head, self._version_at)
        if start is not None:
            self._log().require_start(
                start.version, ", or leave out the start to begin with a snapshot"
            )
        return start or Offset(head.table.table_uuid, head.version, 0, initial=True)

    def latest_version(self) -> int:
        """Return the latest version of the table."""
        return self._snapshot().version

    def after_head(self) -> Offset:
        """Return the offset after the latest version."""
        head = self._snapshot()
        return Offset(head.table.table_uuid, head.version).after()

    def next_offset(self, start: Offset, budget: Budget, last: int | None) -> Offset:
        """Return the end of the batch that begins at `start`, up to the version `last`."""
        at, head = start, self._snapshot()
        self._check_table(at, head)
        last = head.version if last is None else min(head.version, last)
        changed = self.columns_change(at.version, last)
        if at.initial:
            if changed is not None and changed <= at.version:
                raise self.other_columns_error(changed)
            for file in self._snapshot_files(at.version)[at.index :]:
                if not budget.takes(1, file.size):
                    return at
                at = replace(at, index=at.index + 1)
            at = at.after()
        until = last if changed is None else changed - 1
        for changes in self._log().versions(at.version, until):
            steps = self.rules.steps(changes)
            for files in steps[at.index :]:
                if not budget.takes(len(files), sum(file.size for file in files)):
                    return at
                at = replace(at, index=at.index + 1)
            at = at.after()
        if budget.taken:
            return at
        if changed is not None:
            raise self.other_columns_error(changed)
        # Versions without rows need no batch. After many of them, return an empty batch anyway, so
        # that the next call does not read them again.
        return start if at.version - start.version <= _QUIET_VERSIONS else at

    # Batches

    def batch(self, begins: Offset, ends: Offset) -> list[VersionChanges]:
        """Return the files of a batch by version; raise if some of them were deleted."""
        for offset in (begins, ends):
            self._check_table(offset, self._snapshot())
        versions = list(self._between(begins, ends))
        self._log().require(versions, ends.version)
        return versions

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

    # Columns

    def columns_change(self, first: int, last: int) -> int | None:
        """Return the first version whose columns differ from those of the stream, or None.

        The columns at `first` are compared, even if an earlier version defined them, and then every
        change up to `last`.
        """
        changed: int | None = None
        for version, metadata in self._log().metadata_between(self._version + 1, last):
            differs = columns_of(StructType.from_json(metadata.schema_string)) != self._columns
            if version <= first:
                changed = version if differs else None
            elif differs and changed is None:
                changed = version
        return changed

    def other_columns_error(self, version: int) -> TxnLogSchemaError:
        """Return the error for a version that changed the columns."""
        table = self._table().full_name
        return TxnLogSchemaError(
            f"version {version} changed the columns of {table}",
            table=table,
            help="Load the stream again with the same checkpoint to continue with the new columns.",
        )

    # The table

    def _table(self) -> CatalogTable:
        return self._catalog.table(self._name)

    def _snapshot(self, version: int | None = None) -> Snapshot:
        return self._table().snapshot(version)

    def _log(self) -> ChangeLog:
        return ChangeLog(self._catalog.store, self._table().row, self._catalog.config.storage)

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
        store, table_id = self._catalog.store, head.table.table_id
        rows = store.query("head_at_time", table_id=table_id, timestamp_ms=at_ms - 1)
        return int(rows[0][1]) + 1 if rows else self._log().bounds()[0]

    def _check_table(self, offset: Offset, head: Snapshot) -> None:
        if offset.table != head.table.table_uuid:
            raise TableChangedError(
                f"the checkpoint belongs to an earlier table with the name {head.table.full_name}",
                table=head.table.full_name,
                help="Another table has this name now: use a new checkpoint.",
            )
