"""Changes of rows in the order of files and rows, sorted piece by piece to take less memory."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from deltasql.engine.base import FILE, ROW
from deltasql.engine.changes import rows_by_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.engine.base import Relation
    from deltasql.engine.duckdb import DuckDbEngine

_TAKEN = 16_384  # rows that are taken at once; those of a row group are put together anyway
_SORTED = 32_768  # rows that are sorted at once, about
_MOST_SORTS = 16


def in_order(engine: DuckDbEngine, changes: Relation) -> pa.RecordBatchReader:
    """Return changes sorted by file and row."""
    return engine.stream(engine.query(_sorted(), c=changes), _TAKEN)


def in_order_by_files(engine: DuckDbEngine, changes: Relation) -> pa.RecordBatchReader:
    """Return the same, where it is cheap to ask for the changes of few files at a time."""
    counts = rows_by_file(engine, changes)
    files = sorted(counts)
    ranges = list(_ranges(files, [counts[file] for file in files]))
    if len(ranges) < 2:
        return in_order(engine, changes)
    parts = (
        engine.stream(engine.query(_sorted().where(_between(*each)), c=changes), _TAKEN)
        for each in ranges
    )
    first = next(parts)
    batches = chain(first, chain.from_iterable(parts))
    return pa.RecordBatchReader.from_batches(first.schema, batches)


def _sorted() -> exp.Select:
    return exp.select(exp.Star()).from_("c").order_by(exp.column(FILE), exp.column(ROW))


def _between(first: int, last: int) -> exp.Expr:
    return exp.column(FILE).between(first, last)


def _ranges(files: Sequence[int], rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Part files, each with some rows, into ranges with about as many rows."""
    enough = max(_SORTED, sum(rows) // _MOST_SORTS)
    first = held = 0
    for place, number in enumerate(rows):
        held += number
        if held >= enough or place == len(rows) - 1:
            yield files[first], files[place]
            first, held = place + 1, 0
