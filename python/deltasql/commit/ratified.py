"""The result of a commit: written by this call, or found by its transaction id."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltasql.commit.staged import Staged
    from deltasql.store.dialect import Row
    from deltasql.store.records import Commit, TableRow


@dataclass(frozen=True, slots=True)
class Ratified:
    """One table's part of a ratified commit."""

    table: TableRow
    version: int
    committed_at_ms: int
    commit: Commit | None = None  # the written commit; None if it was looked up by its id


def already_ratified(
    query: Callable[..., list[Row]], staged: Sequence[Staged], txn_id: str
) -> list[Ratified] | None:
    """Look up a transaction by its id; return None if it is not ratified."""
    rows = query("group_members", txn_id=txn_id)
    if not rows:
        return None
    # Tables are matched by UUID, because they may have been renamed.
    by_uuid = {table_uuid: found for table_uuid, *found in rows}
    out = []
    for each in staged:
        table_id, version, committed_at_ms = by_uuid[each.table.table_uuid]
        out.append(Ratified(replace(each.table, table_id=table_id), version, committed_at_ms))
    return out
