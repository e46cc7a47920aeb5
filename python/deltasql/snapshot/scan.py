"""Scan: the files of a snapshot that can contain a row for which a predicate is true.

Data skipping has three steps, each more exact than the one before: the distinct partition values,
the indexed bounds of ranges of files, and the statistics of each remaining file. None of them
drops a file that could match.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from deltasql import _core, telemetry
from deltasql.snapshot.files import from_arrow, from_rows, to_arrow
from deltasql.snapshot.ranges import Ranges
from deltasql.store.records import UNPARTITIONED

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from deltasql.model.predicates.predicate import Bound, Predicate
    from deltasql.snapshot.snapshot import Snapshot

# Above this share of all files, one sequential read beats many index lookups.
_FETCH_ALL_SHARE = 0.3
_BULK_FILES = 10_000


class Scan:
    """The files to read for a predicate, found on first use."""

    def __init__(self, snapshot: Snapshot, predicate: Predicate | None) -> None:
        self.snapshot, self.predicate = snapshot, predicate

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def files(self) -> _core.FileList:
        """The files; their partition values are JSON in the column `partition`."""
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
        """The files as Arrow, for an engine; with statistics only if there is a predicate."""
        if self.predicate is not None:
            return self.arrow
        with telemetry.span("plan", table=self.snapshot.table.full_name):
            return to_arrow(self._listed(self.snapshot.files_to_read()))

    def paths(self) -> list[str]:
        """Return the paths of the files as in the log."""
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
        found = from_rows(rows, "files_all").with_partitions(self._partitions)
        if self.predicate is None:
            return found
        return found.prune(_core.Predicate(self.predicate.to_pruning_json()))

    def _prune(self, predicate: Predicate) -> _core.FileList:
        tree = _core.Predicate(predicate.to_pruning_json())
        partition_ids = self._partition_ids(tree)
        ranges = self._ranges(predicate.bounds())
        if partition_ids == [] or (ranges is not None and not ranges):
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
        """Return the file ids whose indexed bounds can match; None if no bound is indexed."""
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
                # Files added while the column was not indexed have no bounds: keep them all.
                end = column.end_file_id or snapshot.next_file_id
                kept = Ranges(rows).add_outside(column.first_file_id, end, snapshot.next_file_id)
                found = kept if found is None else found.intersect(kept)
        return found

    def _fetch(self, partition_ids: list[int] | None, ranges: Ranges | None) -> _core.FileList:
        """Fetch the candidates by the more selective index, or all files."""
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
            return from_rows(rows, "files_all").with_partitions(self._partitions)
        assert ranges is not None
        firsts, lasts = ranges.columns()
        if ranges.count > _BULK_FILES:
            bulk = store.arrow(
                "files_all", first_file_id=firsts[0], next_file_id=lasts[-1] + 1, **at
            )
            return self._listed(from_arrow(bulk, "files_all"))
        pairs = [list(pair) for pair in zip(firsts, lasts, strict=True)]
        rows = store.query("files_in_ranges", firsts=firsts, lasts=lasts, pairs=pairs, **at)
        return from_rows(rows, "files_all").with_partitions(self._partitions)
