"""Snapshot: a table at a version. Scan: the files of a snapshot that can match a predicate.

Opening a snapshot is cheap, because its content is fetched on first use.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from deltasql import _core, telemetry
from deltasql.exceptions import TxnLogTableNotFoundError, VersionNotFoundError
from deltasql.model.clock import from_ms, to_ms
from deltasql.model.protocol import check_readable, reader_features
from deltasql.model.schema.schema import StructType, column_mapping_mode
from deltasql.snapshot.files import from_arrow, from_rows, to_arrow
from deltasql.store.records import (
    UNPARTITIONED,
    Head,
    TableRow,
    VersionRow,
    domain_from_row,
    txn_from_row,
)
from deltasql.store.store import version_not_found

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    import pyarrow as pa

    from deltasql.model.actions import DomainMetadata, Metadata, Protocol, SetTransaction
    from deltasql.model.predicates.parser import Flavour
    from deltasql.model.predicates.predicate import Bound, Predicate
    from deltasql.snapshot.files import Columns, FileCache
    from deltasql.store.dialect import Row
    from deltasql.store.records import SkippingColumn
    from deltasql.store.store import Store

HISTORY_PAGE = 1000
_TABLE_COLUMNS = 8  # the columns of TableRow, which come first in a row
# If more than this share of all files is needed, one sequential read is faster than index lookups.
_FETCH_ALL_SHARE = 0.3
_BULK_FILES = 10_000


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of the live files; `num_records` is None if a file has no statistics.

    `num_records` includes the rows that deletion vectors delete.
    """

    num_files: int
    size_bytes: int
    num_records: int | None


class Snapshot:
    """One version of one table."""

    def __init__(self, store: Store, table: TableRow, cache: FileCache, head: Head) -> None:
        self.store, self.table, self.cache = store, table, cache
        self.version = head.version
        self.committed_at_ms = head.committed_at_ms
        self.next_file_id = head.next_file_id
        self._metadata_version = head.metadata_version
        self._protocol_version = head.protocol_version

    def __repr__(self) -> str:
        return f"Snapshot({self.table.full_name!r}, version={self.version})"

    # Definition

    @property
    def metadata(self) -> Metadata:
        """Schema, partitioning and properties of the table at this version."""
        return self.store.metadata(self.table.table_id, self._metadata_version)

    @property
    def protocol(self) -> Protocol:
        """The protocol versions and table features at this version."""
        return self.store.protocol(self.table.table_id, self._protocol_version)

    @cached_property
    def schema(self) -> StructType:
        """The table's columns."""
        return StructType.from_json(self.metadata.schema_string)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.metadata.partition_columns

    @property
    def committed_at(self) -> datetime:
        """The time at which this version was ratified."""
        return from_ms(self.committed_at_ms)

    def skipping_columns(self) -> list[SkippingColumn]:
        """Return the columns whose bounds are indexed."""
        return self.store.skipping_columns(self.table.table_id, self._metadata_version)

    def transactions(self) -> dict[str, SetTransaction]:
        """Return the latest transaction of every application, by application id."""
        rows = self._query("txn_versions")
        return {row[0]: txn_from_row(row) for row in rows}

    def transaction_version(self, app_id: str) -> int | None:
        """Return the latest version that an application committed; None if there is none."""
        rows = self._query("txn_version_of", app_id=app_id)
        return rows[0][0] if rows else None

    def domains(self) -> dict[str, DomainMetadata]:
        """Return the metadata domains that are not removed."""
        found = (domain_from_row(row) for row in self._query("domains_at"))
        return {domain.domain: domain for domain in found if not domain.removed}

    # Files

    def totals(self) -> Totals:
        """Count the live files without fetching them."""
        files, size, records, with_records = self.store.query("live_totals", **self._at())[0]
        if not files:  # the statement counts no files of an expired version
            self.check_not_expired()
        self.store.set_table_gauge("files_active", int(files), self.table.full_name)
        return Totals(int(files), int(size), int(records or 0) if with_records == files else None)

    def files(self) -> pa.Table:
        """Return all live files with their statistics as Arrow."""
        return self._files("files_all")

    def deleted_rows(self) -> int:
        """Return the number of rows that the deletion vectors of live files delete."""
        if "deletionVectors" not in reader_features(self.protocol):
            return 0
        rows = self._query("vector_rows")
        return sum(int(row[1]) for row in rows)

    def file_paths(self) -> pa.Table:
        """Return all live files without statistics, which is faster."""
        return self._files("files_brief")

    def files_to_read(self) -> pa.Table:
        """Return the columns that an engine needs to read all live files."""
        return self._files("files_to_read")

    def scan(self, predicate: object = None) -> Scan:
        """Plan a read of the files that can contain a row for which the predicate is true."""
        check_readable(self.protocol)
        parsed = None if predicate is None else self.predicate(predicate)
        return Scan(self, parsed)

    def predicate(self, text: object, *, flavour: Flavour | None = None) -> Predicate:
        """Parse an SQL expression or deltalake's filter lists, for the schema of this version."""
        # Imported here, because sqlglot loads slowly and reading all files does not need it.
        from deltasql.model.predicates.predicate import Predicate, parse_predicate

        if isinstance(text, Predicate):
            return text
        return parse_predicate(
            text,
            self.schema,
            self.partition_columns,
            column_mapping_mode(self.metadata.configuration),
            flavour=flavour,
        )

    # History

    def history(
        self, limit: int | None = None, *, before: int | None = None
    ) -> Iterator[VersionRow]:
        """Yield commits, newest first; each statement fetches one page."""
        last = self.version if before is None else min(self.version, before - 1)
        remaining = last + 1 if limit is None else limit
        while remaining > 0 and last >= 0:
            rows = self.store.query(
                "history",
                table_id=self.table.table_id,
                first=0,
                last=last,
                limit=min(remaining, HISTORY_PAGE),
            )
            if not rows:
                return
            yield from (VersionRow.from_row(row) for row in rows)
            remaining -= len(rows)
            last = rows[-1][0] - 1

    def _files(self, columns: Columns) -> pa.Table:
        check_readable(self.protocol)
        return self.cache.files(self.store, columns, next_file_id=self.next_file_id, **self._at())

    def check_not_expired(self) -> None:
        """Raise VersionNotFoundError if this version has expired since the snapshot was opened."""
        self.store.check_version(self.table.table_id, self.version)

    def _query(self, name: str, **params: object) -> list[Row]:
        found = self.store.query(name, **self._at(), **params)
        self.check_not_expired()
        return found

    def _at(self) -> dict[str, int]:
        return {"table_id": self.table.table_id, "version": self.version}


