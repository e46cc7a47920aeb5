"""Commit the staged changes of a transaction."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from deltasql.exceptions import (
    CommitConflictError,
    InvalidActionError,
    LogAheadError,
    TableChangedError,
    TableExistsError,
    TableFollowsError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.transaction.written_files import WrittenFiles
    from deltasql.commit.ratified import Ratified
    from deltasql.commit.staged import Staged


def ratify(
    catalog: Catalog, changes: Sequence[Staged], files: WrittenFiles, *, began_ms: int
) -> list[Ratified]:
    """Commit changes of all tables with one SQL COMMIT; returns the new versions in this order.

    The data files are deleted when an error makes it certain that nothing was committed.
    `began_ms` is when the transaction began.
    """
    try:
        return _ratify(catalog, changes, files, began_ms)
    except (
        CommitConflictError,
        InvalidActionError,
        LogAheadError,
        TableExistsError,
        TableFollowsError,
    ):
        files.discard()
        raise


def _ratify(
    catalog: Catalog, changes: Sequence[Staged], files: WrittenFiles, began_ms: int
) -> list[Ratified]:
    if not changes:
        return []
    commit = partial(
        catalog.committer.commit, txn_id=files.txn_id, intents=files.intents, discard=files.discard
    )
    for each in changes:
        if not each.creates:
            catalog.log_ahead.check(each.table)
    try:
        return commit(changes)
    except TableChangedError:
        if not _resolve_again(catalog, changes, began_ms):
            raise
    return commit(changes)


def _resolve_again(catalog: Catalog, changes: Sequence[Staged], began_ms: int) -> bool:
    """Look up cached names of tables again; returns whether a commit can be retried.

    A blind append may go to the table that has the name now, if that table is older than the
    transaction. Any other change was meant for the table that was replaced.
    """
    found = False
    for each in changes:
        if each.creates:
            continue
        row = catalog.store.find_table(each.table.namespace, each.table.name, fresh=True)
        if row is None or row.table_id == each.table.table_id:
            continue
        replaced_since = row.created_at_ms >= began_ms
        if replaced_since or each.read_version is not None or not each.is_plain_append:
            return False
        each.table, found = row, True
    return found
