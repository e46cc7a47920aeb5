"""Query the database for the files of a table that are needed or that a vacuum may delete.

Other tables of the catalog may also need files of the table: a shallow clone reads files of its
source table, and in catalogs of earlier releases two tables may share a folder.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import unquote

from deltasql.exceptions import TxnLogConfigError, TxnLogStorageError, VersionNotFoundError
from deltasql.exceptions.prefixes import GENERIC_ERROR, KERNEL_ERROR
from deltasql.model.clock import now_ms
from deltasql.model.deletion_vector import vector_file
from deltasql.model.properties import TableProperties
from deltasql.model.schema.schema import column_mapping_mode
from deltasql.operations.vacuum.unreferenced import VacuumRule
from deltasql.snapshot.snapshot import open_snapshot
from deltasql.storage import parse_location
from deltasql.storage.location import data_name, is_absolute, location_key
from deltasql.store.locations import tables_around, tables_at
from deltasql.store.records import load, load_dv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Set

    from deltasql.model.progress import Meter
    from deltasql.operations.vacuum.unreferenced import FindUnreferenced
    from deltasql.snapshot.files import FileCache
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.storage import Storage
    from deltasql.store.dialect import Row
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

VACUUMED_BEFORE, VACUUM_RETAINED, VACUUM_KEPT = "vacuumedBefore", "vacuumRetained", "vacuumKept"
VACUUM_SPARED = "vacuumSpared"
"""Keys in the commitInfo of VACUUM END, which tell the next vacuum where to start.

All files that were removed before the time VACUUMED_BEFORE, up to version VACUUM_RETAINED, have
been deleted, except the files of the versions in VACUUM_KEPT. VACUUM_SPARED means that the vacuum
did not delete some files because other tables need them. The other values are then those of the
previous vacuum, so that the next vacuum checks these files again.

VACUUM START has VACUUM_KEPT too. Its value is always the one of this vacuum.
"""
_PAGE = 100_000  # file ids that one query reads
_NO_END = 2**62
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class LastVacuum:
    """The version and time up to which earlier vacuums deleted files, and the kept versions."""

    retained: int = -1
    before_ms: int = -1
    kept: tuple[int, ...] = ()
    spared: bool = False
    """Whether a later vacuum deleted files, but did not delete some that other tables need."""


def protected_versions(store: Store, table_id: int) -> set[int]:
    """Return the versions that the last vacuum was asked to keep, or whose files it kept.

    VACUUM START contains them while the vacuum runs, and afterwards if it failed or if it kept
    files for other tables.
    """
    found: set[int] = set()
    for operation in ("VACUUM START", "VACUUM END"):
        for _, extra in store.query("last_operation", table_id=table_id, operation=operation):
            found.update((load(extra) or {}).get(VACUUM_KEPT, ()))
    return found


class FileSearch:
    """Finds the files of one table that a vacuum keeps or deletes."""

    def __init__(
        self, snapshot: Snapshot, before_ms: int, keep_versions: Sequence[int] = ()
    ) -> None:
        self.snapshot, self.before_ms = snapshot, before_ms
        self._place = parse_location(snapshot.table.location)
        self.store, self.table_id = snapshot.store, snapshot.table.table_id
        self.keep_versions = keep_versions
        self.first_retained = self._version_at(before_ms)
        for version in keep_versions:
            if not self.store.query("head_at_version", table_id=self.table_id, version=version):
                raise VersionNotFoundError(
                    f"LogSegment end version {snapshot.version} not the same as the specified end "
                    f"version {version}: {snapshot.table.full_name} has no version {version}, "
                    "which keep_versions names",
                    version=version,
                    prefix=GENERIC_ERROR + KERNEL_ERROR,
                    latest=snapshot.version,
                )

    def tombstones(self) -> Iterator[tuple[str, int]]:
        """Yield the name and size of files that were removed before the retention period.

        Also yield the files of their deletion vectors.
        """
        last = self.last_vacuum
        rows = self.store.query(
            "tombstones_between",
            table_id=self.table_id,
            before_ms=self.before_ms,
            after_version=last.retained,
            after_ms=last.before_ms,
        )
        for version in last.kept:
            rows += self.store.query("files_at", table_id=self.table_id, version=version)
        for path, size, vector in rows:
            yield from ((name, size) for name in self._names(path))
            yield from ((name, 0) for name in self._names(_vector_path(vector)))

    def change_data(self) -> Iterator[tuple[str, int]]:
        """Yield the name and size of change data files of versions that are not retained."""
        first, last = self.last_vacuum.retained, self.first_retained
        spans = [(first, last), *((kept, kept + 1) for kept in self.last_vacuum.kept)]
        for start, end in spans:
            rows = self.store.query(
                "change_files_between", table_id=self.table_id, first=start, before=min(end, last)
            )
            for version, path, size in rows:
                if version not in self.keep_versions:
                    yield from ((name, size) for name in self._names(path))

    def intents(self) -> list[tuple[str, str, str, int]]:
        """Return (transaction, path, name, time) of the intents, whose files have no commit yet."""
        prefix = f"{self.snapshot.table.location}/"
        return [
            (txn_id, path, path.removeprefix(prefix), at_ms)
            for txn_id, path, at_ms in self.store.query("staged_files_of", table_id=self.table_id)
            if path.startswith(prefix)
        ]

    def unreferenced(
        self, storage: Storage, before_ms: int, find: FindUnreferenced, meter: Meter
    ) -> Iterator[tuple[str, int]]:
        """Yield old files in the table's folder that no version references."""
        location = self.snapshot.table.location
        rule = VacuumRule(location, before_ms, tuple(partition_names(self.snapshot)))
        found = find(rule, storage, self.needed(), meter)
        tables = tuple(found.tables)
        yield from ((n, size) for n, size in found.sizes.items() if not n.startswith(tables))

    def needed(self) -> frozenset[str]:
        """Return the names of all files that a retained or kept version references."""
        return frozenset(name for path in self._needed_paths() for name in self._names(path))

    def needed_of(self, names: Set[str]) -> frozenset[str]:
        """Return the names in `names` that a retained or kept version references.

        Unlike `needed`, this does not read the names of all files into memory.
        """
        found: set[str] = set()
        for path in self._needed_paths():
            if "%" in path or ":" in path or path.startswith("/"):
                found.update(name for name in self._names(path) if name in names)
            elif path in names:  # neither encoded nor absolute: the path is the name
                found.add(path)
        return frozenset(found)

    def _needed_paths(self) -> Iterator[str]:
        kept = (
            self.store.query("files_at", table_id=self.table_id, version=version)
            for version in self.keep_versions
        )
        for path, _, vector in chain(self._files_since(), chain.from_iterable(kept)):
            yield path
            if vector and (name := _vector_path(vector)) is not None:
                yield name
        changes = self.store.query(
            "change_files_since", table_id=self.table_id, version=max(self.first_retained, 0)
        )
        yield from (path for (path,) in changes)

    def _files_since(self) -> Iterator[Row]:
        """Yield the files of the first retained version and of all later versions, in pages."""
        # The last page has no upper bound, to include versions committed after the snapshot.
        pages = range(0, max(1, self.snapshot.next_file_id), _PAGE)
        for first in pages:
            yield from self.store.query(
                "files_since",
                table_id=self.table_id,
                version=self.first_retained,
                first_file_id=first,
                next_file_id=_NO_END if first == pages[-1] else first + _PAGE,
            )

    def _version_at(self, timestamp_ms: int) -> int:
        """Return the version that was the latest at a time; -1 before the first version."""
        rows = self.store.query("head_at_time", table_id=self.table_id, timestamp_ms=timestamp_ms)
        return rows[0][1] if rows else -1

    @cached_property
    def last_vacuum(self) -> LastVacuum:
        rows = self.store.query("last_operation", table_id=self.table_id, operation="VACUUM END")
        info = (load(rows[0][1]) or {}) if rows else {}
        if VACUUMED_BEFORE not in info:
            return LastVacuum()
        # The time alone does not identify a version: the vacuum may have retained only some of
        # several commits in the same millisecond.
        return LastVacuum(
            int(info.get(VACUUM_RETAINED, -1)),
            int(info[VACUUMED_BEFORE]),
            tuple(info.get(VACUUM_KEPT, ())),
            bool(info.get(VACUUM_SPARED)),
        )

    def _names(self, path: str | None) -> tuple[str, ...]:
        """Return the file's name below the table's location; empty for a file outside of it."""
        if path is None:
            return ()
        try:
            return (data_name(self._place, path),)
        except TxnLogStorageError:
            return ()


