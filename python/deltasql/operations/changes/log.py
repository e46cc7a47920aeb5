"""The files that each version added, removed or wrote as change data, read from the database."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltasql.exceptions import VersionNotFoundError
from deltasql.model.deletion_vector import vector_file
from deltasql.model.schema.schema import StructType, column_mapping_mode
from deltasql.storage import storage_of
from deltasql.store.records import load_dv, metadata_from_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from deltasql.config import StorageSettings
    from deltasql.model.actions import Metadata
    from deltasql.store.dialect import Row
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

_PAGE = 256
_LOOKS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that a version added, removed, or wrote as change data."""

    path: str
    partition: str
    """The partition values as JSON."""
    vector: str
    size: int
    stats: str | None
    may_be_gone: bool
    """Whether a vacuum may have deleted the file, because it is not live any more."""


@dataclass(slots=True)
class VersionChanges:
    """The files of one version, without files whose dataChange is false."""

    version: int
    committed_at_ms: int
    partitioned_before: tuple[str, ...] = ()
    """Physical names of the partition columns of the removed files."""
    partitioned_by: tuple[str, ...] = ()
    added: list[ChangedFile] = field(default_factory=list)
    removed: list[ChangedFile] = field(default_factory=list)
    change_data: list[ChangedFile] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files())

    def files(self) -> list[ChangedFile]:
        """Return the files to read: if there is change data, only the change data."""
        return self.change_data or [*self.added, *self.removed]


class ChangeLog:
    """The file changes of one table, by version."""

    def __init__(self, store: Store, table: TableRow, settings: StorageSettings) -> None:
        self._store, self.table, self._settings = store, table, settings

    def bounds(self) -> tuple[int, int]:
        """Return the first version whose changes are in the log, and the latest version."""
        low, high = self._store.query("version_bounds", table_id=self.table.table_id)[0]
        # If the log was imported from a checkpoint, the first commit adds the whole table. The
        # changes of that version are not known.
        return (low if low == 0 else low + 1), high

    def require_start(self, version: int, instead: str = "") -> None:
        """Raise VersionNotFoundError if the changes of a version are not in the log any more."""
        first, _ = self.bounds()
        if version < first:
            name = self.table.full_name
            raise VersionNotFoundError(
                f"the changes of version {version} of {name} are not in the log: they were expired "
                "or not imported",
                table=name,
                version=version,
                help=f"Start at version {first} or later{instead}.",
            )

    def metadata_between(self, first: int, last: int) -> list[tuple[int, Metadata]]:
        """Return the metadata changes of the versions."""
        rows = self._query("metadata_between", after=first - 1, last=last)
        return [(row[0], metadata_from_row(row)) for row in rows]

    def versions(self, first: int, last: int) -> Iterator[VersionChanges]:
        """Yield the changes of each version in order; they are fetched in pages."""
        start = first
        while start <= last:
            page = self._page(start, last)
            if not page:
                return
            yield from page
            start = page[-1].version + 1

    def require(self, changes: Iterable[VersionChanges], last: int) -> None:
        """Raise if files of these versions are missing; the error names the first readable version.

        Versions up to `last` are checked to find the first readable version.
        """
        for each in changes:
            missing = self._missing(each)
            if missing:
                later = self.versions(each.version + 1, last)
                broken = max((v.version for v in later if self._missing(v)), default=each.version)
                raise VersionNotFoundError(
                    f"the changes of version {each.version} of {self.table.full_name} can no "
                    f"longer be read: {len(missing)} of its files are missing, such as "
                    f"{missing[0]}",
                    table=self.table.full_name,
                    version=each.version,
                    help=f"Start at version {broken + 1} or later, or start with a snapshot.",
                )

    def _missing(self, changes: VersionChanges) -> list[str]:
        old = [file for file in changes.files() if file.may_be_gone]
        vectors = {file.vector: load_dv(file.vector) for file in old if file.vector}
        suspects = [file.path for file in old]
        suspects += {name for each in vectors.values() if each and (name := vector_file(each))}
        if not suspects:
            return []
        with ThreadPoolExecutor(min(_LOOKS_AT_ONCE, len(suspects))) as pool:
            found = list(pool.map(self._exists, suspects))
        return [path for path, there in zip(suspects, found, strict=True) if not there]

    def _exists(self, path: str) -> bool:
        storage, name = storage_of(self.table.location, path, self._settings)
        return storage.exists(name)

    def _page(self, first: int, last: int) -> list[VersionChanges]:
        # Include the version before `first`: its row has the first file id of version `first`.
        rows = self._query("versions_between", first=first - 1, last=last, limit=_PAGE + 1)
        first_file_id = 0
        if rows and rows[0][0] < first:
            first_file_id = rows.pop(0)[2]
        else:  # it has expired since the caller looked up the first version
            self._store.check_version(self.table.table_id, max(first - 1, 0))
        if not rows:
            return []
        span = {"after": first - 1, "last": rows[-1][0]}
        found = {row[0]: VersionChanges(row[0], row[1]) for row in rows}
        added = self._query(
            "files_added_between", first_file_id=first_file_id, next_file_id=rows[-1][2]
        )
        for row in added:
            if row[5]:
                found[row[6]].added.append(_file(row))
        rearranged: defaultdict[int, set[str]] = defaultdict(set)
        for version, path in self._query("rearranged_between", **span):
            rearranged[version].add(path)
        for row in self._query("files_ended_between", **span):
            if row[0] not in rearranged[row[6]]:
                found[row[6]].removed.append(_file(row))
        for version, path, partition, size, *_ in self._query("cdc_between", **span):
            file = ChangedFile(path, partition or "{}", "", size, None, may_be_gone=True)
            found[version].change_data.append(file)
        self._set_partitioning(list(found.values()))
        self._store.check_version(self.table.table_id, max(first - 1, 0))
        return list(found.values())

    def _set_partitioning(self, page: list[VersionChanges]) -> None:
        written = dict(self.metadata_between(page[0].version, page[-1].version))
        rows = self._query("metadata_at", version=page[0].version - 1)
        columns = physical_partitioning(metadata_from_row(rows[0])) if rows else ()
        for each in page:
            each.partitioned_before = columns
            if each.version in written:
                columns = physical_partitioning(written[each.version])
            each.partitioned_by = columns

    def _query(self, name: str, **params: int) -> list[Row]:
        return self._store.query(name, table_id=self.table.table_id, **params)


def changed_files(listed: pa.Table, *, may_be_gone: bool) -> list[ChangedFile]:
    """Return the files of a scan in the order in which they were added."""
    names = ("path", "partition", "deletion_vector", "size", "stats")
    columns = [listed.sort_by("file_id")[name].to_pylist() for name in names]
    return [
        ChangedFile(path, partition or "{}", vector or "", size, stats, may_be_gone)
        for path, partition, vector, size, stats in zip(*columns, strict=True)
    ]


def physical_partitioning(metadata: Metadata) -> tuple[str, ...]:
    """Return the physical names of the partition columns, which a rename does not change."""
    schema = StructType.from_json(metadata.schema_string)
    mode = column_mapping_mode(metadata.configuration)
    found = [schema.find(name) for name in metadata.partition_columns]
    return tuple(field.physical_name(mode) for field in found if field is not None)


def _file(row: Row) -> ChangedFile:
    path, partition, vector, size, stats = row[:5]
    return ChangedFile(path, partition or "{}", vector or "", size, stats, row[7] is not None)
