"""Load the commits that were ratified after the version a transaction read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.commit.conflict import Winner
from deltasql.store.records import VersionRow, add_from_row, remove_from_row

if TYPE_CHECKING:
    from deltasql.store.dialect import Session
    from deltasql.store.records import Head


def load_winners(session: Session, table_id: int, read_version: int, head: Head) -> list[Winner]:
    """Return the winning commits in order; a fixed number of statements, however many they are."""
    span = {"table_id": table_id, "after": read_version, "last": head.version}
    rows = session.query(
        "history",
        table_id=table_id,
        first=read_version,
        last=head.version,
        limit=head.version - read_version + 1,
    )
    versions = [VersionRow.from_row(row) for row in reversed(rows)]
    winners = {row.version: Winner(row) for row in versions[1:]}
    for row in session.query(
        "adds_between",
        table_id=table_id,
        first_file_id=versions[0].next_file_id,
        next_file_id=head.next_file_id,
    ):
        winners[row[13]].adds.append(add_from_row(row))
    for row in session.query("removes_between", **span):
        winners[row[12]].removes.append(remove_from_row(row))
    for row in session.query("metadata_between", **span):
        winners[row[0]].changes_metadata = True
    for row in session.query("protocol_between", **span):
        winners[row[0]].changes_protocol = True
    for row in session.query("txns_between", **span):
        winners[row[0]].app_ids.add(row[1])
    for row in session.query("domains_between", **span):
        winners[row[0]].domains.add(row[1])
    return list(winners.values())
