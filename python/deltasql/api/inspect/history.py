"""Commits of one table, transactions over several tables, and the latest commits of all tables."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from deltasql.api.inspect.page import ABOVE_ALL, Page, cut, page_size, read_cursor, write_cursor
from deltasql.exceptions import TxnLogTransactionError, VersionNotFoundError
from deltasql.mirror.log.encode import commit_bytes
from deltasql.model.clock import from_ms, now_ms
from deltasql.model.report import Report
from deltasql.model.row_changes import RowChanges, row_changes
from deltasql.store.records import VersionRow, load
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.store.dialect import Row

_HOUR_MS = 3_600_000
# The latest commits are searched in these time ranges, one after another, until enough are found.
_SPANS_MS = (_HOUR_MS, 24 * _HOUR_MS, 30 * 24 * _HOUR_MS)


@dataclass(frozen=True, slots=True)
class CommitEntry(Report):
    """One version of a table."""

    version: int
    committed_at: datetime
    operation: str | None
    parameters: dict[str, Any]
    metrics: dict[str, Any]
    rows: RowChanges
    user_metadata: str | None
    engine: str | None
    txn_id: str
    group_size: int  # number of tables in the transaction
    is_blind_append: bool | None
    read_version: int | None


@dataclass(frozen=True, slots=True)
class FileChanges(Report):
    """The number and size of the files that a version added and removed."""

    files_added: int
    bytes_added: int
    files_removed: int
    bytes_removed: int


@dataclass(frozen=True, slots=True)
class Participant(Report):
    """The commit of a transaction to one of its tables."""

    table: str
    version: int
    operation: str | None
    metrics: dict[str, Any]
    rows: RowChanges


@dataclass(frozen=True, slots=True)
class TransactionEvent(Report):
    """A transaction with every table that it changed."""

    txn_id: str
    committed_at: datetime
    tables: int
    participants: tuple[Participant, ...]
    user_metadata: str | None


@dataclass(frozen=True, slots=True)
class RecentCommit(Report):
    """A version of any table."""

    table: str
    version: int
    committed_at: datetime
    operation: str | None
    metrics: dict[str, Any]
    rows: RowChanges
    txn_id: str
    group_size: int
    engine: str | None = None


def history(
    catalog: BaseCatalog, name: str, *, operation: str | None, limit: int, cursor: str | None
) -> Page[CommitEntry]:
    """Return the commits of a table, newest first; `operation` selects one kind of commit."""
    last = ABOVE_ALL if cursor is None else read_cursor("history", cursor, int)[0]
    key = {"table_id": catalog.resolve(name, fresh=True).table_id, "last": last}
    size = page_size(limit) + 1
    if operation is None:
        rows = catalog.store.query("history", first=0, limit=size, **key)
    else:
        rows = catalog.store.query("history_of_operation", operation=operation, limit=size, **key)
    found, more = cut([_entry(row) for row in rows], limit)
    return Page(found, write_cursor("history", found[-1].version - 1) if more else None)


def file_changes(
    catalog: BaseCatalog, name: str, *, first: int, last: int
) -> dict[int, FileChanges]:
    """Return the files that each version of a range added and removed."""
    table_id = catalog.resolve(name).table_id

    def next_file_id(version: int) -> int:
        span = {"first": version, "last": version, "limit": 1}
        rows = catalog.store.query("history", table_id=table_id, **span)
        return VersionRow.from_row(rows[0]).next_file_id if rows else 0

    key = {"first_file_id": next_file_id(first - 1), "next_file_id": next_file_id(last)}
    added = catalog.store.query("files_added_by", table_id=table_id, **key)
    removed = catalog.store.query("files_removed_by", table_id=table_id, first=first, last=last)
    new = {row[0]: (row[1], int(row[2])) for row in added}
    gone = {row[0]: (row[1], int(row[2])) for row in removed}
    none = (0, 0)
    return {
        version: FileChanges(*new.get(version, none), *gone.get(version, none))
        for version in range(first, last + 1)
    }


def commit(catalog: BaseCatalog, name: str, version: int) -> CommitEntry:
    """Return one commit of a table."""
    table = catalog.resolve(name, fresh=True)
    span = {"first": version, "last": version, "limit": 1}
    for row in catalog.store.query("history", table_id=table.table_id, **span):
        return _entry(row)
    low, high = catalog.store.query("version_bounds", table_id=table.table_id)[0]
    raise VersionNotFoundError(
        f"{name} has no version {version}; it has {low} to {high}", version=version, latest=high
    )


def commit_json(catalog: BaseCatalog, name: str, version: int) -> tuple[str, ...]:
    """Return the actions of a commit as JSON: the lines of its file in `_delta_log`."""
    commit(catalog, name, version)  # raises if the version does not exist
    table = catalog.resolve(name, fresh=True)
    with catalog.store.session() as session:
        data = commit_bytes(session, table.table_id, version)
    return tuple(line.decode() for line in data.splitlines())


def _entry(row: Row) -> CommitEntry:
    found = VersionRow.from_row(row)
    info = found.info
    metrics = dict(info.operation_metrics or {})
    return CommitEntry(
        version=found.version,
        committed_at=from_ms(found.committed_at_ms),
        operation=info.operation,
        parameters=dict(info.operation_parameters or {}),
        metrics=metrics,
        rows=row_changes(info.operation, metrics),
        user_metadata=info.user_metadata,
        engine=info.engine_info,
        txn_id=found.txn_id,
        group_size=found.group_size,
        is_blind_append=info.is_blind_append,
        read_version=info.read_version,
    )


def transactions(
    catalog: BaseCatalog, *, hours: int | None, table: str | None, limit: int, cursor: str | None
) -> Page[TransactionEvent]:
    """Return transactions over several tables, newest first."""
    before = (ABOVE_ALL, "") if cursor is None else read_cursor("transactions", cursor, int, str)
    earliest = 0 if hours is None else now_ms() - hours * _HOUR_MS
    key: dict[str, Any] = {
        "before_ms": before[0],
        "before_txn": before[1],
        "limit": page_size(limit) + 1,
    }
    statement = "group_page"
    if table is not None:
        statement, key["table_id"] = "group_page_of", catalog.resolve(table, fresh=True).table_id
    rows: list[Row] = []
    # Most pages are found in a short time range; a longer one is searched if needed.
    for span in (*_SPANS_MS, None):
        start = 0 if span is None else min(before[0], now_ms()) - span
        rows = catalog.store.query(statement, since_ms=max(earliest, start), **key)
        if len(rows) > limit or start <= earliest:
            break
    found, more = cut(rows, limit)
    place = write_cursor("transactions", found[-1][1], found[-1][0]) if more else None
    return Page(tuple(_events(catalog, [row[0] for row in found])), place)


def transaction(catalog: BaseCatalog, txn_id: str) -> TransactionEvent:
    """Return a transaction with every table that it changed."""
    for event in _events(catalog, [txn_id]):
        return event
    raise TxnLogTransactionError(
        f"no transaction has the id {txn_id!r}",
        help="Look up the transaction ids in the history of a table.",
    )


def _events(catalog: BaseCatalog, txn_ids: Sequence[str]) -> list[TransactionEvent]:
    members: dict[str, list[Row]] = defaultdict(list)
    if txn_ids:
        for row in catalog.store.query("participants", txn_ids=list(txn_ids)):
            members[row[0]].append(row)
    return [_event(txn_id, members[txn_id]) for txn_id in txn_ids if members[txn_id]]


def _event(txn_id: str, rows: Sequence[Row]) -> TransactionEvent:
    return TransactionEvent(
        txn_id=txn_id,
        committed_at=from_ms(max(row[4] for row in rows)),
        tables=len(rows),
        participants=tuple(map(_participant, rows)),
        user_metadata=next((row[7] for row in rows if row[7] is not None), None),
    )


def _participant(row: Row) -> Participant:
    metrics = load(row[6]) or {}
    return Participant(
        table=join_table_name(row[1], row[2]),
        version=row[3],
        operation=row[5],
        metrics=metrics,
        rows=row_changes(row[5], metrics),
    )


def recent(catalog: BaseCatalog, *, limit: int) -> tuple[RecentCommit, ...]:
    """Return the latest commits of all tables, newest first."""
    rows: list[Row] = []
    for span in (*_SPANS_MS, None):
        since_ms = 0 if span is None else now_ms() - span
        rows = catalog.store.query("recent_commits", since_ms=since_ms, limit=page_size(limit))
        if len(rows) == limit:
            break
    return tuple(map(_recent, rows))


class CommitWatch:
    """Returns new commits of all tables, without gaps or duplicates.

    A new commit is detected by the version of its table, because the timestamps of different
    writers may be out of order.
    """

    def __init__(self, catalog: BaseCatalog) -> None:
        self._catalog = catalog
        self._seen = {row[0]: row[8] for row in self._heads()}

    def poll(self, *, limit: int = 1000) -> tuple[RecentCommit, ...]:
        """Return at most `limit` new commits, oldest first; later calls return the rest."""
        found: list[Row] = []
        for table_id, _, namespace, name, *_, version in (row[:9] for row in self._heads()):
            after = self._seen.get(table_id, -1)
            if version > after and len(found) < limit:
                rows = self._catalog.store.query(
                    "commits_after", table_id=table_id, after=after, limit=limit - len(found)
                )
                found += [(namespace, name, *row) for row in rows]
                self._seen[table_id] = max((row[0] for row in rows), default=after)
        return tuple(map(_recent, sorted(found, key=lambda row: row[3])))

    def _heads(self) -> list[Row]:
        return self._catalog.store.query("live_heads")


def _recent(row: Row) -> RecentCommit:
    metrics = load(row[5]) or {}
    return RecentCommit(
        table=join_table_name(row[0], row[1]),
        version=row[2],
        committed_at=from_ms(row[3]),
        operation=row[4],
        metrics=metrics,
        rows=row_changes(row[4], metrics),
        txn_id=row[6],
        group_size=row[7],
        engine=row[8],
    )
