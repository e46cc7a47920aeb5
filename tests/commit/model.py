"""The log as a few lists in memory: what any sequence of commits must lead to."""

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
    """What one commit does to one table."""

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
    """One version of a table: the change that made it and the state it left."""

    change: Change
    txn_id: str
    live: frozenset[str]
    columns: tuple[str, ...]
    comment: str | None
    apps: dict[str, int]


@dataclass(slots=True)
class ModelTable:
    """A table and every version it ever had."""

    name: str
    versions: list[Version] = field(default_factory=list)

    @property
    def head(self) -> Version:
        return self.versions[-1]

    @property
    def dead(self) -> frozenset[str]:
        """Paths that lived once."""
        ever = frozenset(path for version in self.versions for path in version.change.adds)
        return ever - self.head.live

    def create(self, columns: tuple[str, ...], txn_id: str, change: Change) -> None:
        self.versions = [Version(change, txn_id, change.adds, columns, None, dict(change.apps))]

    def apply(self, change: Change, txn_id: str) -> None:
        """Put a change on top."""
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
        """Return the error a change computed from an older version must meet, if any."""
        apps = dict(change.apps)
        for winner in self.versions[read_version + 1 :]:
            if winner.change.changes_metadata:
                return MetadataChangedError
            if change.removes & winner.change.removes:
                return ConcurrentDeleteDeleteError
            if apps.keys() & dict(winner.change.apps).keys():
                return ConcurrentTransactionError
        return None
