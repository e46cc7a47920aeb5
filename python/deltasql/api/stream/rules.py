"""The rules of a stream: which files of a version it returns, and when it raises an error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltasql.engine.spark.schema import plain_field
from deltasql.exceptions import TxnLogConfigError, TxnLogEngineError, VersionNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from deltasql.api.stream.options import TextOptions
    from deltasql.model.schema.schema import StructField, StructType
    from deltasql.operations.changes.log import ChangedFile, VersionChanges
    from deltasql.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Offset:
    """The position of a stream: the next file to return."""

    table: str
    version: int
    index: int = 0
    initial: bool = False
    """Whether `index` counts the files of the snapshot, not those that the version added."""

    def after(self) -> Offset:
        """Return the offset at the start of the next version."""
        return Offset(self.table, self.version + 1)


@dataclass(frozen=True, slots=True)
class StreamRules:
    """The options of a stream."""

    changes: bool
    """Whether the stream returns a change feed, with deletes and updates."""
    ignore_deletes: bool
    ignore_changes: bool
    skip_change_commits: bool
    version: int | None
    latest: bool
    timestamp: datetime | None

    @classmethod
    def of(cls, options: TextOptions) -> StreamRules:
        """Read the options, and raise if they cannot be combined."""
        for name in ("versionAsOf", "timestampAsOf", "endingVersion"):
            if options.text(name) is not None:
                raise TxnLogConfigError(
                    f"a stream does not accept {name}, because a stream has no end",
                    key=name,
                    help="Use startingVersion or startingTimestamp, or spark.read.",
                )
        latest = (options.text("startingVersion") or "").strip().lower() == "latest"
        timestamp = options.timestamp("startingTimestamp")
        if timestamp is not None and options.text("startingVersion") is not None:
            raise TxnLogConfigError(
                "startingVersion and startingTimestamp cannot be used together",
                key="startingTimestamp",
                help="Leave out one of them.",
            )
        return cls(
            changes=options.flag("readChangeFeed"),
            ignore_deletes=options.flag("ignoreDeletes"),
            ignore_changes=options.flag("ignoreChanges"),
            skip_change_commits=options.flag("skipChangeCommits"),
            version=None if latest else options.number("startingVersion"),
            latest=latest,
            timestamp=timestamp,
        )

    def start(self, head: Snapshot, version_at: Callable[[datetime], int]) -> Offset | None:
        """Return the first offset of a new stream, or None if the stream starts with a snapshot."""
        table = head.table
        if self.latest:
            return Offset(table.table_uuid, head.version + 1)
        if self.timestamp is not None:
            return Offset(table.table_uuid, version_at(self.timestamp))
        if self.version is None:
            return None
        if self.version > head.version + 1:
            raise VersionNotFoundError(
                f"{table.full_name} has no version {self.version} yet: the latest is "
                f"{head.version}",
                table=table.full_name,
                version=self.version,
                latest=head.version,
            )
        return Offset(table.table_uuid, self.version)

    def steps(self, changes: VersionChanges) -> list[list[ChangedFile]]:
        """Return the files of a version in steps; a batch can end between two steps."""
        if self.changes:
            files = changes.files()
            return [files] if files else []
        return [[file] for file in self._appended(changes)]

    def chosen(
        self, changes: VersionChanges, first: int, last: int | None
    ) -> Iterator[VersionChanges]:
        """Yield the changes in the steps from `first` up to the one before `last`."""
        steps = self.steps(changes)[first:last]
        if not steps:
            return
        if self.changes:
            yield changes
        else:
            added = [file for step in steps for file in step]
            yield replace(changes, added=added, removed=[], change_data=[])

    def _appended(self, changes: VersionChanges) -> list[ChangedFile]:
        """Return the files that a version added; raise if it removed files, unless allowed."""
        if not changes.removed:
            return changes.added
        if self.skip_change_commits:
            return []
        if not changes.added:
            if self.ignore_deletes or self.ignore_changes:
                return []
            raise self._not_an_append(changes, "deleted rows", "ignoreDeletes")
        if self.ignore_changes:
            return changes.added
        raise self._not_an_append(changes, "changed rows", "ignoreChanges")

    def _not_an_append(self, changes: VersionChanges, did: str, option: str) -> TxnLogEngineError:
        repeated = " (it repeats rows of rewritten files)" if option == "ignoreChanges" else ""
        return TxnLogEngineError(
            f"version {changes.version} {did}, but this stream accepts only appends",
            engine="spark",
            help=f"Set {option} to continue{repeated}, skipChangeCommits to skip such versions, or "
            "readChangeFeed to get the changes.",
        )


def columns_of(schema: StructType) -> list[StructField]:
    """Return the names and types of the columns, which must not change during a stream."""
    return [plain_field(field, None) for field in schema.fields]
