"""Rows that a user handed in, left where they are in memory: a copy would take as much again."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_BYTES = 32 * 1024 * 1024


class HeldRows:
    """A table of Arrow's that DuckDB reads as a stream, as often as it wants.

    Given the table itself, it would leave conditions to Arrow, for which NaN is not equal to NaN.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table, self.schema = table, table.schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)

    def numbered(self, name: str) -> HeldRows:
        """Return the same rows with a number for each in a new column."""
        numbers = pa.array(np.arange(self._table.num_rows, dtype=np.int64))
        return HeldRows(self._table.append_column(name, numbers))


def held_rows(given: pa.RecordBatchReader) -> HeldRows | Iterator[pa.RecordBatch]:
    """Hold the rows of a stream; when they are many, return all its batches to be kept elsewhere.

    >>> isinstance(held_rows(pa.table({"id": [1]}).to_reader()), HeldRows)
    True
    """
    # DuckDB leaves conditions on whole numbers to Arrow, which cannot filter the views of polars.
    if any("_view" in str(field.type) for field in given.schema):
        return chain(given)
    first: list[pa.RecordBatch] = []
    size = 0
    for batch in given:
        first.append(batch)
        size += batch.nbytes
        if size > _MOST_BYTES:
            return chain(first, given)
    return HeldRows(pa.Table.from_batches(first, given.schema))
