"""Converts Spark Columns to SQL, so that operations treat Columns and SQL strings alike.

A Column is a tree of names, literals and calls. In classic Spark this tree is in the JVM, in Spark
Connect it is in Python. A column of a DataFrame, such as `df.id`, is qualified with the alias of
the DataFrame or table that it belongs to.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from deltasql.engine.spark.session import is_connect
from deltasql.spark.columns import classic
from deltasql.spark.columns.sql_text import ColumnContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession

    from deltasql.spark.columns.sql_text import Sides


def column_writer(spark: SparkSession, sides: Sides = ()) -> Callable[[Column], str]:
    """Return a function that writes Columns as SQL and qualifies those of known DataFrames."""
    converter = _converter(spark)
    context = ColumnContext(sides, partial(converter.register_function, spark))
    return partial(converter.column_sql, context=context)


def frame_keys(frame: DataFrame) -> list[object]:
    """Return the keys that identify a DataFrame or its columns in `Sides`."""
    found: list[object] = _converter(frame.sparkSession).frame_keys(frame)
    return found


def frame_alias(frame: DataFrame) -> str | None:
    """Return the alias of a DataFrame, or None."""
    found: str | None = _converter(frame.sparkSession).frame_alias(frame)
    return found


def _converter(spark: SparkSession) -> Any:
    """Return the module that converts the Columns of a session."""
    if is_connect(spark):
        from deltasql.spark.columns import connect  # lazy import: needs grpc

        return connect
    return classic
