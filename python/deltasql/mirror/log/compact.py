"""Log compaction: write the commits of several versions as one `.compacted.json` file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql import _core
from deltasql.exceptions import TxnLogError
from deltasql.exceptions.prefixes import TABLE_ERROR
from deltasql.mirror.log.encode import actions_between
from deltasql.model.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    RemoveFile,
    SetTransaction,
    logical_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store


def compacted_file(first: int, last: int) -> str:
    """Return the name of a compacted log file.

    >>> compacted_file(1, 3)
    '_delta_log/00000000000000000001.00000000000000000003.compacted.json'
    """
    return f"_delta_log/{first:020d}.{last:020d}.compacted.json"


def compact_log(store: Store, table: TableRow, storage: Storage, first: int, last: int) -> None:
    """Write the compacted log file of the published versions first..last. This can be repeated."""
    if first < 0 or last < 0:
        raise OverflowError("can't convert negative int to unsigned")
    if last <= first:
        raise TxnLogError(
            f"Invalid version range: end_version {last} must be greater than start_version {first}",
            prefix=TABLE_ERROR,
            help="Give a range of at least two versions.",
        )
    with store.session() as session:
        actions = reconciled(
            action
            for _, commit in actions_between(session, table.table_id, first, last)
            for action in commit
        )
    storage.put(compacted_file(first, last), _core.encode_commit(actions))


def reconciled(actions: Iterable[Action]) -> list[Action]:
    """Keep the last action of each file, application and domain, the last metadata and protocol.

    >>> add = AddFile("f", {}, 1, 0)
    >>> [action.kind for action in reconciled([add, RemoveFile("f")])]
    ['remove']
    """
    last: dict[tuple[str, ...], Action] = {}
    for action in actions:
        if isinstance(action, CommitInfo | AddCdcFile):
            continue  # commitInfo and cdc actions belong to a single commit
        key = _key(action)
        last.pop(key, None)
        last[key] = action
    # Write removals first, so that a path that was removed and added again stays live.
    return sorted(last.values(), key=lambda action: isinstance(action, AddFile))


def _key(action: Action) -> tuple[str, ...]:
    match action:
        case AddFile() | RemoveFile():
            path, vector = logical_file(action)
            return ("file", path, vector or "")
        case SetTransaction():
            return (action.kind, action.app_id)
        case DomainMetadata():
            return (action.kind, action.domain)
        case _:
            return (action.kind,)
