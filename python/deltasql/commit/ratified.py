"""Ratified commits: as they were written, or as looked up by transaction id."""

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
    """One table's part of a ratified commit."""

    table: TableRow
    version: int
    committed_at_ms: int
    commit: Commit | None = None  # what was written; None if it was looked up


def ratified_append(one: OneFile, done: Appended) -> Ratified:
    """Return a blind append of one file with the version and time that the database set."""
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
    """Look up a transaction by its id; None if it is not ratified."""
    rows = query("group_members", txn_id=txn_id)
    if not rows:
        return None
    # By UUID: the table may have been renamed since.
    by_uuid = {table_uuid: found for table_uuid, *found in rows}
    out = []
    for each in staged:
        table_id, version, committed_at_ms = by_uuid[each.table.table_uuid]
        out.append(Ratified(replace(each.table, table_id=table_id), version, committed_at_ms))
    return out
