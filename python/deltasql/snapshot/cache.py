"""A bounded cache of live files as Arrow, refreshed with the changes of later versions."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.snapshot.files import SCHEMAS, Columns, read_files

if TYPE_CHECKING:
    from deltasql.snapshot.snapshot import Snapshot

# Every refresh appends a chunk; beyond this number they are combined into one.
_MAX_CHUNKS = 64


@dataclass(frozen=True, slots=True)
class _Entry:
    version: int
    next_file_id: int
    files: pa.Table


class FileCache:
    """Live files of recently used tables, at most `max_bytes` in all."""

    def __init__(self, max_bytes: int, max_entries: int) -> None:
        self._max_bytes, self._max_entries = max_bytes, max_entries
        self._entries: OrderedDict[tuple[int, Columns], _Entry] = OrderedDict()
        self._guard = threading.Lock()

    def files(self, snapshot: Snapshot, columns: Columns) -> pa.Table:
        """Return the files of a snapshot: from the cache, refreshed, or fetched."""
        key = (snapshot.table.table_id, columns)
        entry, whole = self._get(key), self._get((key[0], "files_all"))
        if entry is not None and entry.version == snapshot.version:
            return entry.files
        if whole is not None and whole.version == snapshot.version:
            return whole.files.select(SCHEMAS[columns].names)
        if entry is not None and entry.version < snapshot.version:
            files = _refresh(snapshot, columns, entry)
        else:
            files = _fetch(snapshot, columns, first_file_id=0)
            if entry is not None:
                return files  # an older version: keep the newer entry
        self._put(key, _Entry(snapshot.version, snapshot.next_file_id, files))
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
                return  # another thread stored a later version
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


def _fetch(snapshot: Snapshot, columns: Columns, *, first_file_id: int) -> pa.Table:
    """Fetch the files of a snapshot with ids from `first_file_id` on."""
    return read_files(
        snapshot.store,
        columns,
        table_id=snapshot.table.table_id,
        version=snapshot.version,
        first_file_id=first_file_id,
        next_file_id=snapshot.next_file_id,
    )


def _refresh(snapshot: Snapshot, columns: Columns, entry: _Entry) -> pa.Table:
    """Apply the changes between the cached version and this one."""
    removed = snapshot.store.query(
        "removed_ids_between",
        table_id=snapshot.table.table_id,
        after=entry.version,
        last=snapshot.version,
    )
    files = entry.files
    if removed:
        import pyarrow.compute as pc  # here: it loads slowly, and a first read does not need it

        gone = pa.array([row[0] for row in removed], pa.int64())
        files = files.filter(pc.invert(pc.is_in(files["file_id"], value_set=gone)))
    if snapshot.next_file_id > entry.next_file_id:
        more = _fetch(snapshot, columns, first_file_id=entry.next_file_id)
        files = pa.concat_tables([files, more])
    return files.combine_chunks() if files["file_id"].num_chunks > _MAX_CHUNKS else files
