"""Create a table as part of a commit, and report what another commit created first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql.exceptions import VersionTakenError
from deltasql.storage.location import location_key
from deltasql.store.locations import refuse_nested_location, shared_location, tables_at
from deltasql.store.records import TableRow, VersionRow

if TYPE_CHECKING:
    from deltasql.commit.staged import Staged
    from deltasql.exceptions import CommitConflictError
    from deltasql.store.dialect import Session
    from deltasql.store.locations import Query


def insert_table(session: Session, staged: Staged) -> TableRow:
    """Insert the row of a new table and return it with its id; its location must be free."""
    table = staged.table
    _refuse_used_location(session, staged)
    rows = session.query(
        "insert_table",
        table_uuid=table.table_uuid,
        namespace=table.namespace,
        name=table.name,
        live_name=table.live_name,
        location=table.location,
        created_at_ms=table.created_at_ms,
        properties="{}",
    )
    key = location_key(table.location)
    session.insert("insert_location", [(rows[0][0], key, key)])
    return replace(table, table_id=rows[0][0])


def _refuse_used_location(session: Session, staged: Staged) -> None:
    """Refuse a location that another table got after this one was staged."""
    table = staged.table
    for other in tables_at(session.query, table.location):
        # A live table of the same name is not a shared location: the insert fails on its name, or
        # it is our own table from an earlier attempt.
        if other.dropped_at_ms is not None or other.full_name != table.full_name:
            raise shared_location(other, table.location)
    if not staged.allows_nested:
        refuse_nested_location(session.query, table.location)


def refuse_location_of_other(query: Query, staged: Staged, error: BaseException) -> None:
    """Raise TableExistsError if another table has the location; `error` becomes its cause."""
    for other in tables_at(query, staged.table.location):
        if other.table_uuid != staged.table.table_uuid:
            raise shared_location(other, staged.table.location) from error


def created_by_other(query: Query, name: str, found: TableRow) -> CommitConflictError:
    """Return the conflict of a write to a missing table that another commit created first."""
    first, last = query("version_bounds", table_id=found.table_id)[0]
    rows = query("history", table_id=found.table_id, first=first, last=first, limit=1)
    winner = VersionRow.from_row(rows[0])
    return VersionTakenError(
        f"table {name} did not exist when this transaction read the catalog; "
        "another commit has created it since",
        table=name,
        actual_version=last,
        winning_version=winner.version,
        winning_txn_id=winner.txn_id,
        winning_operation=winner.info.operation,
        help="Nothing was committed. Repeat the transaction: it then writes to the table that "
        "exists now.",
    )
