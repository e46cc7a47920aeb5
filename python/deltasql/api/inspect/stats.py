"""Statistics of a table: file sizes, partitions and growth."""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass
from datetime import date, datetime
from functools import reduce
from itertools import accumulate
from statistics import median_low
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.api.inspect.page import (
    Page,
    at_most,
    check_choice,
    page_size,
    read_cursor,
    write_cursor,
)
from deltasql.model.clock import from_ms, now_ms
from deltasql.model.report import Report
from deltasql.model.row_changes import row_changes
from deltasql.operations.changes.log import physical_partitioning
from deltasql.operations.optimize.compaction import wanted_file_size
from deltasql.store.records import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.model.actions import Metadata
    from deltasql.snapshot.snapshot import Snapshot

_BOUNDS = (0, 2**16, 2**20, 2**22, 2**24, 2**26, 2**27, 2**28, 2**30)
_DAY_MS = 86_400_000
MOST_DAYS = 3660
ORDERS = ("bytes", "files", "rows", "partition")


@dataclass(frozen=True, slots=True)
class SizeBucket(Report):
    """Files of at least `low` and less than `high` bytes."""

    low: int
    high: int | None
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DayGrowth(Report):
    """Added and removed files of a day (UTC), and the size of the table at the end of the day.

    `rows_added` counts the rows that commits inserted, without copied and updated rows. It is None
    if the number is not known for one of the commits.
    """

    day: date
    commits: int
    files_added: int
    bytes_added: int
    rows_added: int | None
    files_removed: int
    bytes_removed: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionStats(Report):
    """The live files of one partition."""

    values: dict[str, str | None]
    label: str
    files: int
    bytes: int
    rows: int | None
    share: float  # of the table's bytes, from 0 to 1


@dataclass(frozen=True, slots=True)
class Skew(Report):
    """The skew of partitions: the size of the largest partition divided by the median size."""

    partitions: int
    largest: PartitionStats | None
    median_bytes: int
    ratio: float | None


@dataclass(frozen=True, slots=True)
class TableStats(Report):
    """Statistics of a version of a table."""

    name: str
    version: int
    committed_at: datetime
    first_version: int
    commits: int
    files: int
    bytes: int
    rows: int | None
    average_bytes: float
    smallest: int
    largest: int
    small_files: int
    small_bytes: int
    small_below: int  # the target file size of the table
    histogram: tuple[SizeBucket, ...]
    growth: tuple[DayGrowth, ...]
    partition_columns: tuple[str, ...]
    partitions: tuple[PartitionStats, ...]  # largest first
    skew: Skew
    vector_files: int
    deleted_rows: int
    deleted_share: float | None