class Scan:
    """The files of a snapshot that can contain a row for which a predicate is true.

    The files are found on first use, in three steps that each drop more files: by the distinct
    partition values, by the indexed bounds, and by the statistics of each remaining file. No step
    drops a file that could match.
    """

    def __init__(self, snapshot: Snapshot, predicate: Predicate | None) -> None:
        self.snapshot, self.predicate = snapshot, predicate

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def files(self) -> _core.FileList:
        """The files that can match; the column `partition` has their partition values as JSON."""
        with telemetry.span("plan", table=self.snapshot.table.full_name):
            if self.predicate is None:
                return self._listed(self.snapshot.files())
            return self._prune(self.predicate)

    @cached_property
    def arrow(self) -> pa.Table:
        """The files with their statistics as Arrow."""
        return to_arrow(self.files)

    @cached_property
    def to_read(self) -> pa.Table:
        """The files as Arrow for an engine; statistics are included only with a predicate."""
        if self.predicate is not None:
            return self.arrow
        with telemetry.span("plan", table=self.snapshot.table.full_name):
            return to_arrow(self._listed(self.snapshot.files_to_read()))

    def paths(self) -> list[str]:
        """Return the paths of the files as they are written in the log."""
        return self.files.paths()

    def files_among(self, file_ids: Sequence[int]) -> _core.FileList:
        """Return the files of the scan that have these ids, without fetching the others."""
        if not file_ids:  # DuckDB cannot bind an empty list
            return from_rows([], "files_all").with_partitions({})
        rows = self.snapshot.store.query(
            "live_files_of",
            table_id=self.snapshot.table.table_id,
            version=self.snapshot.version,
            file_ids=list(file_ids),
        )
        found = self._found(rows)
        if self.predicate is None:
            return found
        return found.prune(_core.Predicate(self.predicate.to_pruning_json()))

    def _prune(self, predicate: Predicate) -> _core.FileList:
        tree = _core.Predicate(predicate.to_pruning_json())
        partition_ids = self._partition_ids(tree)
        ranges = self._ranges(predicate.bounds())
        if partition_ids == [] or (ranges is not None and not ranges):
            self.snapshot.check_not_expired()
            return from_rows([], "files_all").with_partitions({})
        return self._fetch(partition_ids, ranges).prune(tree)

    def _listed(self, files: pa.Table) -> _core.FileList:
        return _core.FileList.from_arrow(files).with_partitions(self._partitions)

    @cached_property
    def _partitions(self) -> dict[int, str]:
        return self.snapshot.store.partition_values(self.snapshot.table.table_id)

    def _partition_ids(self, tree: _core.Predicate) -> list[int] | None:
        """Return the partitions that can match; None if all of them can."""
        if not self.snapshot.partition_columns:
            return None
        known = self._partitions
        matching = [number for number, text in known.items() if tree.may_match(None, text)]
        return None if len(matching) == len(known) else matching

    def _ranges(self, bounds: list[Bound]) -> Ranges | None:
        """Return the ids of the files whose indexed bounds can match; None if none is indexed."""
        if not bounds:
            return None
        snapshot = self.snapshot
        columns = snapshot.skipping_columns()
        found: Ranges | None = None
        for bound in bounds:
            for column in columns:
                if (column.path, column.type) != (bound.path, bound.type):
                    continue
                rows = snapshot.store.query(
                    "stats_ranges_overlapping",
                    table_id=snapshot.table.table_id,
                    column_id=column.column_id,
                    next_file_id=snapshot.next_file_id,
                    low=bound.low,
                    high=bound.high,
                )
                # Files that were added while the column was not indexed have no bounds, so all of
                # them remain candidates.
                end = column.end_file_id or snapshot.next_file_id
                files = _core.files_between(rows, bound.low, bound.high)
                kept = Ranges(files).add_outside(column.first_file_id, end, snapshot.next_file_id)
                found = kept if found is None else found.intersect(kept)
        return found

    def _fetch(self, partition_ids: list[int] | None, ranges: Ranges | None) -> _core.FileList:
        """Fetch the candidates with the more selective index, or fetch all files."""
        snapshot, store = self.snapshot, self.snapshot.store
        at = {"table_id": snapshot.table.table_id, "version": snapshot.version}
        share = partition_share = 1.0
        if ranges is not None:
            share = ranges.count / max(1, snapshot.next_file_id - 1)
        if partition_ids is not None:
            partition_share = len(partition_ids) / len(self._partitions)
        unpartitioned = partition_ids is not None and UNPARTITIONED in partition_ids
        if min(share, partition_share) > _FETCH_ALL_SHARE or unpartitioned:
            return self._listed(snapshot.files())
        if partition_ids is not None and (ranges is None or partition_share < share):
            rows = store.query("files_in_partitions", partition_ids=partition_ids, **at)
            return self._found(rows)
        assert ranges is not None
        firsts, lasts = ranges.columns()
        span = lasts[-1] + 1 - firsts[0]
        if ranges.count > max(_BULK_FILES, _FETCH_ALL_SHARE * span):
            bulk = store.arrow(
                "files_all", first_file_id=firsts[0], next_file_id=lasts[-1] + 1, **at
            )
            if not bulk.num_rows:
                snapshot.check_not_expired()
            return self._listed(from_arrow(bulk, "files_all"))
        pairs = [list(pair) for pair in zip(firsts, lasts, strict=True)]
        rows = store.query("files_in_ranges", firsts=firsts, lasts=lasts, pairs=pairs, **at)
        return self._found(rows)

    def _found(self, rows: list[Row]) -> _core.FileList:
        if not rows:  # statements return no files of an expired version
            self.snapshot.check_not_expired()
        return from_rows(rows, "files_all").with_partitions(self._partitions)


