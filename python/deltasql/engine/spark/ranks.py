"""Ranks of values without a window, which would bring all rows to one task.

A sample of the rows gives the bounds of ranges with about as many rows each; the rank of a value is
the number of its range, found by halving. Bounds travel as one row that is broadcast, so they have
exactly the types and the order that Spark itself gives the values. Of texts and bytes the beginning
is taken, so that a sample has a bound in bytes.
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
_BEGINNING = 64


def range_bounds(frame: DataFrame, names: Sequence[str], bits: int) -> DataFrame:
    """Return one row: for each column, the bounds between its ranges in ascending order."""
    from pyspark.sql import functions as F

    ranges = _ranges(bits)
    wanted, count = ranges * _PER_RANGE, frame.count()
    keys = frame.selectExpr(*(f"{_compared(frame, each)} AS {quoted(each)}" for each in names))
    sample = keys if count <= wanted else keys.sample(wanted / count, seed=_SEED)
    found = [F.sort_array(F.collect_list(quoted(each))).alias(each) for each in names]
    # Without a value other than null there is no bound, and every row is in the first range.
    bounds = (
        f"transform(sequence(1, {ranges - 1}), i -> "
        f"get({{0}}, CAST(i * CAST(size({{0}}) AS BIGINT) DIV {ranges} AS INT))) AS {{1}}"
    )
    return sample.agg(*found).selectExpr(
        *(bounds.format(quoted(name), f"{_BOUNDS}{n}") for n, name in enumerate(names))
    )


def in_ranges(frame: DataFrame, bounds: DataFrame, names: Sequence[str], bits: int) -> DataFrame:
    """Put the ranks of these columns in their place."""
    from pyspark.sql import functions as F

    others = [quoted(name) for name in frame.columns if name not in names]
    ranks = [
        f"{_range_of(_compared(frame, name), f'{_BOUNDS}{n}', bits)} AS {quoted(name)}"
        for n, name in enumerate(names)
    ]
    return frame.crossJoin(F.broadcast(bounds)).selectExpr(*others, *ranks)


def _compared(frame: DataFrame, name: str) -> str:
    """Return what is compared of a key: a beginning keeps the order."""
    from pyspark.sql.types import BinaryType, StringType

    is_long = isinstance(frame.schema[name].dataType, BinaryType | StringType)
    return f"substring({quoted(name)}, 1, {_BEGINNING})" if is_long else quoted(name)


def _ranges(bits: int) -> int:
    return int(2 ** min(bits, _MOST_BITS))


def _range_of(value: str, bounds: str, bits: int) -> str:
    """Return the SQL that finds the range of a value; nulls are in the first.

    >>> _range_of("v", "b", 2)
    'aggregate(array(2, 1), 0, (r, s) -> CASE WHEN v > b[r + s - 1] THEN r + s ELSE r END)'
    """
    steps = ", ".join(str(2**bit) for bit in reversed(range(min(bits, _MOST_BITS))))
    # One tree of all comparisons would be too much code for a method of the JVM.
    step = f"CASE WHEN {value} > {bounds}[r + s - 1] THEN r + s ELSE r END"
    return f"aggregate(array({steps}), 0, (r, s) -> {step})"
