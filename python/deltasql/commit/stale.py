"""Reject a transaction whose table or data files changed since it was staged.

These checks run while the commit holds its locks. They cover what the conflict rules do not: the
table was renamed or dropped, the log manages the table, another commit created the table or uses
its location, or a vacuum may have deleted the files that the transaction wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.exceptions import (
    FilesTakenError,
    TableChangedError,
    TableFollowsError,
    TxnLogTransactionError,
    VersionTakenError,
)
from deltasql.storage import open_storage
from deltasql.storage.location import is_absolute
from deltasql.store.locations import (
    reject_nested_location,
    reject_replica,
    shared_location,
    tables_at,
)
from deltasql.store.records import TableRow, VersionRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.commit.staged import Staged
    from deltasql.config import StorageSettings
    from deltasql.exceptions import CommitConflictError
    from deltasql.store.dialect import Session
    from deltasql.store.locations import Query
    from deltasql.store.records import Head


def reject_following(session: Session, staged: Staged) -> None:
    """Raise if the table still follows a log; a cutover may have ended that since it was opened."""
    table = staged.table
    rows = session.query("table_by_name", live_name=table.live_name)
    if not rows or TableRow.from_row(rows[0]).is_following:
        raise follows_another_log(table)


def follows_another_log(table: TableRow) -> TableFollowsError:
    """Return the error for a change to a table whose log other writers manage."""
    return TableFollowsError(
        f"{table.full_name} cannot be changed: it follows the log at {table.location}",
        table=table.full_name,
    )


def does_not_follow(table: TableRow) -> TxnLogTransactionError:
    """Return the error for a call that needs a followed table; the database manages this one."""
    return TxnLogTransactionError(
        f"{table.full_name} does not follow a log: its authority is the database",
        table=table.full_name,
        help="Use `deltasql import` to load commits that other programs wrote to its log.",
    )


def table_changed(staged: Staged, head: Head | None) -> CommitConflictError:
    """Return the conflict for a name that no longer belongs to the table that was opened."""
    return TableChangedError(
        "the table was renamed, dropped or replaced since it was opened",
        table=staged.table.full_name,
        expected_version=staged.read_version,
        actual_version=head.version if head else None,
    )


def reject_taken_version(staged: Staged, head: Head) -> None:
    """Raise if a commit needs the version after the one it read, and this version exists."""
    read_version = staged.read_version
    if not staged.must_be_next or read_version is None or read_version >= head.version:
        return
    raise VersionTakenError(
        "Failed to commit transaction: 0 retries are allowed, and the next version already exists",
        table=staged.table.full_name,
        expected_version=read_version,
        actual_version=head.version,
    )


def reject_used_location(session: Session, staged: Staged) -> None:
    """Raise if another table got the same location after this table was staged."""
    table = staged.table
    for other in tables_at(session.query, table.location):
        # Accept a live table with the same name. If another commit created it, the insert fails
        # later because the name exists. Otherwise it is our own table, from an earlier attempt.
        if other.dropped_at_ms is not None or other.full_name != table.full_name:
            raise shared_location(other, table.location)
    if not staged.allows_nested:
        reject_nested_location(session.query, table.location)
    reject_replica(session.query, table.location, allow_nested=staged.allows_nested)


def reject_location_of_other(query: Query, staged: Staged, error: BaseException) -> None:
    """Raise TableExistsError if another table has the location; `error` becomes its cause."""
    for other in tables_at(query, staged.table.location):
        if other.table_uuid != staged.table.table_uuid:
            raise shared_location(other, staged.table.location) from error


def created_by_other(query: Query, name: str, found: TableRow) -> CommitConflictError:
    """Return the conflict for a write to a missing table that another commit created first."""
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


def reject_vacuumed(
    session: Session,
    staged: Sequence[Staged],
    heads: dict[int, Head],
    txn_id: str,
    settings: StorageSettings,
) -> None:
    """Reject a commit with missing intents if a vacuum may have deleted its data files.

    A vacuum writes a commit to the history of the table before it deletes anything. If there is no
    such commit, the intents were lost in another way (a server crash, or a statement that never
    arrived) and the files exist. A new table has no history, so its files are looked up in the
    storage.
    """
    for each in staged:
        if each.creates:
            if _are_deleted(session, each, txn_id, settings):
                raise FilesTakenError(table=each.table.full_name, txn_id=txn_id)
            continue
        head, read_version = heads[each.table.table_id], each.read_version
        after = -1 if read_version is None else read_version
        rows = session.query("vacuums_after", table_id=head.table_id, version=after)
        if not rows and _has_expired(session, head, after):
            # The commit of a vacuum may have expired.
            if _are_deleted(session, each, txn_id, settings):
                raise FilesTakenError(table=each.table.full_name, txn_id=txn_id)
            continue
        for version, operation, winner in rows:
            raise FilesTakenError(
                table=each.table.full_name,
                txn_id=txn_id,
                expected_version=read_version,
                actual_version=head.version,
                winning_version=version,
                winning_operation=operation,
                winning_txn_id=winner,
            )


def _has_expired(session: Session, head: Head, after: int) -> bool:
    """Return whether commits after a version are missing from the history."""
    return bool(session.query("version_bounds", table_id=head.table_id)[0][0] > after + 1)


def _are_deleted(session: Session, staged: Staged, txn_id: str, settings: StorageSettings) -> bool:
    """Return whether files of a new table are missing, or a vacuum is about to delete them."""
    if session.query("intents_taken", txn_id=txn_id)[0][0]:
        return True
    storage = open_storage(staged.table.location, settings)
    paths = (each.path for each in staged.adds if not is_absolute(each.path))
    return not all(storage.exists(storage.data_name(path)) for path in paths)
