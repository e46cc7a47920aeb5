"""Totals of the live files of tables, cached and updated incrementally.

The first totals of a table are computed by the database from all files of the table. Later totals
add the files that were added since, and subtract those that were removed. For tables with few
files, the totals are computed again from all files, with one statement for many tables.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.store.store import Store


# For at most this many files, a full sum is faster than two incremental statements.
_FEW_FILES = 1000


@dataclass(frozen=True, slots=True)
class FileSums:
    """Totals of files."""

    files: int = 0
    bytes: int = 0
    records: int = 0
    counted: int = 0  # files whose number of rows is known
    vectors: int = 0  # files with a deletion vector

    @classmethod
    def from_row(cls, row: Sequence[int | None]) -> FileSums:
        # A sum is a Decimal in PostgreSQL, and NULL if there are no files.
        return cls(*(int(each or 0) for each in row))

    def plus(self, other: FileSums, sign: int = 1) -> FileSums:
        return FileSums(
            self.files + sign * other.files,
            self.bytes + sign * other.bytes,
            self.records + sign * other.records,
            self.counted + sign * other.counted,
            self.vectors + sign * other.vectors,
        )


@dataclass(frozen=True, slots=True)
class TableTotals:
    """The totals of the live files of a version."""

    version: int
    next_file_id: int
    sums: FileSums
    deleted_rows: int  # rows that deletion vectors delete

    @property
    def rows(self) -> int | None:
        """The number of live rows; None if a file has no row count."""
        is_known = self.sums.counted == self.sums.files
        return self.sums.records - self.deleted_rows if is_known else None


class TotalsCache:
    """A cache of the totals of tables, each at its latest known version."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, TableTotals] = {}
        self._guard = threading.Lock()

    def of(self, heads: Mapping[int, int]) -> dict[int, TableTotals]:
        """Return totals by table id, at these versions or at later ones."""
        with self._guard:
            known = {each: self._known[each] for each in heads if each in self._known}
        found = {}
        for table_id, totals in known.items():
            if totals.version >= heads[table_id]:
                found[table_id] = totals
            elif totals.next_file_id > _FEW_FILES:
                updated = self._updated(table_id, totals)
                if updated is not None:
                    found[table_id] = updated
        missing = [each for each in heads if each not in found]
        if missing:
            for table_id, version, next_file_id, *row in self._store.query(
                "table_sums", table_ids=missing
            ):
                sums = FileSums.from_row(row)
                found[table_id] = self._totals(table_id, version, next_file_id, sums)
        with self._guard:
            for table_id, totals in found.items():
                before = self._known.get(table_id)
                if before is None or before.version < totals.version:
                    self._known[table_id] = totals
        return found

    def unseen(self, ends: Mapping[int, int]) -> int:
        """Return how many files are not in cached totals; `ends` has the next file id by table."""
        with self._guard:
            known = {each: totals.next_file_id for each, totals in self._known.items()}
        return sum(max(0, end - known.get(table_id, 1)) for table_id, end in ends.items())

    def _updated(self, table_id: int, before: TableTotals) -> TableTotals | None:
        """Return totals at the latest version; None if they must be computed from all files.

        A file that was both added and removed since `before` is in neither sum.
        """
        key = {"table_id": table_id, "first_file_id": before.next_file_id}
        rows = self._store.query("table_sums_added", **key)
        if not rows:
            return None
        _, version, next_file_id, *row = rows[0]
        ended = self._store.query("table_sums_ended", **key, after=before.version, last=version)
        if not self._store.query("version_exists", table_id=table_id, version=before.version):
            return None  # the files that were removed since then may have expired
        sums = before.sums.plus(FileSums.from_row(row)).plus(FileSums.from_row(ended[0]), -1)
        return self._totals(table_id, version, next_file_id, sums)

    def _totals(
        self, table_id: int, version: int, next_file_id: int, sums: FileSums
    ) -> TableTotals:
        deleted = 0
        if sums.vectors:
            rows = self._store.query("vector_rows", table_id=table_id, version=version)
            deleted = sum(int(row[1]) for row in rows)
        return TableTotals(version, next_file_id, sums, deleted)
