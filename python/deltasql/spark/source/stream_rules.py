"""Which files of a version a stream hands out, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TxnLogConfigError, TxnLogEngineError, VersionNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql.model.schema.schema import StructType
    from deltasql.operations.changes.log import ChangedFile, VersionChanges
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.spark.source.options import SourceOptions


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a stream has come."""

    table: str
    version: int
    index: int = 0
    initial: bool = False
    """Whether the files are those of the snapshot, and not of what the version added."""

    def after(self) -> Offset:
        """Return the begin of the next version."""
        return Offset(self.table, self.version + 1)


@dataclass(frozen=True, slots=True)
class StreamRules:
    """What a user wants of a stream."""

    changes: bool
    """Whether deletes and updates are handed out as rows of a change feed."""
    ignore_deletes: bool
    ignore_changes: bool
    skip_change_commits: bool
    version: int | None
    latest: bool
    timestamp: Any

    @classmethod
    def of(cls, options: SourceOptions) -> StreamRules:
        """Read the options, and refuse those that do not go together."""
        for name in ("versionAsOf", "timestampAsOf", "endingVersion"):
            if options.text(name) is not None:
                raise TxnLogConfigError(
                    f"a stream has no {name}: it goes on",
                    key=name,
                    help="Use startingVersion or startingTimestamp, or spark.read.",
                )
        latest = (options.text("startingVersion") or "").strip().lower() == "latest"
        timestamp = options.moment("startingTimestamp")
        if timestamp is not None and options.text("startingVersion") is not None:
            raise TxnLogConfigError(
                "a stream begins at a version or at a moment, not at both",
                key="startingTimestamp",
                help="Give startingVersion or startingTimestamp.",
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

    def start(self, head: Snapshot, version_at: Callable[[Any], int]) -> Offset | None:
        """Return where a new stream begins; None: with a snapshot."""
        table = head.table
        if self.latest:
            return Offset(table.table_uuid, head.version + 1)
        if self.timestamp is not None:
            return Offset(table.table_uuid, version_at(self.timestamp))
        if self.version is None:
            return None
        if self.version > head.version + 1:
            raise VersionNotFoundError(
                f"{table.full_name} has no version {self.version} yet, it is at {head.version}",
                table=table.full_name,
                version=self.version,
                latest=head.version,
            )
        return Offset(table.table_uuid, self.version)

    def steps(self, changes: VersionChanges) -> list[list[ChangedFile]]:
        """Return what is handed out of a version, step by step; a batch ends between steps."""
        if self.changes:
            files = changes.files()
            return [files] if files else []
        return [[file] for file in self._appended(changes)]

    def chosen(
        self, changes: VersionChanges, first: int, last: int | None
    ) -> Iterator[VersionChanges]:
        """Yield what some steps of a version hand out."""
        steps = self.steps(changes)[first:last]
        if not steps:
            return
        if self.changes:
            yield changes
        else:
            added = [file for step in steps for file in step]
            yield replace(changes, added=added, removed=[], change_data=[])

    def _appended(self, changes: VersionChanges) -> list[ChangedFile]:
        """Return the new files of a version, or refuse what is no append."""
        if not changes.removed:
            return changes.added
        if self.skip_change_commits:
            return []
        if not changes.added:
            if self.ignore_deletes or self.ignore_changes:
                return []
            raise self._refused(changes, "deleted rows", "ignoreDeletes")
        if self.ignore_changes:
            return changes.added
        raise self._refused(changes, "changed rows", "ignoreChanges")

    def _refused(self, changes: VersionChanges, did: str, option: str) -> TxnLogEngineError:
        told = "; the rows of rewritten files come again" if option == "ignoreChanges" else ""
        return TxnLogEngineError(
            f"version {changes.version} {did}, and this stream takes appends only",
            engine="spark",
            help=f"Set {option} to go on{told}, skipChangeCommits to leave such versions out, or "
            "readChangeFeed to get the changes.",
        )


def columns_of(schema: StructType) -> list[tuple[str, str]]:
    """Return what has to stay the same for the rows of a stream."""
    from deltasql.engine.spark.schema import spark_type

    return [(field.name, spark_type(field.type).simpleString()) for field in schema.fields]
