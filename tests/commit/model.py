"""A model of the log in memory: the expected result of any sequence of commits."""

from __future__ import annotations

from dataclasses import dataclass, field

from deltasql.exceptions import (
    CommitConflictError,
    ConcurrentDeleteDeleteError,
    ConcurrentTransactionError,
    MetadataChangedError,
)


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of one commit to one table."""

    adds: frozenset[str] = frozenset()
    removes: frozenset[str] = frozenset()
    columns: tuple[str, ...] | None = None
    comment: str | None = None  # a table property
    apps: tuple[tuple[str, int], ...] = ()

    @property
    def changes_metadata(self) -> bool:
        return self.columns is not None or self.comment is not None


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a table: its change and the resulting state."""

    change: Change
    txn_id: str
    live: frozenset[str]
    columns: tuple[str, ...]
    comment: str | None
    apps: dict[str, int]


@dataclass(slots=True)
class ModelTable:
    """A table with all its versions."""

    name: str
    versions: list[Version] = field(default_factory=list)

    @property
    def head(self) -> Version:
        return self.versions[-1]

    @property
    def removed_paths(self) -> frozenset[str]:
        """Paths that were live once and are removed now."""
        ever = frozenset(path for version in self.versions for path in version.change.adds)
        return ever - self.head.live

    def create(self, columns: tuple[str, ...], txn_id: str, change: Change) -> None:
        self.versions = [Version(change, txn_id, change.adds, columns, None, dict(change.apps))]

    def apply(self, change: Change, txn_id: str) -> None:
        """Append a version with this change."""
        head = self.head
        self.versions.append(
            Version(
                change,
                txn_id,
                head.live - change.removes | change.adds,
                change.columns or head.columns,
                change.comment or head.comment,
                {**head.apps, **dict(change.apps)},
            )
        )

    def conflict(self, change: Change, read_version: int) -> type[CommitConflictError] | None:
        """Return the conflict that a change based on an older version must raise, or None."""
        apps = dict(change.apps)
        for winner in self.versions[read_version + 1 :]:
            if winner.change.changes_metadata:
                return MetadataChangedError
            if change.removes & winner.change.removes:
                return ConcurrentDeleteDeleteError
            if apps.keys() & dict(winner.change.apps).keys():
                return ConcurrentTransactionError
        return None
