"""Rows of a table in memory, known by their numbers: taken from it, not joined with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engine.base import FILE, ROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_POOL = pa.system_memory_pool()  # which gives memory back
_TAKEN = 16_384  # rows that are taken at once; those of a row group are put together anyway


def with_numbers(rows: pa.Table, name: str) -> pa.Table:
    """Number rows from 0 in a new column.

    >>> with_numbers(pa.table({"id": [7, 8]}), "n").to_pydict()
    {'id': [7, 8], 'n': [0, 1]}
    """
    return rows.append_column(name, pa.array(np.arange(len(rows), dtype=np.int64)))


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Changes that give rows the values of others."""

    places: pa.Table
    """FILE and ROW of each change, in this order, and the number of the row with its values."""
    number: str
    rows: pa.Table
    """The numbered rows."""
    columns: Mapping[str, str]
    """The column of the rows that has the new values of a column."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the changes, made batch by batch."""
        found = self.rows.select(list(self.columns.values())).rename_columns(list(self.columns))
        schema = pa.schema([(FILE, pa.int64()), (ROW, pa.int64()), *found.schema])
        return pa.RecordBatchReader.from_batches(schema, self._batches(found, schema))

    def _batches(self, found: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        rows = found.combine_chunks()
        for start in range(0, len(self.places), _TAKEN):
            part = self.places.slice(start, _TAKEN)
            taken = pc.take(rows, part[self.number].combine_chunks(), memory_pool=_POOL)
            columns = [part[FILE], part[ROW], *taken.columns]
            yield from pa.Table.from_arrays(columns, schema=schema).to_batches()


def others(rows: pa.Table, numbers: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return the numbered rows whose numbers are not among those.

    >>> others(pa.table({"id": [7, 8]}), [pa.record_batch({"n": [1]})]).to_pydict()
    {'id': [7]}
    """
    is_other = np.ones(len(rows), bool)
    for batch in numbers:
        is_other[batch.column(0).to_numpy()] = False
    return rows.filter(pa.array(is_other))


def has_plain_types(schema: pa.Schema) -> bool:
    """Tell whether Arrow can compute with all columns, and an engine would return them as here."""
    return all(_is_plain(field.type) for field in schema)


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "us" and kind.tz in (None, "UTC"))
    return bool(
        pa.types.is_signed_integer(kind)
        or kind in (pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.date32())
    )
