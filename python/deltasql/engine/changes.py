"""Changes of rows, known by file and row: few of them are held, and counted without an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from deltasql.engine.base import FILE, ROW
from deltasql.engine.spool import rows_up_to

if TYPE_CHECKING:
    from deltasql.engine.base import Engine, Relation

_FEW_BYTES = 8 * 1024 * 1024
_COUNT = "__deltasql_count"


def few_in_order(changes: pa.RecordBatchReader) -> pa.Table | None:
    """Return changes in the order of files and rows; None when there are many.

    >>> rows = pa.table({FILE: [1, 0, 1], ROW: [5, 7, 2]})
    >>> few_in_order(rows.to_reader()).to_pydict()[ROW]
    [7, 2, 5]
    """
    held, are_few = rows_up_to(changes, _FEW_BYTES)
    if not are_few:
        changes.close()
        return None
    found = pa.Table.from_batches(held, changes.schema)
    files, rows = (found[name].to_numpy() for name in (FILE, ROW))
    if _are_sorted(files, rows):
        return found
    return found.take(pa.array(np.lexsort((rows, files))))


def counted_by_file(changes: pa.Table) -> dict[int, int]:
    """Return how many changes each file has.

    >>> counted_by_file(pa.table({FILE: [0, 0, 3]}))
    {0: 2, 3: 1}
    """
    files, counts = np.unique(changes[FILE].to_numpy(), return_counts=True)
    return dict(zip(files.tolist(), counts.tolist(), strict=True))


def rows_by_file(
    engine: Engine, rows: Relation, condition: exp.Expr | None = None
) -> dict[int, int]:
    """Count rows with positions by file, those that meet a condition, which calls them `t`."""
    file = exp.column(FILE, quoted=True)
    number = exp.alias_(exp.Count(this=exp.Star()), _COUNT, quoted=True)
    query = exp.select(file, number).from_(exp.to_table("t")).group_by(file.copy())
    if condition is not None:
        query = query.where(condition.copy())
    found = engine.collect(engine.query(query, t=rows))
    return dict(zip(found[FILE].to_pylist(), found[_COUNT].to_pylist(), strict=True))


def _are_sorted(files: np.ndarray, rows: np.ndarray) -> bool:
    later = files[1:] > files[:-1]
    return bool(np.all(later | ((files[1:] == files[:-1]) & (rows[1:] > rows[:-1]))))
