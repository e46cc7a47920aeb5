"""Refuse a transaction whose table or data files changed since it was staged.

These checks run under the locks of the commit. They cover what the conflict rules do not: the
table was renamed or dropped, its authority is its log, another commit created it or took its
location, or a vacuum took its uncommitted files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.engine.files.addresses import is_absolute
from deltasql.exceptions import (
    FilesTakenError,
    TableChangedError,
    TableFollowsError,
    TxnLogTransactionError,
    VersionTakenError,
)
from deltasql.storage import open_storage
from deltasql.store.locations import refuse_nested_location, shared_location, tables_at
from deltasql.store.records import TableRow, VersionRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.commit.staged import Staged
    from deltasql.config import StorageSettings
    from deltasql.exceptions import CommitConflictError
    from deltasql.store.dialect import Session
    from deltasql.store.locations import Query
    from deltasql.store.records import Head


def refuse_following(session: Session, staged: Staged) -> None:
    """Refuse to change a table that follows its log, unless a cutover ended that since.

    A table starts to follow before it is visible and never later. So a cached row can say
    "following" when the table no longer is, but never the reverse: only that case is read again.
    """
    table = staged.table
    if not table.is_following:
        return
    rows = session.query("table_by_name", live_name=table.live_name)
    if not rows or TableRow.from_row(rows[0]).is_following:
        raise follows_another_log(table)


def follows_another_log(table: TableRow) -> TableFollowsError:
    """Return the error of a change to a table whose authority is its log."""
    return TableFollowsError(
        f"{table.full_name} cannot be changed: it follows the log at {table.location}",
        table=table.full_name,
    )


def does_not_follow(table: TableRow) -> TxnLogTransactionError:
    """Return the error of a call that needs a following table, for one whose authority is SQL."""
    return TxnLogTransactionError(
        f"{table.full_name} does not follow a log: its authority is SQL",
        table=table.full_name,
        help="Use `deltasql import` to load commits that other programs wrote to its log.",
    )


def table_changed(staged: Staged, head: Head | None) -> CommitConflictError:
    """Return the conflict of a table that is not the one that was opened."""
    return TableChangedError(
        "the table was renamed, dropped or replaced since it was opened",
        table=staged.table.full_name,
        expected_version=staged.read_version,
        actual_version=head.version if head else None,
    )


def version_taken(staged: Staged, head: Head) -> CommitConflictError:
    """Return the conflict of a commit that must get the version after the one it read."""
    return VersionTakenError(
        "Failed to commit transaction: 0 retries are allowed, and the next version already exists",
        table=staged.table.full_name,
        expected_version=staged.read_version,
        actual_version=head.version,
    )


def refuse_used_location(session: Session, staged: Staged) -> None:
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


def refuse_vacuumed(
    session: Session,
    staged: Sequence[Staged],
    heads: dict[int, Head],
    txn_id: str,
    settings: StorageSettings,
) -> None:
    """Refuse a commit with missing intents if a vacuum may have deleted its data files.

    A vacuum commits to the history of the table before it deletes anything. Without such a commit
    the intents were lost in another way (a server crash, or a statement that never arrived) and
    the files exist. A new table has no history, so its files are looked up in the storage.
    """
    for each in staged:
        if each.creates:
            if _are_deleted(session, each, txn_id, settings):
                raise FilesTakenError(table=each.table.full_name, txn_id=txn_id)
            continue
        head, read_version = heads[each.table.table_id], each.read_version
        after = -1 if read_version is None else read_version
        rows = session.query("vacuums_after", table_id=head.table_id, version=after)
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


def _are_deleted(session: Session, staged: Staged, txn_id: str, settings: StorageSettings) -> bool:
    """Return whether files of a new table are missing, or a vacuum is about to delete them."""
    if session.query("intents_taken", txn_id=txn_id)[0][0]:
        return True
    storage = open_storage(staged.table.location, settings)
    paths = (each.path for each in staged.adds if not is_absolute(each.path))
    return not all(storage.exists(storage.data_name(path)) for path in paths)
