"""Read and cache the live files of a version, with the same Arrow schema from every database."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from deltasql import _core

if TYPE_CHECKING:
    import pyarrow as pa

    from deltasql.store.dialect import Row
    from deltasql.store.store import Store

Columns = Literal["files_all", "files_brief", "files_to_read"]
# The statements return '' instead of NULL for strings, because SQLite columns get their types from
# the values.
_FULL = {
    "file_id": "int64",
    "path": "string",
    "partition_id": "int64",
    "size": "int64",
    "modification_time": "int64",
    "data_change": "bool",
    "stats": "string",
    "num_records": "int64",
    "tags": "string",
    "deletion_vector": "string",
    "base_row_id": "int64",
    "default_row_commit_version": "int64",
    "clustering_provider": "string",
    "extra": "string",
    "added_version": "int64",
}
_COMMON = ("file_id", "path", "partition_id", "size", "modification_time")
COLUMNS = {
    "files_all": _FULL,
    "files_brief": {name: _FULL[name] for name in (*_COMMON, "num_records", "added_version")},
    "files_to_read": {name: _FULL[name] for name in (*_COMMON, "num_records", "deletion_vector")},
}
# Every refresh of the cache appends a chunk. If there are more than this, they are combined into
# one.
_MAX_CHUNKS = 64
_EXPIRED = -1  # in the result of `removed_ids_between`


@cache
def arrow_schema(statement: str) -> pa.Schema:
    """Return the Arrow schema of the rows of a statement."""
    import pyarrow as pa  # lazy import: start-up time

    types = {"int64": pa.int64(), "string": pa.string(), "bool": pa.bool_()}
    return pa.schema([(name, types[kind]) for name, kind in COLUMNS[statement].items()])


def read_files(
    store: Store,
    columns: Columns,
    *,
    table_id: int,
    version: int,
    first_file_id: int,
    next_file_id: int,
) -> pa.Table:
    """Read the files of a version in a range of ids: as rows if they are few, else as Arrow."""
    params = {
        "table_id": table_id,
        "version": version,
        "first_file_id": first_file_id,
        "next_file_id": next_file_id,
    }
    if next_file_id - first_file_id < store.dialect.bulk_files:
        return to_arrow(from_rows(store.query(columns, **params), columns))
    return from_arrow(store.arrow(columns, **params), columns)


def from_arrow(table: pa.Table, statement: str) -> pa.Table:
    """Cast the result of a bulk read to the common schema."""
    schema = arrow_schema(statement)
    return table if table.schema.equals(schema) else table.cast(schema)


def from_rows(rows: list[Row], statement: str) -> _core.FileList:
    """Return rows of a statement as a list of files."""
    return _core.FileList.from_rows(rows, list(COLUMNS[statement].items()))


def to_arrow(files: _core.FileList) -> pa.Table:
    """Return a list of files as Arrow."""
    import pyarrow as pa  # lazy import: start-up time

    return pa.RecordBatchReader.from_stream(files).read_all()


@dataclass(frozen=True, slots=True)
class _Entry:
    version: int
    next_file_id: int
    files: pa.Table


class FileCache:
    """A cache of the live files of recently used tables, limited to `max_bytes` in total."""

    def __init__(self, max_bytes: int, max_entries: int) -> None:
        self._max_bytes, self._max_entries = max_bytes, max_entries
        self._entries: OrderedDict[tuple[int, Columns], _Entry] = OrderedDict()
        self._guard = threading.Lock()

    def files(
        self, store: Store, columns: Columns, *, table_id: int, version: int, next_file_id: int
    ) -> pa.Table:
        """Return the files of a version; the cache is updated or filled if needed."""
        key: tuple[int, Columns] = (table_id, columns)
        entry, whole = self._get(key), self._get((table_id, "files_all"))
        if entry is not None and entry.version == version:
            return entry.files
        if whole is not None and whole.version == version:
            return whole.files.select([*COLUMNS[columns]])
        at = {"table_id": table_id, "version": version, "next_file_id": next_file_id}
        files = None
        if entry is not None and entry.version < version:
            files = _refresh(store, columns, entry, **at)
        if files is None:
            files = read_files(store, columns, first_file_id=0, **at)
            if not files.num_rows:  # statements return no files of an expired version
                store.check_version(table_id, version)
            if entry is not None and entry.version > version:
                return files  # this version is older than the cached one, so keep the entry
        self._put(key, _Entry(version, next_file_id, files))
        return files

    def _get(self, key: tuple[int, Columns]) -> _Entry | None:
        with self._guard:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def _put(self, key: tuple[int, Columns], entry: _Entry) -> None:
        with self._guard:
            present = self._entries.get(key)
            if present is not None and present.version > entry.version:
                return  # another thread has already cached a later version
            self._entries[key] = entry
            self._entries.move_to_end(key)
            while len(self._entries) > self._max_entries or (
                self._entries
                and sum(e.files.nbytes for e in self._entries.values()) > self._max_bytes
            ):
                self._entries.popitem(last=False)

    def clear(self) -> None:
        """Remove all entries."""
        with self._guard:
            self._entries.clear()


def removed_ids(store: Store, *, table_id: int, after: int, last: int) -> list[int] | None:
    """Return the ids of the files that the versions after `after` removed.

    Returns None if the version `after` has expired, so that not all of them are known.
    """
    rows = store.query("removed_ids_between", table_id=table_id, after=after, last=last)
    found = [row[0] for row in rows]
    return None if _EXPIRED in found else found


def _refresh(
    store: Store,
    columns: Columns,
    entry: _Entry,
    *,
    table_id: int,
    version: int,
    next_file_id: int,
) -> pa.Table | None:
    """Return the cached files with the changes between the cached version and this one.

    Returns None if the cached version has expired, so that not all changes are known.
    """
    import pyarrow as pa  # lazy import: start-up time

    files, more = entry.files, None
    if next_file_id > entry.next_file_id:
        more = read_files(
            store,
            columns,
            table_id=table_id,
            version=version,
            first_file_id=entry.next_file_id,
            next_file_id=next_file_id,
        )
    # This is the last query: if the cached version still exists, all queries were complete.
    removed = removed_ids(store, table_id=table_id, after=entry.version, last=version)
    if removed is None:
        return None
    if removed:
        import pyarrow.compute as pc  # lazy import: slow, and not needed for a first read

        gone = pa.array(removed, pa.int64())
        files = files.filter(pc.invert(pc.is_in(files["file_id"], value_set=gone)))
    if more is not None:
        files = pa.concat_tables([files, more])
    return files.combine_chunks() if files["file_id"].num_chunks > _MAX_CHUNKS else files
