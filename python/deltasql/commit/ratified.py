"""Commits that happened: as they were written, or as they are found again by their id."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltasql.store.records import Commit, OneFile, TableRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltasql.commit.staged import Staged
    from deltasql.store.dialect import Appended, Row


@dataclass(frozen=True, slots=True)
class Ratified:
    """One table's part of a commit that happened."""

    table: TableRow
    version: int
    committed_at_ms: int
    commit: Commit | None = None  # what was written; None when it was only looked up


def ratified_append(one: OneFile, done: Appended) -> Ratified:
    """Return the blind append of one file, as the database completed it."""
    info = replace(
        one.info,
        timestamp=done.committed_at_ms,
        in_commit_timestamp=done.committed_at_ms if one.in_commit_timestamps else None,
    )
    commit = Commit(
        table=one.table,
        head=None,
        version=done.version,
        committed_at_ms=done.committed_at_ms,
        txn_id=one.txn_id,
        group_size=1,
        info=info,
        adds=[one.add],
        partition_columns=one.partition_columns,
        replaces_nothing=True,
    )
    return Ratified(one.table, done.version, done.committed_at_ms, commit)


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
