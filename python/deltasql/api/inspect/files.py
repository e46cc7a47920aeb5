"""The live files of a version in pages: all of them, or those that can match a predicate."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from deltasql.api.inspect.page import (
    ABOVE_ALL,
    Page,
    check_choice,
    cut,
    page_size,
    read_cursor,
    write_cursor,
)
from deltasql.api.inspect.stats import partition_names, partition_of
from deltasql.model.clock import from_ms
from deltasql.model.report import Report
from deltasql.snapshot.files import to_arrow
from deltasql.store.records import load, load_dv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from deltasql.api.catalog.base import CatalogTable
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.store.dialect import Row

ORDERS = ("added", "size", "path")
_NEAR = 2000


@dataclass(frozen=True, slots=True)
class FileEntry(Report):
    """A live file of a version."""

    path: str
    partition: dict[str, str | None]
    bytes: int
    rows: int | None  # without deleted rows
    modified_at: datetime
    added_version: int
    stats: dict[str, Any] | None
    has_deletion_vector: bool
    deleted_rows: int


def files(
    table: CatalogTable,
    *,
    version: int | None,
    predicate: str | None,
    order: str,
    descending: bool,
    limit: int,
    cursor: str | None,
) -> Page[FileEntry]:
    """Return a page of files; with a predicate, only files that may contain a matching row."""
    check_choice("order", order, ORDERS)
    page_size(limit)
    kind = f"files by {order}{' down' if descending else ''}"
    place: tuple[Any, int] | None = None
    at = version
    if cursor is not None:
        # All pages of one listing show the same version, even if there are new commits.
        value, file_id, at = read_cursor(kind, cursor, _TYPES[order], int, int)
        place = (value, file_id)
    snapshot = table.snapshot(at)
    if predicate is None:
        rows = _page(snapshot, order, descending, limit + 1, place)
    else:
        rows = _matching(snapshot, predicate, order, descending, limit + 1, place)
    found, more = cut(rows, limit)
    names = partition_names(snapshot.metadata)
    partitions = _partitions(snapshot, found)
    items = tuple(_entry(row, partitions.get(row[2], row[2]), names) for row in found)
    last = None
    if more:
        last = write_cursor(kind, _value(found[-1], order), found[-1][0], snapshot.version)
    return Page(items, last)


_TYPES: dict[str, type] = {"added": int, "size": int, "path": str}


def _value(row: Row, order: str) -> int | str:
    value: int | str = row[{"added": 0, "size": 3, "path": 1}[order]]
    return value


def _next_ids(
    snapshot: Snapshot, order: str, descending: bool, limit: int, place: tuple[Any, int] | None
) -> list[int]:
    """Return the ids of the next files in an order; sorting only the ids is cheap."""
    store = snapshot.store
    key: dict[str, Any] = {
        "table_id": snapshot.table.table_id,
        "version": snapshot.version,
        "next_file_id": snapshot.next_file_id,
        "limit": limit,
        "after_id": (ABOVE_ALL if descending else -1) if place is None else place[1],
    }
    value = None if place is None else place[0]
    if order == "added":
        rows = store.query("ids_down" if descending else "ids_up", **key)
    elif order == "size" and descending:
        rows = store.query("sizes_down", after_size=ABOVE_ALL if value is None else value, **key)
    elif order == "size":
        rows = store.query("sizes_up", after_size=-1 if value is None else value, **key)
    elif descending:
        rows = store.query("paths_down", before_path=value, **key)
    else:
        rows = store.query("paths_up", after_path=value or "", **key)
    return [row[1] for row in rows]


def _page(
    snapshot: Snapshot, order: str, descending: bool, limit: int, place: tuple[Any, int] | None
) -> list[Row]:
    ids = _next_ids(snapshot, order, descending, limit, place)
    if not ids:
        return []
    rows = snapshot.store.query("page_files", table_id=snapshot.table.table_id, file_ids=ids)
    by_id = {row[0]: row for row in rows}
    return [by_id[each] for each in ids]


def _matching(
    snapshot: Snapshot,
    predicate: str,
    order: str,
    descending: bool,
    limit: int,
    place: tuple[Any, int] | None,
) -> list[Row]:
    """Return the next files that may match; search only the next `_NEAR` files at first."""
    scan = snapshot.scan(predicate)
    ids = _next_ids(snapshot, order, descending, _NEAR + limit, place)
    by_id = {row[0]: row for row in _rows(to_arrow(scan.files_among(ids)))} if ids else {}
    near = [by_id[each] for each in ids if each in by_id]
    if len(near) >= limit or len(ids) < _NEAR + limit:
        return near[:limit]
    # Few files match: plan the scan of the whole table.
    found = scan.arrow
    column = {"added": "file_id", "size": "size", "path": "path"}[order]
    if place is not None:
        beyond = pc.less if descending else pc.greater
        later = beyond(found[column], place[0])
        same = pc.and_(pc.equal(found[column], place[0]), beyond(found["file_id"], place[1]))
        found = found.filter(pc.or_(later, same))
    way = "descending" if descending else "ascending"
    keys = [(column, way), ("file_id", way)] if column != "file_id" else [(column, way)]
    return _rows(found.take(pc.select_k_unstable(found, limit, keys)))


def _rows(found: pa.Table) -> list[Row]:
    names = (
        "file_id",
        "path",
        "partition",
        "size",
        "num_records",
        "modification_time",
        "added_version",
        "stats",
        "deletion_vector",
    )
    return [tuple(row[name] for name in names) for row in found.select(names).to_pylist()]


def _partitions(snapshot: Snapshot, rows: Sequence[Row]) -> dict[int, str]:
    """Return partition values by id; the rows of a scan contain the values instead of ids."""
    ids = sorted({row[2] for row in rows if isinstance(row[2], int)})
    if not ids:
        return {}
    table_id = snapshot.table.table_id
    found = snapshot.store.query("partition_values_of", table_id=table_id, partition_ids=ids)
    return dict(found)


def _entry(row: Row, partition: str | None, names: Mapping[str, str]) -> FileEntry:
    vector = load_dv(row[8])
    deleted = 0 if vector is None else vector.cardinality
    return FileEntry(
        path=row[1],
        partition=partition_of(partition, names),
        bytes=row[3],
        rows=None if row[4] is None else row[4] - deleted,
        modified_at=from_ms(row[5]),
        added_version=row[6],
        stats=load(row[7]),
        has_deletion_vector=vector is not None,
        deleted_rows=deleted,
    )