def _vector_path(text: str) -> str | None:
    vector = load_dv(text)
    return None if vector is None else vector_file(vector)


def partition_names(snapshot: Snapshot) -> set[str]:
    """Return the logical and physical names of the partition columns; folder names use either."""
    mode = column_mapping_mode(snapshot.metadata.configuration)
    columns = [snapshot.schema.find(name) for name in snapshot.partition_columns]
    physical = {column.physical_name(mode) for column in columns if column is not None}
    return physical | set(snapshot.partition_columns)


def needed_elsewhere(snapshot: Snapshot, names: Set[str], before_ms: int) -> set[str]:
    """Return which of the files with these names other tables of the catalog need."""
    if not names:
        return set()
    store, table = snapshot.store, snapshot.table
    key = location_key(table.location)
    outside = store.query("files_outside", table_id=table.table_id, before_ms=before_ms)
    folder_key = functools.cache(location_key)  # resolve links only once for each folder
    paths = (path for row in outside for path in (row[0], _vector_path(row[1])))
    keys = (_file_key(path, folder_key) for path in paths if path)
    found = {each[len(key) :] for each in keys if each.startswith(key)}
    here = tables_at(store.query, table.location)
    for other in (*here, *tables_around(store.query, table.location)):
        if other.table_id != table.table_id and other.dropped_at_ms is None:
            prefix = key.removeprefix(location_key(other.location))
            its = needed_names(store, snapshot.cache, other, before_ms)
            found.update(name[len(prefix) :] for name in its if name.startswith(prefix))
    return found & names


def needed_names(store: Store, cache: FileCache, other: TableRow, before_ms: int) -> Iterator[str]:
    """Yield the names of the files that another table needs or has intents for."""
    its = open_snapshot(store, other, cache)
    retention = TableProperties(its.metadata.configuration).deleted_file_retention
    its_before_ms = min(before_ms, now_ms() - retention // _MILLISECOND)
    search = FileSearch(its, its_before_ms)
    yield from search.needed()
    yield from (name for _, _, name, _ in search.intents())


def _file_key(path: str, folder_key: Callable[[str], str]) -> str:
    """Return an absolute path in its canonical form, as in location keys; "" for other paths."""
    if not is_absolute(path):
        return ""
    is_url = not path.startswith("/")
    folder, slash, name = (path if is_url else unquote(path)).rpartition("/")
    try:
        return f"{folder_key(folder + slash)}{unquote(name) if is_url else name}"
    except TxnLogConfigError:  # a scheme that no table of the catalog can have
        return ""
