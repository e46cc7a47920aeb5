"""Commits that happened: as they were written, or as they are found again by their id."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltasql.store.records import Commit, OneFile, TableRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltasql.commit.staged import Staged
    from deltasql.mirror.foreseen import Foreseen
    from deltasql.store.dialect import Appended, Row

    Foresee = Callable[[Commit], Foreseen | None]


@dataclass(frozen=True, slots=True)
class Ratified:
    """One table's part of a commit that happened."""

    table: TableRow
    version: int
    committed_at_ms: int
    commit: Commit | None = None  # what was written; None when it was only looked up
    foreseen: Foreseen | None = None  # its log files, where they were made on the way
    further_targets: int | None = None  # beside the table's own log; None when nobody looked


@dataclass(slots=True)
class Foresight:
    """What an append becomes if nobody comes before it, made while the database decides."""

    one: OneFile
    foresee: Foresee | None
    commit: Commit | None = None
    foreseen: Foreseen | None = None

    def look(self) -> None:
        """Take it that the version after the one we saw is ours, at the time we say."""
        read_version = self.one.info.read_version
        if self.foresee is None or read_version is None:
            return
        self.commit = _commit_of(self.one, read_version + 1, self.one.now_ms)
        self.foreseen = self.foresee(self.commit)

    def confirmed(self, done: Appended) -> Ratified:
        """Return what became of the append."""
        version, committed_at_ms, further_targets = done
        commit, foreseen = self.commit, self.foreseen
        if commit is None or commit.version != version or commit.committed_at_ms != committed_at_ms:
            commit, foreseen = _commit_of(self.one, version, committed_at_ms), None
        return Ratified(self.one.table, version, committed_at_ms, commit, foreseen, further_targets)


def _commit_of(one: OneFile, version: int, committed_at_ms: int) -> Commit:
    """Return the blind append of one file, as the database completes it."""
    info = replace(
        one.info,
        timestamp=committed_at_ms,
        in_commit_timestamp=committed_at_ms if one.in_commit_timestamps else None,
    )
    return Commit(
        table=one.table,
        head=None,
        version=version,
        committed_at_ms=committed_at_ms,
        txn_id=one.txn_id,
        group_size=1,
        info=info,
        adds=[one.add],
        partition_columns=one.partition_columns,
        replaces_nothing=True,
    )


def already_ratified(
    query: Callable[..., list[Row]], staged: Sequence[Staged], txn_id: str
) -> list[Ratified] | None:
    """Look for our own commit."""
    rows = query("group_members", txn_id=txn_id)
    if not rows:
        return None
    # By the table's own id: its name may be another by now.
    by_uuid = {table_uuid: found for table_uuid, *found in rows}
    out = []
    for each in staged:
        table_id, version, committed_at_ms = by_uuid[each.table.table_uuid]
        out.append(Ratified(replace(each.table, table_id=table_id), version, committed_at_ms))
    return out
