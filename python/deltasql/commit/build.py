"""Parts of a commit that are made under the locks: new tables, groups, marks of new features."""

from __future__ import annotations

from dataclasses import replace
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
from deltasql.storage.location import location_key
from deltasql.store.append import live_name
from deltasql.store.locations import refuse_nested_location, shared_location, tables_at
from deltasql.store.records import TableRow, VersionRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.commit.staged import Staged
    from deltasql.commit.state import TableState
    from deltasql.config import StorageSettings
    from deltasql.exceptions import CommitConflictError
    from deltasql.model.actions import Metadata
    from deltasql.store.dialect import Session
    from deltasql.store.locations import Query
    from deltasql.store.records import Commit, Head

_MOST_NAMED = 100  # tables of one transaction, in the log of each


def insert_table(session: Session, staged: Staged) -> TableRow:
    table = staged.table
    _refuse_location(session, staged)
    rows = session.query(
        "insert_table",
        table_uuid=table.table_uuid,
        namespace=table.namespace,
        name=table.name,
        live_name=live_name(table.namespace, table.name),
        location=table.location,
        created_at_ms=table.created_at_ms,
        properties="{}",
    )
    key = location_key(table.location)
    session.insert("insert_location", [(rows[0][0], key, key)])
    return replace(table, table_id=rows[0][0])


def _refuse_location(session: Session, staged: Staged) -> None:
    """Refuse a folder that got a table since this one was staged."""
    table = staged.table
    for other in tables_at(session.query, table.location):
        # A table of the same name: the insert finds it, or the commit was made before.
        if other.dropped_at_ms is not None or other.full_name != table.full_name:
            raise shared_location(other, table.location)
    if not staged.allows_nested:
        refuse_nested_location(session.query, table.location)


def refuse_following(session: Session, staged: Staged) -> None:
    """Refuse to change a table that follows a log of others; SQL may have taken over meanwhile.

    A table begins to follow before anybody sees it and never again later: what is remembered of a
    table may be too strict, never too lax.
    """
    table = staged.table
    if not table.is_following:
        return
    rows = session.query("table_by_name", live_name=live_name(table.namespace, table.name))
    if not rows or TableRow.from_row(rows[0]).is_following:
        raise follows_another_log(table)


def add_group(commits: list[Commit]) -> None:
    """Tell every log which other tables and versions belong to the same transaction.

    All of a thousand tables in the log of each would be a million names: of many, each log names
    its own table, and how many they are. The id is the same for all.
    """
    if len(commits) < 2:
        return
    participants = [
        {"table": c.table.full_name, "id": c.table.table_uuid, "version": c.version}
        for c in commits
    ]
    for commit, own in zip(commits, participants, strict=True):
        group: dict[str, object] = {"id": commit.txn_id, "participants": participants}
        if len(commits) > _MOST_NAMED:
            group |= {"participants": [own], "size": len(commits)}
        commit.info = replace(commit.info, extra={**commit.info.extra, "group": group})


def enable_timestamps(
    metadata: Metadata, before: TableState, version: int, timestamp_ms: int
) -> Metadata:
    """Record since when in-commit timestamps hold, when a later commit turns them on."""
    turns_on = metadata.configuration.get("delta.enableInCommitTimestamps") == "true"
    if not turns_on or before.in_commit_timestamps:
        return metadata
    marks = {
        "delta.inCommitTimestampEnablementVersion": str(version),
        "delta.inCommitTimestampEnablementTimestamp": str(timestamp_ms),
    }
    return replace(metadata, configuration={**metadata.configuration, **marks})


def follows_another_log(table: TableRow) -> TableFollowsError:
    return TableFollowsError(
        f"{table.full_name} cannot be changed: it follows the log at {table.location}",
        table=table.full_name,
    )


def does_not_follow(table: TableRow) -> TxnLogTransactionError:
    return TxnLogTransactionError(
        f"{table.full_name} does not follow a log of others: SQL is its authority",
        table=table.full_name,
        help="`deltasql import` takes commits in that others put into its log.",
    )


def table_changed(staged: Staged, head: Head | None) -> CommitConflictError:
    return TableChangedError(
        "the table was renamed, dropped or replaced since it was opened",
        table=staged.table.full_name,
        expected_version=staged.read_version,
        actual_version=head.version if head else None,
    )


def created_meanwhile(query: Query, name: str, found: TableRow) -> CommitConflictError:
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


def version_taken(staged: Staged, head: Head) -> CommitConflictError:
    return VersionTakenError(
        "Failed to commit transaction: 0 retries are allowed, and the next version is taken",
        table=staged.table.full_name,
        expected_version=staged.read_version,
        actual_version=head.version,
    )


def refuse_taken(
    session: Session,
    staged: Sequence[Staged],
    heads: dict[int, Head],
    txn_id: str,
    settings: StorageSettings,
) -> None:
    """Refuse when a vacuum may have taken what this transaction announced.

    One tells of itself in the table's history before it takes anything. Without such a commit
    the notes were lost, with a server that crashed or on their way, and the files are there. A new
    table has no history: there, the files themselves are looked at.
    """
    for each in staged:
        if each.creates:
            if _are_taken(session, each, txn_id, settings):
                raise FilesTakenError(table=each.table.full_name, txn_id=txn_id)
            continue
        head, seen = heads[each.table.table_id], each.read_version
        after = -1 if seen is None else seen
        rows = session.query("vacuums_after", table_id=head.table_id, version=after)
        for version, operation, winner in rows:
            raise FilesTakenError(
                table=each.table.full_name,
                txn_id=txn_id,
                expected_version=seen,
                actual_version=head.version,
                winning_version=version,
                winning_operation=operation,
                winning_txn_id=winner,
            )


def _are_taken(session: Session, staged: Staged, txn_id: str, settings: StorageSettings) -> bool:
    """Tell whether files of a new table are about to be deleted, or are gone."""
    if session.query("intents_taken", txn_id=txn_id)[0][0]:
        return True
    storage = open_storage(staged.table.location, settings)
    paths = (each.path for each in staged.adds if not is_absolute(each.path))
    return not all(storage.exists(storage.data_name(path)) for path in paths)