class Measured:
    """Sizes and row counts of the live and removed files of a table, up to one version."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.files = _unpacked(
            snapshot.store.arrow(
                "files_measured",
                table_id=snapshot.table.table_id,
                version=snapshot.version,
                next_file_id=snapshot.next_file_id,
            )
        )
        if not self.files.num_rows:  # the statement returns no files of an expired version
            snapshot.check_not_expired()
        ended = self.files["removed_version"]
        is_live = pc.or_(pc.less(ended, 0), pc.greater(ended, snapshot.version))
        self.live = self.files.filter(is_live)
        self.wanted_size = wanted_file_size(snapshot.metadata.configuration)
        self.deleted: dict[int, tuple[int, int]] = {}
        if pc.sum(self.live["has_vector"]).as_py():
            vectors = snapshot.store.query(
                "vector_rows", table_id=snapshot.table.table_id, version=snapshot.version
            )
            self.deleted = {row[0]: (int(row[1]), int(row[2])) for row in vectors}

    @property
    def small(self) -> pa.Table:
        """The live files below the target file size of the table."""
        return self.live.filter(pc.less(self.live["size"], self.wanted_size))

    @property
    def deleted_rows(self) -> int:
        return sum(rows for rows, _ in self.deleted.values())

    def partitions(self) -> list[PartitionStats]:
        """Return every partition that has a live file, largest first."""
        names = partition_names(self.snapshot.metadata)
        total = int(pc.sum(self.live["size"]).as_py() or 0)
        known = self.live.append_column(
            "known", pc.cast(pc.greater_equal(self._rows, 0), pa.int64())
        )
        sums = known.group_by("partition_id").aggregate(
            [("size", "count"), ("size", "sum"), ("num_records", "sum"), ("known", "sum")]
        )
        values: dict[int, str] = dict(
            self.snapshot.store.query("partitions", table_id=self.snapshot.table.table_id)
        )
        found = []
        for row in sums.to_pylist():
            partition_id, files, size = row["partition_id"], row["size_count"], row["size_sum"]
            rows = None
            if row["known_sum"] == files:
                rows = row["num_records_sum"] - self.deleted.get(partition_id, (0, 0))[0]
            shown = partition_of(values.get(partition_id), names)
            share = size / total if total else 0.0
            found.append(PartitionStats(shown, label_of(shown), files, size, rows, share))
        return sorted(found, key=lambda each: (-each.bytes, each.label))

    @property
    def _rows(self) -> pa.ChunkedArray:
        return self.live["num_records"]

    def rows(self) -> int | None:
        """Return the number of live rows; None if a file has no row count."""
        if len(self.live) and pc.min(self._rows).as_py() < 0:
            return None
        return int(pc.sum(self._rows).as_py() or 0) - self.deleted_rows

    def histogram(self) -> tuple[SizeBucket, ...]:
        """Return the number of live files by size."""
        sizes = self.live["size"]
        reached = (pc.cast(pc.greater_equal(sizes, low), pa.int64()) for low in _BOUNDS[1:])
        places = reduce(pc.add, reached)
        classes = pa.table({"place": places, "size": sizes}).group_by("place")
        sums = classes.aggregate([("size", "count"), ("size", "sum")]).to_pylist()
        found = {row["place"]: (row["size_count"], row["size_sum"]) for row in sums}
        return tuple(
            SizeBucket(low, high, *found.get(place, (0, 0)))
            for place, (low, high) in enumerate(zip(_BOUNDS, (*_BOUNDS[1:], None), strict=True))
        )

    def growth(self, days: int) -> tuple[DayGrowth, ...]:
        """Return the added and removed files of each of the last days, oldest first."""
        table_id, version = self.snapshot.table.table_id, self.snapshot.version
        today = now_ms() // _DAY_MS
        since = today - days + 1
        rows = self.snapshot.store.query(
            "commits_per_day", table_id=table_id, since_ms=since * _DAY_MS, version=version
        )
        spans = {int(row[0]) // _DAY_MS: (row[1], row[2], row[3]) for row in rows}
        added = _by_day(self.files, "added_version", spans)
        inserted = self._inserted_by_day(spans)
        ended = _by_day(self.files, "removed_version", spans)
        found: list[DayGrowth] = []
        size = int(pc.sum(self.live["size"]).as_py() or 0)
        for day in range(today, since - 1, -1):
            new, removed = added.get(day, _NOTHING), ended.get(day, _NOTHING)
            found.append(
                DayGrowth(
                    day=from_ms(day * _DAY_MS).date(),
                    commits=spans[day][0] if day in spans else 0,
                    files_added=new[0],
                    bytes_added=new[1],
                    rows_added=inserted.get(day, 0),
                    files_removed=removed[0],
                    bytes_removed=removed[1],
                    bytes=size,
                )
            )
            size += removed[1] - new[1]
        return tuple(reversed(found))

    def _inserted_by_day(self, spans: Mapping[int, Span]) -> dict[int, int | None]:
        """Return the number of rows that were inserted on each day; None if it is not known.

        If a commit removed no file, all rows of its new files were inserted. Otherwise it may have
        copied rows, so the number comes from the metrics of the commit.
        """
        if not spans:
            return {}
        files = _within(self.files, "added_version", spans)
        removed = _within(self.files, "removed_version", spans)["removed_version"]
        rewriting = set(pc.unique(removed).to_pylist())
        by_version = files.group_by("added_version").aggregate(
            [("num_records", "sum"), ("num_records", "min")]
        )
        inserted: dict[int, int | None] = {}
        for row in by_version.to_pylist():
            is_known = row["num_records_min"] >= 0
            inserted[row["added_version"]] = row["num_records_sum"] if is_known else None
        if rewriting:
            rows = self.snapshot.store.query(
                "metrics_between",
                table_id=self.snapshot.table.table_id,
                first=min(rewriting),
                last=max(rewriting),
            )
            for version, operation, metrics in rows:
                if version in rewriting and version in inserted:
                    inserted[version] = row_changes(operation, load(metrics) or {}).inserted
        day_of = _days_of(spans)
        found: dict[int, int | None] = {}
        for version, count in inserted.items():
            before = found.get(day_of(version), 0)
            found[day_of(version)] = None if before is None or count is None else before + count
        return found


def table_stats(
    catalog: BaseCatalog, name: str, measured: Measured, days: int, partitions: int
) -> TableStats:
    """Return the statistics of a table, with growth and the largest partitions."""
    at_most(MOST_DAYS, "days", days)
    snapshot, sizes = measured.snapshot, measured.live["size"]
    names = snapshot.partition_columns
    found = measured.partitions()
    small = measured.small["size"]
    total, files = int(pc.sum(sizes).as_py() or 0), len(sizes)
    first, commits = catalog.store.query("count_versions", table_id=snapshot.table.table_id)[0]
    records = measured.rows()
    deleted = measured.deleted_rows
    stored = None if records is None else records + deleted
    return TableStats(
        name=name,
        version=snapshot.version,
        committed_at=snapshot.committed_at,
        first_version=first,
        commits=commits,
        files=files,
        bytes=total,
        rows=records,
        average_bytes=total / files if files else 0.0,
        smallest=pc.min(sizes).as_py() or 0,
        largest=pc.max(sizes).as_py() or 0,
        small_files=len(small),
        small_bytes=int(pc.sum(small).as_py() or 0),
        small_below=measured.wanted_size,
        histogram=measured.histogram(),
        growth=measured.growth(days),
        partition_columns=tuple(names),
        partitions=tuple(found[:partitions]) if names else (),
        skew=_skew(found if names else []),
        vector_files=sum(count for _, count in measured.deleted.values()),
        deleted_rows=deleted,
        deleted_share=deleted / stored if stored else None,
    )


def partition_page(
    measured: Measured, *, order: str, limit: int, cursor: str | None
) -> Page[PartitionStats]:
    """Return a page of partitions: largest first, or sorted by value."""
    check_choice("order", order, ORDERS)
    found = measured.partitions()

    def key(each: PartitionStats) -> tuple[int, str]:
        return (0 if order == "partition" else -(getattr(each, order) or 0), each.label)

    found.sort(key=key)
    kind = f"partitions by {order}"
    if cursor is not None:
        after = read_cursor(kind, cursor, int, str)
        found = [each for each in found if key(each) > after]
    page = tuple(found[: page_size(limit)])
    return Page(page, write_cursor(kind, *key(page[-1])) if len(found) > limit else None)


def partition_names(metadata: Metadata) -> dict[str, str]:
    """Return the logical name of each partition column by its physical name, in order."""
    return dict(zip(physical_partitioning(metadata), metadata.partition_columns, strict=True))


def partition_of(text: str | None, names: Mapping[str, str]) -> dict[str, str | None]:
    """Return partition values by logical column name, in the order of the columns.

    >>> partition_of('{"b": null, "a": "1"}', {"a": "x", "b": "y"})
    {'x': '1', 'y': None}
    """
    values: dict[str, str | None] = json.loads(text) if text else {}
    known = {name: values[stored] for stored, name in names.items() if stored in values}
    return known | {name: value for name, value in values.items() if name not in names}


def label_of(values: Mapping[str, str | None]) -> str:
    """Return partition values in the format of a partition folder.

    >>> label_of({"day": "2024-01-01", "shop": None})
    'day=2024-01-01/shop=null'
    """
    return "/".join(f"{name}={'null' if v is None else v}" for name, v in values.items())


def _unpacked(files: pa.Table) -> pa.Table:
    """Split the numbers of the query `files_measured`: `place` and `life` pack two values each."""
    whole = files.cast(pa.schema([(name, pa.int64()) for name in files.column_names]))
    place, life = whole["place"], whole["life"]
    return pa.table(
        {
            "partition_id": pc.shift_right(place, 1),
            "size": whole["size"],
            "num_records": whole["num_records"],
            "added_version": pc.shift_right(life, 32),
            "removed_version": pc.subtract(pc.bit_wise_and(life, 0xFFFFFFFF), 1),
            "has_vector": pc.bit_wise_and(place, 1),
        }
    )


def _skew(partitions: Sequence[PartitionStats]) -> Skew:
    if not partitions:
        return Skew(0, None, 0, None)
    middle = median_low(each.bytes for each in partitions)
    ratio = partitions[0].bytes / middle if middle else None
    return Skew(len(partitions), partitions[0], middle, ratio)


Span = tuple[int, int, int]
"""Number of commits of a day, and their first and last version."""
_NOTHING = (0, 0)


def _within(files: pa.Table, column: str, spans: Mapping[int, Span]) -> pa.Table:
    """Return the files that were added, or removed, in the versions of these days."""
    first = spans[min(spans)][1]
    last = max(span[2] for span in spans.values())
    chosen = files.filter(pc.greater_equal(files[column], first))
    return chosen.filter(pc.less_equal(chosen[column], last))


def _days_of(spans: Mapping[int, Span]) -> Callable[[int], int]:
    """Return a function from a version to its day."""
    days = sorted(spans)
    lasts = list(accumulate((spans[day][2] for day in days), max))
    return lambda version: days[bisect_left(lasts, version)]


def _by_day(files: pa.Table, column: str, spans: Mapping[int, Span]) -> dict[int, tuple[int, int]]:
    """Return the number of files and bytes by the day of the version in `column`."""
    if not spans:
        return {}
    chosen, day_of = _within(files, column, spans), _days_of(spans)
    versions = chosen[column].combine_chunks().dictionary_encode()
    of_versions = [day_of(version) for version in versions.dictionary.to_pylist()]
    sums = (
        chosen.append_column("day", pa.array(of_versions, pa.int64()).take(versions.indices))
        .group_by("day")
        .aggregate([("size", "count"), ("size", "sum")])
    )
    return {row["day"]: (row["size_count"], row["size_sum"]) for row in sums.to_pylist()}
