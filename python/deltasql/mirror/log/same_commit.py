"""Compare commit files of a log with the commits in the database, by content or transaction id."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from deltasql._core import encode_commit, parse_commit
from deltasql.mirror.log.encode import commit_bytes, version_row
from deltasql.store.records import derived_id

if TYPE_CHECKING:
    from deltasql._core import Commit
    from deltasql.mirror.log.listing import LogListing
    from deltasql.model.actions import Action
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

_INFO = b'{"commitInfo":'


def commit_id(table: TableRow, version: int, data: bytes) -> str:
    """Return an id for a commit file without a transaction id, derived from its content."""
    return derived_id(table, version, hashlib.sha256(data).hexdigest())


def is_id_of(txn_id: str, table: TableRow, version: int, data: bytes) -> bool:
    """Return whether `txn_id` is the transaction id in a commit file, or was derived from it."""
    info = parse_commit(data, version=version).commit_info
    own_id = None if info is None else info.txn_id
    if own_id is None:
        return txn_id == commit_id(table, version, data)
    return txn_id in (own_id, derived_id(table, version, own_id))


def has_commit(store: Store, table: TableRow, version: int, data: bytes) -> bool:
    """Return whether a version in the database has the transaction id of a commit file.

    This also works for a version that was loaded from a checkpoint.
    """
    row = version_row(store, table.table_id, version)
    return row is not None and is_id_of(row.txn_id, table, version, data)


def has_head_of(store: Store, table: TableRow, storage: Storage, listing: LogListing) -> bool:
    """Return whether the log and the database have the same commit at the database's head.

    Return True also if the log does not have the commit file of that version.
    """
    head = store.head(table.table_id)
    if head is None or head.version not in listing.commits:
        return True
    return is_same_commit(store, table, storage, listing, head.version)


def is_same_commit(
    store: Store, table: TableRow, storage: Storage, listing: LogListing, version: int
) -> bool:
    """Return whether the database and the log have the same commit at this version."""
    data = storage.read(listing.commits[version].name)
    low = store.query("version_bounds", table_id=table.table_id)[0][0]
    if version == low and version > 0:
        # The version was loaded from a checkpoint, so the database has only the transaction id of
        # its commit.
        return has_commit(store, table, version, data)
    return has_same_content(store, table, version, data)


def has_same_content(store: Store, table: TableRow, version: int, data: bytes) -> bool:
    """Return whether a version in the database has the actions of a commit file."""
    with store.session() as session:
        return same_content(commit_bytes(session, table.table_id, version), data)


def same_content(ours: bytes, theirs: bytes) -> bool:
    """Return whether another writer's commit file has the same actions as our own.

    An imported or adopted commit keeps the file that its writer wrote. That file has the same
    actions as the database, but in any order and formatting. It may lack the transaction id that
    the database gives to every commit.

    >>> ours = b'{"commitInfo":{"operation":"WRITE","txnId":"1"}}'
    >>> same_content(ours, b'{"commitInfo":{"operation":"WRITE"}}')
    True
    >>> same_content(ours, b'{"commitInfo":{"operation":"MERGE"}}')
    False
    """
    if ours == theirs:
        return True
    right = parse_commit(theirs)
    encoded = encode_commit(list(right.actions()))
    # Compare sorted lines first, which is enough for files that differ only in formatting and
    # order.
    (info, lines), (_, others) = _sorted_lines(ours), _sorted_lines(encoded)
    if lines == others:
        return _same_info(parse_commit(info), right)
    left = parse_commit(ours)
    return _canonical_actions(left) == _canonical_actions(right) and _same_info(left, right)


def _sorted_lines(data: bytes) -> tuple[bytes, list[bytes]]:
    """Return the commitInfo line, and the other lines sorted."""
    lines = data.splitlines()
    info = b"".join(each for each in lines if each.startswith(_INFO))
    return info, sorted(each for each in lines if not each.startswith(_INFO))


def _canonical_actions(commit: Commit) -> Counter[str]:
    """Return every action except commitInfo as canonical JSON."""
    return Counter(
        json.dumps(_canonical(action), sort_keys=True)
        for action in commit.actions()
        if action.kind != "commitInfo"
    )


def _canonical(action: Action) -> dict[str, Any]:
    body = action.body()
    if body.get("partitionValues"):
        # A null partition value may be missing in one of the two commits.
        values = body["partitionValues"]
        body["partitionValues"] = {name: v for name, v in values.items() if v is not None}
    return {**action.to_dict(), action.kind: body}


def _same_info(left: Commit, right: Commit) -> bool:
    ours = left.commit_info.body() if left.commit_info else {}
    theirs = right.commit_info.body() if right.commit_info else {}
    if "txnId" not in theirs:
        ours.pop("txnId", None)
    return ours == theirs
