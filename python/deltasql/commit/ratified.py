"""Commits that happened: as they were written, or as they are found again by their id."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltasql.store.records import Commit, OneFile, TableRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltasql.commit.staged import Staged
    from deltasql.mirror.foreseen import Foreseen
    from deltasql.store.dialect import Row

    Foresee = Callable[[Commit], Foreseen | None]


@dataclass(frozen=True, slots=True)
class Ratified:
    """One table's part of a commit that happened."""

    table: TableRow
    version: int
    committed_at_ms: int
    commit: Commit | None = None  # what was written; None when it was only looked up
    foreseen: Foreseen | None = None  # its log files, where they were made on the way


@dataclass(slots=True)
class Foresight:
    """What an append becomes if nobody comes before it, made while the database decides."""

    one: OneFile
    foresee: Foresee | None
    found: Ratified | None = None

    def look(self) -> None:
        """Take it that the version after the one we saw is ours, at the time we say."""
        read_version = self.one.info.read_version
        if self.foresee is None or read_version is None:
            return
        guess = ratified_file(self.one, read_version + 1, self.one.now_ms)
        assert guess.commit is not None
        self.found = replace(guess, foreseen=self.foresee(guess.commit))

    def confirmed(self, version: int, committed_at_ms: int) -> Ratified:
        """Return what became of the append."""
        found = self.found
        if found is not None and (found.version, found.committed_at_ms) == (
            version,
            committed_at_ms,
        ):
            return found
        return ratified_file(self.one, version, committed_at_ms)


def ratified_file(one: OneFile, version: int, committed_at_ms: int) -> Ratified:
    """Return the blind append of one file, as the database completed it."""
    info = replace(
        one.info,
        timestamp=committed_at_ms,
        in_commit_timestamp=committed_at_ms if one.in_commit_timestamps else None,
    )
    commit = Commit(
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
    return Ratified(one.table, version, committed_at_ms, commit)


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
