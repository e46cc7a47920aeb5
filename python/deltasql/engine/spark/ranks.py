"""Rank values without a window function, which would send all rows to one task.

A sample of the rows gives the bounds of ranges with about the same number of rows. The rank of a
value is the number of its range, found by binary search. The bounds are a single row of a
DataFrame, which is broadcast, so that values are compared with Spark's own types and sort order.
Only a prefix of strings and binary values is compared, which limits the size of the sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.engine.spark.schema import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

_MOST_BITS = 10
_PER_RANGE = 40
_SEED = 20
_BOUNDS = "__deltasql_bounds_"
_PREFIX = 64


def range_bounds(frame: DataFrame, names: Sequence[str], bits: int) -> DataFrame:
    """Return a DataFrame with one row: for each column, an array of the bounds of its ranges."""
    from pyspark.sql import functions as F

    ranges = _ranges(bits)
    wanted, count = ranges * _PER_RANGE, frame.count()
    keys = frame.selectExpr(*(f"{_compared(frame, each)} AS {quoted(each)}" for each in names))
    sample = keys if count <= wanted else keys.sample(wanted / count, seed=_SEED)
    found = [F.sort_array(F.collect_list(quoted(each))).alias(each) for each in names]
    # If all values are null, there are no bounds and every row is in the first range.
    bounds = (
        f"transform(sequence(1, {ranges - 1}), i -> "
        f"get({{0}}, CAST(i * CAST(size({{0}}) AS BIGINT) DIV {ranges} AS INT))) AS {{1}}"
    )
    return sample.agg(*found).selectExpr(
        *(bounds.format(quoted(name), f"{_BOUNDS}{n}") for n, name in enumerate(names))
    )


def with_ranks(frame: DataFrame, bounds: DataFrame, names: Sequence[str], bits: int) -> DataFrame:
    """Replace these columns with their ranks."""
    from pyspark.sql import functions as F

    others = [quoted(name) for name in frame.columns if name not in names]
    ranks = [
        f"{_range_of(_compared(frame, name), f'{_BOUNDS}{n}', bits)} AS {quoted(name)}"
        for n, name in enumerate(names)
    ]
    return frame.crossJoin(F.broadcast(bounds)).selectExpr(*others, *ranks)


def _compared(frame: DataFrame, name: str) -> str:
    """Return SQL for the part of a key that is compared: a prefix of strings and binary values."""
    from pyspark.sql.types import BinaryType, StringType

    is_long = isinstance(frame.schema[name].dataType, BinaryType | StringType)
    return f"substring({quoted(name)}, 1, {_PREFIX})" if is_long else quoted(name)


def _ranges(bits: int) -> int:
    return int(2 ** min(bits, _MOST_BITS))


def _range_of(value: str, bounds: str, bits: int) -> str:
    """Return SQL for the range number of a value; nulls are in the first range.

    >>> _range_of("v", "b", 2)
    'aggregate(array(2, 1), 0, (r, s) -> CASE WHEN v > b[r + s - 1] THEN r + s ELSE r END)'
    """
    steps = ", ".join(str(2**bit) for bit in reversed(range(min(bits, _MOST_BITS))))
    # Do not nest all comparisons in one CASE: it would exceed the size limit of a JVM method.
    step = f"CASE WHEN {value} > {bounds}[r + s - 1] THEN r + s ELSE r END"
    return f"aggregate(array({steps}), 0, (r, s) -> {step})"
