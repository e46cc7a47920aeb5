"""The differences between two versions of a table: schema, files and, optionally, rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltasql.api.inspect.definition import (
    ColumnChange,
    ValueChange,
    column_changes,
    metadata_changes,
    protocol_changes,
)
from deltasql.api.inspect.page import page_size
from deltasql.api.inspect.stats import partition_names, partition_of
from deltasql.engine.choose import open_engine
from deltasql.model.report import Report
from deltasql.operations.changes.diff import row_difference
from deltasql.store.records import load_dv

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.store.dialect import Row


@dataclass(frozen=True, slots=True)
class FileTotals(Report):
    """Totals of files; `rows` is None if a file has no row count."""

    files: int
    bytes: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class FileChange(Report):
    """A file that only one of the versions has; `version` added or removed it."""

    path: str
    partition: dict[str, str | None]
    bytes: int
    rows: int | None
    version: int


@dataclass(frozen=True, slots=True)
class RowDiff(Report):
    """Inserted and deleted rows, with the columns that are in both versions."""

    columns: tuple[str, ...]
    inserted: tuple[dict[str, Any], ...]
    deleted: tuple[dict[str, Any], ...]
    more: bool


@dataclass(frozen=True, slots=True)
class VersionDiff(Report):
    """The differences from version `first` to version `last`; `last` may be the earlier one."""

    name: str
    first: int
    last: int
    commits: int
    protocol: tuple[ValueChange, ...]
    metadata: tuple[ValueChange, ...]
    schema: tuple[ColumnChange, ...]
    added: FileTotals
    removed: FileTotals
    added_files: tuple[FileChange, ...]
    removed_files: tuple[FileChange, ...]
    more_files: bool
    rows: RowDiff | None


def diff(
    catalog: BaseCatalog,
    name: str,
    first: int,
    last: int,
    *,
    files_limit: int,
    rows: bool,
    rows_limit: int,
) -> VersionDiff:
    """Compare two versions. If `last` is the earlier one, "added" means only present in `last`."""
    table = catalog.table(name)
    old, new = table.snapshot(min(first, last)), table.snapshot(max(first, last))
    added = _files(new, old, page_size(files_limit), is_added=True)
    removed = _files(new, old, files_limit, is_added=False)
    found = None
    if rows:
        with open_engine(catalog.config) as engine:
            rows_found = row_difference(
                engine, catalog.config, old, new, limit=page_size(rows_limit)
            )
        sides = (rows_found.inserted, rows_found.deleted)
        found = RowDiff(
            rows_found.columns, *(sides if first <= last else sides[::-1]), rows_found.more
        )
    if first > last:
        added, removed = removed, added
    start, end = (old, new) if first <= last else (new, old)
    return VersionDiff(
        name=table.full_name,
        first=first,
        last=last,
        commits=abs(last - first),
        protocol=tuple(protocol_changes(start.protocol, end.protocol)),
        metadata=tuple(metadata_changes(start.metadata, end.metadata)),
        schema=tuple(column_changes(start.metadata, end.metadata)),
        added=added[0],
        removed=removed[0],
        added_files=added[1],
        removed_files=removed[1],
        more_files=added[2] or removed[2],
        rows=found,
    )


def _files(
    new: Snapshot, old: Snapshot, limit: int, *, is_added: bool
) -> tuple[FileTotals, tuple[FileChange, ...], bool]:
    """Return totals and the first files that were added, or removed, between two versions."""
    key = {
        "table_id": new.table.table_id,
        "first_file_id": old.next_file_id,
        "last": new.version,
    }
    query = new.store.query
    if is_added:
        key["next_file_id"] = new.next_file_id
        sums, page, vectors = "came_sums", "came_page", "came_vectors"
    else:
        key["first"] = old.version
        sums, page, vectors = "went_sums", "went_page", "went_vectors"
    rows = query(page, limit=limit + 1, **key)
    files, size, records, counted, with_vector = map(int, query(sums, **key)[0])
    if with_vector:
        records -= sum(_deleted(row[0]) for row in query(vectors, **key))
    old.check_not_expired()
    names = partition_names((new if is_added else old).metadata)
    version = 5 if is_added else 6  # the position of the version in a row
    changes = tuple(_change(row, row[version], names) for row in rows[:limit])
    return FileTotals(files, size, records if counted == files else None), changes, files > limit


def _change(row: Row, version: int, names: Mapping[str, str]) -> FileChange:
    live = None if row[4] is None else row[4] - _deleted(row[7])
    return FileChange(row[1], partition_of(row[2], names), row[3], live, version)


def _deleted(text: str | None) -> int:
    """Return the number of rows that a deletion vector deletes."""
    vector = load_dv(text)
    return 0 if vector is None else vector.cardinality