class CatalogSnapshot:
    """All live tables of a catalog at one point in time, read with one statement.

    A commit over several tables is included completely or not at all.
    """

    def __init__(self, store: Store, cache: FileCache) -> None:
        self._store, self._cache = store, cache
        self._rows = {(row[2], row[3]): row for row in store.query("live_heads")}

    def tables(self) -> list[TableRow]:
        """Return the live tables."""
        return [TableRow.from_row(row[:_TABLE_COLUMNS]) for row in self._rows.values()]

    def snapshot(self, namespace: str, name: str) -> Snapshot | None:
        """Return the snapshot of a table; None if no live table has this name."""
        row = self._rows.get((namespace, name))
        return None if row is None else _snapshot_from_row(self._store, self._cache, row)


def open_snapshot(
    store: Store,
    table: TableRow,
    cache: FileCache,
    *,
    version: int | None = None,
    timestamp: datetime | None = None,
) -> Snapshot:
    """Open a table at a version or at a timestamp, by default at its latest version."""
    if version is None and timestamp is None:
        head = store.head(table.table_id)
        if head is None or head.live_name is None:
            store.forget_table(table)
            raise TxnLogTableNotFoundError(
                f"table {table.full_name} was dropped", table=table.full_name
            )
        return Snapshot(store, table, cache, head)
    if version is not None:
        return Snapshot(store, table, cache, _head_at_version(store, table, version))
    assert timestamp is not None
    return Snapshot(store, table, cache, _head_at_time(store, table, timestamp))


