"""Compare commit files of a log with the commits in SQL, by transaction id or by content."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from deltasql._core import parse_commit
from deltasql.mirror.log.encode import commit_bytes
from deltasql.mirror.log.same_content import same_content
from deltasql.store.records import derived_id

if TYPE_CHECKING:
    from deltasql.mirror.log.listing import LogListing
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store


def commit_id(table: TableRow, version: int, data: bytes) -> str:
    """Return the transaction id for a commit file without one; the same file gives the same id."""
    return derived_id(table, version, hashlib.sha256(data).hexdigest())


def is_id_of(txn_id: str, table: TableRow, version: int, data: bytes) -> bool:
    """Return whether `txn_id` is the id of a commit file in SQL: its own, or a derived one."""
    info = parse_commit(data, version=version).commit_info
    own_id = None if info is None else info.txn_id
    if own_id is None:
        return txn_id == commit_id(table, version, data)
    return txn_id in (own_id, derived_id(table, version, own_id))


def has_commit(store: Store, table: TableRow, version: int, data: bytes) -> bool:
    """Return whether a version in SQL has the transaction id of a commit file.

    This also works for a version that was loaded from a checkpoint.
    """
    rows = store.query("history", table_id=table.table_id, first=version, last=version, limit=1)
    if not rows:
        return False
    return is_id_of(rows[0][2], table, version, data)


def has_head_of(store: Store, table: TableRow, storage: Storage, listing: LogListing) -> bool:
    """Return whether the latest version in SQL is the same commit in the log."""
    head = store.head(table.table_id)
    if head is None or head.version not in listing.commits:
        return True
    return is_same_commit(store, table, storage, listing, head.version)


def is_same_commit(
    store: Store, table: TableRow, storage: Storage, listing: LogListing, version: int
) -> bool:
    """Return whether a version is the same commit in SQL and in the log."""
    data = storage.read(listing.commits[version].name)
    low = store.query("version_bounds", table_id=table.table_id)[0][0]
    if version == low and version > 0:
        # It was loaded from a checkpoint: of its own commit SQL has only the transaction id.
        return has_commit(store, table, version, data)
    with store.session() as session:
        return same_content(commit_bytes(session, table.table_id, version), data)
