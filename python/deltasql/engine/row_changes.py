"""Changes of rows that come sorted by file and place, taken row group by row group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engine.base import DROPPED, FILE, ROW
from deltasql.exceptions import TxnLogEngineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.engine.file_shape import FileShape

_ROW_BITS = 40


@dataclass(frozen=True, slots=True)
class GroupChanges:
    """What happens to rows of a row group."""

    dropped: np.ndarray
    """Places of rows in the group."""
    changed: np.ndarray
    values: dict[str, pa.Array]
    """The new values of the rows that change, by the name that a column has in the file."""


class RowChanges:
    """A stream of changes; files and places are asked for in their order."""

    def __init__(
        self, reader: pa.RecordBatchReader, shape: FileShape, names: Sequence[str]
    ) -> None:
        """`names` are the columns with new values."""
        self._batches: Iterator[pa.RecordBatch] = iter(reader)
        self._shape, self._names = shape, names
        self._has_dropped = DROPPED in reader.schema.names
        self._batch: pa.RecordBatch | None = None
        self._keys = np.empty(0, np.int64)

    def take(self, file: int, start: int, end: int) -> GroupChanges | None:
        """Return the changes of a row group; None without any."""
        self._pass_by(file, start)
        found = list(self._until(file, end))
        if not found:
            return None
        rows = pa.Table.from_batches(found)
        places = rows[ROW].to_numpy() - start
        if not self._has_dropped:
            return GroupChanges(np.empty(0, np.int64), places, self._values(rows))
        dropped = rows[DROPPED].to_numpy()
        kept = rows.filter(pc.invert(rows[DROPPED])) if self._names else rows.slice(0, 0)
        return GroupChanges(places[dropped], places[~dropped], self._values(kept))

    def skip(self, file: int) -> None:
        """Leave out what happens to a file."""
        self._pass_by(file + 1, 0)

    def end(self, file: int) -> None:
        """Tell that all rows of a file were asked for: no change is left for it."""
        if any(True for _ in self._until(file + 1, 0)):
            raise TxnLogEngineError(
                "rows are to be changed that a file does not have",
                help="Nothing was committed. Something changes data files: `deltasql verify` "
                "tells which.",
            )

    def _pass_by(self, file: int, row: int) -> None:
        for _ in self._until(file, row):
            pass

    def _until(self, file: int, end: int) -> Iterator[pa.RecordBatch]:
        bound = file << _ROW_BITS | end
        while self._fill():
            assert self._batch is not None
            length = int(np.searchsorted(self._keys, bound))
            if length:
                yield self._batch.slice(0, length)
                self._batch = self._batch.slice(length)
                self._keys = self._keys[length:]
            if len(self._keys):
                return

    def _fill(self) -> bool:
        while not len(self._keys):
            self._batch = next(self._batches, None)
            if self._batch is None:
                return False
            files = self._batch.column(FILE).to_numpy()
            self._keys = files << _ROW_BITS | self._batch.column(ROW).to_numpy()
        return True

    def _values(self, rows: pa.Table) -> dict[str, pa.Array]:
        found = {}
        for name in self._names:
            stored = self._shape.store_column(name, rows.column(name))
            found[self._shape.stored_name(name)] = stored.combine_chunks()
        return found
