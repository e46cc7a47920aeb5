"""Scan: the files of a snapshot that can hold a row for which a predicate is true.

Three sieves, each finer than the one before: the distinct partition values, the indexed bounds
of whole ranges of files, and the statistics of each file that is left. None of them drops a
file that could match.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltasql import _core, telemetry
from deltasql.snapshot.files import FULL, from_arrow, from_rows, with_partitions
from deltasql.snapshot.ranges import Ranges

if TYPE_CHECKING:
    from deltasql.model.predicate import Bound, Predicate
    from deltasql.snapshot.snapshot import Snapshot

# Above this share of all files one sequential read beats many index probes.
_FETCH_ALL_SHARE = 0.3
_BULK_FILES = 10_000


class Scan:
    """Files to read, found when first asked for."""

    def __init__(self, snapshot: Snapshot, predicate: Predicate | None) -> None:
        self.snapshot, self.predicate = snapshot, predicate

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    @cached_property
    def arrow(self) -> pa.Table:
        """The files with their statistics; partition values as JSON in `partition`."""
        with telemetry.span("plan", table=self.snapshot.table.full_name):
            if self.predicate is None:
                return self._with_partitions(self.snapshot.files())
            return self._sieve(self.predicate)

    @cached_property
    def files(self) -> _core.FileList:
        """The files as lazy objects."""
        return _core.FileList.from_arrow(self.arrow)

    def paths(self) -> list[str]:
        """Return the paths as the log has them."""
        paths: list[str] = self.arrow["path"].to_pylist()
        return paths

    def _sieve(self, predicate: Predicate) -> pa.Table:
        tree = _core.Predicate(predicate.to_pruning_json())
        partition_ids = self._partition_ids(tree)
        if partition_ids is not None and not partition_ids:
            return self._with_partitions(FULL.empty_table())
        ranges = self._ranges(predicate.bounds())
        candidates = self._with_partitions(self._fetch(partition_ids, ranges))
        mask = _core.FileList.from_arrow(candidates).mask(tree)
        return candidates.filter(pa.array(mask, pa.bool_()))

    @cached_property
    def _partitions(self) -> dict[int, str]:
        return self.snapshot.store.partition_values(self.snapshot.table.table_id)

    def _with_partitions(self, files: pa.Table) -> pa.Table:
        return with_partitions(files, self._partitions)

    def _partition_ids(self, tree: _core.Predicate) -> list[int] | None:
        """Return the partitions that can match; None when they cannot tell."""
        if not self.snapshot.partition_columns:
            return None
        known = self._partitions
        matching = [number for number, text in known.items() if tree.may_match(None, text)]
        return None if len(matching) == len(known) else matching

    def _ranges(self, bounds: list[Bound]) -> Ranges | None:
        """Return the ranges of file ids whose indexed bounds can match; None without an index."""
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
                # Files outside the column's span were never indexed for it: they all stay.
                end = column.end_file_id or snapshot.next_file_id
                kept = Ranges(rows).outside(column.first_file_id, end, snapshot.next_file_id)
                found = kept if found is None else found.intersect(kept)
        return found

    def _fetch(self, partition_ids: list[int] | None, ranges: Ranges | None) -> pa.Table:
        snapshot, store = self.snapshot, self.snapshot.store
        at = {"table_id": snapshot.table.table_id, "version": snapshot.version}
        share = ranges.count / max(1, snapshot.next_file_id - 1) if ranges is not None else 1.0
        partition_share = 1.0
        if partition_ids is not None:
            partition_share = len(partition_ids) / max(1, len(self._partitions))
        if min(share, partition_share) > _FETCH_ALL_SHARE:
            files = snapshot.files()
        elif ranges is not None and share <= partition_share:
            firsts, lasts = ranges.columns()
            if ranges.count > _BULK_FILES:
                files = self._bulk(firsts[0], lasts[-1])
            else:
                pairs = [list(pair) for pair in zip(firsts, lasts, strict=True)]
                rows = store.query("files_in_ranges", firsts=firsts, lasts=lasts, pairs=pairs, **at)
                files = from_rows(rows, FULL)
        else:
            rows = store.query("files_in_partitions", partition_ids=partition_ids, **at)
            files = from_rows(rows, FULL)
        if partition_ids is not None:
            wanted = pa.array(partition_ids, pa.int64())
            files = files.filter(pc.is_in(files["partition_id"], value_set=wanted))
        return files

    def _bulk(self, first: int, last: int) -> pa.Table:
        snapshot = self.snapshot
        table = snapshot.store.arrow(
            "files_all",
            table_id=snapshot.table.table_id,
            version=snapshot.version,
            first_file_id=first,
            next_file_id=min(last + 1, snapshot.next_file_id),
        )
        return from_arrow(table, FULL)