def snapshots_as_of(store: Store, cache: FileCache, timestamp: datetime) -> list[Snapshot]:
    """Open all tables of the catalog at a timestamp, with one statement."""
    at_ms = to_ms(timestamp)
    rows = store.query("heads_as_of", timestamp_ms=at_ms)
    found = [_snapshot_from_row(store, cache, row) for row in rows]
    for each in found:
        if each.committed_at_ms > at_ms:
            raise VersionNotFoundError(
                f"the catalog cannot be read at {timestamp.isoformat()}: the history of "
                f"{each.table.full_name} begins at version {each.version}, which was committed at "
                f"{each.committed_at.isoformat()}",
                table=each.table.full_name,
                version=each.version,
                help="Use a later timestamp, or open the other tables one by one.",
            )
    return found


def _snapshot_from_row(store: Store, cache: FileCache, row: Row) -> Snapshot:
    table = TableRow.from_row(row[:_TABLE_COLUMNS])
    return Snapshot(store, table, cache, Head(row[0], *row[_TABLE_COLUMNS:]))


def _head_at_version(store: Store, table: TableRow, version: int) -> Head:
    rows = store.query("head_at_version", table_id=table.table_id, version=version)
    if not rows:
        low, high = store.query("version_bounds", table_id=table.table_id)[0]
        raise version_not_found(table.full_name, version, low, high)
    return Head(*rows[0])


def _head_at_time(store: Store, table: TableRow, timestamp: datetime) -> Head:
    at_ms = to_ms(timestamp)
    rows = store.query("head_at_time", table_id=table.table_id, timestamp_ms=at_ms)
    if not rows:
        raise VersionNotFoundError(
            f"{table.full_name} had no version at {from_ms(at_ms).isoformat()}",
            help="Use a later timestamp; history() lists the time of each version.",
        )
    return Head(*rows[0])


class Ranges:
    """Closed ranges of file ids.

    >>> Ranges([(1, 3), (4, 6), (9, 9)]).intersect(Ranges([(5, 9)]))
    Ranges([(5, 6), (9, 9)])
    """

    def __init__(self, ranges: Iterable[tuple[Any, ...]]) -> None:
        merged: list[tuple[int, int]] = []
        for first, last in sorted((row[0], row[1]) for row in ranges):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        self._ranges = merged

    def __repr__(self) -> str:
        return f"Ranges({self._ranges})"

    def __bool__(self) -> bool:
        return bool(self._ranges)

    @property
    def count(self) -> int:
        """The number of ids in the ranges."""
        return sum(last - first + 1 for first, last in self._ranges)

    def columns(self) -> tuple[list[int], list[int]]:
        """Return the first ids and the last ids of the ranges as two lists."""
        return [first for first, _ in self._ranges], [last for _, last in self._ranges]

    def add_outside(self, first: int, end: int, next_id: int) -> Ranges:
        """Return the ranges plus all ids below `first`, and those from `end` to before `next_id`.

        >>> Ranges([(5, 6)]).add_outside(4, 8, 10)
        Ranges([(1, 3), (5, 6), (8, 9)])
        """
        extra = [(1, first - 1)] if first > 1 else []
        if end < next_id:
            extra.append((end, next_id - 1))
        return Ranges([*self._ranges, *extra])

    def intersect(self, other: Ranges) -> Ranges:
        """Return the ids that are in both sets."""
        out, mine, theirs = [], list(self._ranges), list(other._ranges)
        i = j = 0
        while i < len(mine) and j < len(theirs):
            first = max(mine[i][0], theirs[j][0])
            last = min(mine[i][1], theirs[j][1])
            if first <= last:
                out.append((first, last))
            if mine[i][1] < theirs[j][1]:
                i += 1
            else:
                j += 1
        return Ranges(out)
