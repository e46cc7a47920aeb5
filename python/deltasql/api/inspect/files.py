"""The files of a version, a page at a time, in any order, all or those a predicate leaves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from deltasql.api.inspect.page import Page, Shown, cut, page_size, read_cursor, write_cursor
from deltasql.api.inspect.stats import partition_names, partition_of
from deltasql.model.clock import from_ms
from deltasql.store.records import load, load_dv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from deltasql.api.table import CatalogTable
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.store.dialect import Row

ORDERS = ("added", "size", "path")
_LARGEST = 2**62


@dataclass(frozen=True, slots=True)
class FileEntry(Shown):
    """A live file of a version."""

    path: str
    partition: dict[str, str | None]
    bytes: int
    rows: int | None  # live ones
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
    """Return files; with a predicate those that can hold a row for which it is true."""
    if order not in ORDERS:
        raise ValueError(f"order is one of {', '.join(ORDERS)}; got {order!r}")
    page_size(limit)
    kind = f"files by {order}{' down' if descending else ''}"
    place, at = None, version
    if cursor is not None:
        # The pages of one listing are of one state of the table, whatever is committed meanwhile.
        *place, at = read_cursor(kind, cursor, _TYPES[order], int, int)
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


def _page(
    snapshot: Snapshot, order: str, descending: bool, limit: int, place: Sequence[Any] | None
) -> list[Row]:
    store = snapshot.store
    key = {
        "table_id": snapshot.table.table_id,
        "version": snapshot.version,
        "next_file_id": snapshot.next_file_id,
        "limit": limit,
    }
    if order == "added":
        if descending:
            after = _LARGEST if place is None else place[1]
            return store.query("page_by_added_down", after_id=after, **key)
        return store.query("page_by_added", after_id=-1 if place is None else place[1], **key)
    # First which files, then all of them: a sort of short rows is cheaper.
    if order == "size" and descending:
        at = (_LARGEST, _LARGEST) if place is None else place
        chosen = store.query("sizes_down", after_size=at[0], after_id=at[1], **key)
    elif order == "size":
        at = (-1, -1) if place is None else place
        chosen = store.query("sizes_up", after_size=at[0], after_id=at[1], **key)
    elif descending:
        at = (None, _LARGEST) if place is None else place
        chosen = store.query("paths_down", before_path=at[0], after_id=at[1], **key)
    else:
        at = ("", -1) if place is None else place
        chosen = store.query("paths_up", after_path=at[0], after_id=at[1], **key)
    ids = [row[1] for row in chosen]
    if not ids:
        return []
    rows = store.query("page_files", table_id=snapshot.table.table_id, file_ids=ids)
    by_id = {row[0]: row for row in rows}
    return [by_id[each] for each in ids]


def _matching(
    snapshot: Snapshot,
    predicate: str,
    order: str,
    descending: bool,
    limit: int,
    place: Sequence[Any] | None,
) -> list[Row]:
    """Let the planner find the files, then take the page out of them."""
    found = snapshot.scan(predicate).arrow
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
    """Return the partition values of rows that have only an id; those of a scan have them."""
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
