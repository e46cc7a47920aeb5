"""Overview of a catalog: table summaries, totals, and commits per hour."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from deltasql.api.inspect.page import (
    Page,
    at_most,
    check_choice,
    cut,
    page_size,
    read_cursor,
    write_cursor,
)
from deltasql.exceptions import redact
from deltasql.mirror.publish.targets import ACTIVE, FOLLOWING, QUARANTINED
from deltasql.model.clock import from_ms, now_ms
from deltasql.model.report import Report
from deltasql.store.records import TableRow, load
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.api.inspect.totals import TableTotals, TotalsCache
    from deltasql.store.dialect import Row

HOUR_MS = 3_600_000
MOST_HOURS = 24 * 366
TABLE_ORDERS = ("name", "version", "rows", "files", "size", "committed")
_ALL = 2**31


@dataclass(frozen=True, slots=True)
class HourCount(Report):
    """The number of commits in an hour."""

    hour: datetime
    commits: int


@dataclass(frozen=True, slots=True)
class TableSummary(Report):
    """A summary of one table."""

    name: str
    namespace: str
    short_name: str
    location: str
    version: int
    files: int
    files_ever: int  # including removed files
    bytes: int
    rows: int | None  # None if a file has no statistics
    committed_at: datetime
    last_operation: str | None
    is_following: bool
    mirror_state: str  # ACTIVE, FAILED, QUARANTINED or FOLLOWING
    published_version: int  # -1: nothing is published
    pending: int
    lag_s: float
    last_error: str | None


@dataclass(frozen=True, slots=True)
class CatalogTotals(Report):
    """Totals of all tables of a catalog; `commits` counts only those of the requested hours."""

    tables: int
    files: int
    bytes: int
    rows: int | None
    commits: int
    pending: int
    worst_lag_s: float
    unhealthy: int  # quarantined, or a lag above mirror.alert_lag_s


@dataclass(frozen=True, slots=True)
class Overview(Report):
    """The first tables of a catalog, the totals of all tables, and the commits per hour."""

    backend: str
    uri: str
    tables: tuple[TableSummary, ...]
    next: str | None
    totals: CatalogTotals
    commits_per_hour: tuple[HourCount, ...]


def overview(
    catalog: BaseCatalog, cache: TotalsCache, *, hours: int, namespace: str | None, limit: int
) -> Overview:
    """Return the first page of tables, and totals that include the tables on later pages."""
    heads = _heads(catalog, namespace)
    sums = cache.of({each.table_id: each.version for each in heads})
    page = tables(catalog, cache, namespace=namespace, limit=limit, cursor=None)
    busy = activity(catalog, hours=hours, namespace=namespace)
    found = [each for each in heads if each.table_id in sums]  # absent if dropped concurrently
    rows = [each.rows for each in sums.values()]
    alert_ms = catalog.config.mirror.alert_lag_s * 1000
    lags = [each.lag_ms for each in found]
    totals = CatalogTotals(
        tables=len(found),
        files=sum(each.sums.files for each in sums.values()),
        bytes=sum(each.sums.bytes for each in sums.values()),
        rows=None if None in rows else sum(each or 0 for each in rows),
        commits=sum(each.commits for each in busy),
        pending=sum(each.pending for each in found),
        worst_lag_s=max(lags, default=0) / 1000,
        unhealthy=sum(each.is_quarantined or each.lag_ms > alert_ms for each in found),
    )
    return Overview(
        catalog.store.dialect.name, str(catalog.uri), page.items, page.next, totals, busy
    )


def files_to_add_up(catalog: BaseCatalog, cache: TotalsCache) -> int:
    """Return how many files an overview must read because their totals are not cached."""
    return cache.unseen({each.table_id: each.next_file_id for each in _heads(catalog, None)})


@dataclass(frozen=True, slots=True)
class _TableHead:
    """Version and publishing state of a table."""

    table_id: int
    version: int
    next_file_id: int
    pending: int
    lag_ms: int
    is_quarantined: bool


def _heads(catalog: BaseCatalog, namespace: str | None) -> list[_TableHead]:
    at_ms = now_ms()
    return [
        _TableHead(
            table_id,
            version,
            next_file_id,
            max(0, version - published),
            _lag_ms(version, published, waiting_since, at_ms),
            # A followed table has no log of its own that could be quarantined.
            state == QUARANTINED and TableRow.FOLLOWING not in (load(properties) or {}),
        )
        for table_id, version, next_file_id, properties, state, published, waiting_since in (
            catalog.store.query("catalog_heads", namespace=namespace)
        )
    ]


def _lag_ms(version: int, published: int, waiting_since: int | None, at_ms: int) -> int:
    """Return the age of the oldest version that is not published."""
    if waiting_since is None or version <= published:
        return 0
    return max(0, at_ms - waiting_since)


def tables(
    catalog: BaseCatalog,
    cache: TotalsCache,
    *,
    namespace: str | None,
    limit: int,
    cursor: str | None,
    search: str | None = None,
    order: str = "name",
    descending: bool = False,
) -> Page[TableSummary]:
    """Return tables, sorted by namespace and name or by another order of `TABLE_ORDERS`.

    `search` selects tables whose name contains a text, in upper or lower case.
    """
    check_choice("order", order, TABLE_ORDERS)
    size = page_size(limit)
    if order == "name" and not descending:
        after = ("", "") if cursor is None else read_cursor("tables", cursor, str, str)
        rows = _table_rows(catalog, namespace, search, after, size + 1)
        found, more = cut(rows, limit)
        last = write_cursor("tables", found[-1][2], found[-1][3]) if more else None
        return Page(tuple(_summaries(catalog, cache, found)), last)
    # The database cannot sort by sums over files, so all tables are read and sorted here.
    first = 0 if cursor is None else read_cursor(f"tables by {order}", cursor, int)[0]
    summaries = _summaries(catalog, cache, _table_rows(catalog, namespace, search, ("", ""), _ALL))
    summaries.sort(key=_sort_keys()[order], reverse=descending)
    first = min(max(first, 0), len(summaries))
    more = len(summaries) > first + size
    following = write_cursor(f"tables by {order}", first + size) if more else None
    return Page(tuple(summaries[first : first + size]), following)


def _table_rows(
    catalog: BaseCatalog,
    namespace: str | None,
    search: str | None,
    after: tuple[str, str],
    limit: int,
) -> list[Row]:
    escaped = re.sub(r"([!%_])", r"!\1", (search or "").lower())
    return catalog.store.query(
        "summaries_page",
        namespace=namespace,
        pattern=f"%{escaped}%" if escaped else None,
        after_namespace=after[0],
        after_name=after[1],
        limit=limit,
    )


def _sort_keys() -> dict[str, Callable[[TableSummary], Any]]:
    """Return the sort key of each order."""
    return {
        "name": lambda each: (each.namespace, each.short_name),
        "version": lambda each: each.version,
        "rows": lambda each: -1 if each.rows is None else each.rows,
        "files": lambda each: each.files,
        "size": lambda each: each.bytes,
        "committed": lambda each: each.committed_at,
    }


def table(catalog: BaseCatalog, cache: TotalsCache, name: str) -> TableSummary:
    """Return a summary of one table."""
    row = catalog.resolve(name, fresh=True)
    rows = catalog.store.query("summary_of", table_id=row.table_id)
    return _summaries(catalog, cache, rows)[0]


def _summaries(catalog: BaseCatalog, cache: TotalsCache, rows: Sequence[Row]) -> list[TableSummary]:
    totals = cache.of({row[0]: row[8] for row in rows})
    at_ms = now_ms()
    # A table that was dropped after it was listed has no totals.
    return [_summary(row, totals[row[0]], at_ms) for row in rows if row[0] in totals]


def _summary(row: Row, totals: TableTotals, at_ms: int) -> TableSummary:
    found = TableRow.from_row(row[:8])
    version, committed_at_ms, operation = row[8], row[9], row[13]
    state, published, last_error, waiting_since = row[14:18]
    pending = max(0, version - published)
    sums = totals.sums
    lag_ms = _lag_ms(version, published, waiting_since, at_ms)
    return TableSummary(
        name=join_table_name(found.namespace, found.name),
        namespace=found.namespace,
        short_name=found.name,
        location=found.location,
        version=version,
        files=sums.files,
        files_ever=row[10] - 1,  # files are numbered from 1
        bytes=sums.bytes,
        rows=totals.rows,
        committed_at=from_ms(committed_at_ms),
        last_operation=operation,
        is_following=found.is_following,
        mirror_state=FOLLOWING if found.is_following else state or ACTIVE,
        published_version=published,
        pending=pending,
        lag_s=lag_ms / 1000,
        last_error=None if last_error is None else redact(last_error),
    )


def activity(
    catalog: BaseCatalog, *, hours: int, table: str | None = None, namespace: str | None = None
) -> tuple[HourCount, ...]:
    """Return the number of commits in each of the last hours, oldest first; it may be zero."""
    at_most(MOST_HOURS, "hours", hours)
    end = (now_ms() // HOUR_MS + 1) * HOUR_MS
    span = {"since_ms": end - hours * HOUR_MS, "until_ms": end}
    if table is None:
        rows = catalog.store.query("commits_per_hour", namespace=namespace, **span)
    else:
        table_id = catalog.resolve(table, fresh=True).table_id
        rows = catalog.store.query("commits_per_hour_of", table_id=table_id, **span)
    counted: dict[int, int] = dict(rows)
    return tuple(
        HourCount(from_ms(hour), counted.get(hour, 0))
        for hour in range(span["since_ms"], end, HOUR_MS)
    )
