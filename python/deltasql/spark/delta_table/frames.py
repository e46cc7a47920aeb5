"""The keys and the alias of a DataFrame, which qualify its Columns in SQL text."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from deltasql.engine.spark.session import is_connect
from deltasql.spark.columns.columns import Writing, column_sql

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession

    from deltasql.spark.columns.columns import Sides


def keys_of(frame: DataFrame) -> list[object]:
    """Return the keys that identify a DataFrame or its columns."""
    if is_connect(frame.sparkSession):
        from deltasql.spark.columns.connect import plan_keys

        return plan_keys(frame)
    from deltasql.spark.columns.classic import attribute_keys

    return attribute_keys(frame)


def alias_of(frame: DataFrame) -> str | None:
    """Return the alias of a DataFrame, or None."""
    if is_connect(frame.sparkSession):
        from deltasql.spark.columns import connect as columns_connect

        return columns_connect.alias_of(frame)
    from deltasql.spark.columns import classic as columns_classic

    return columns_classic.alias_of(frame)


def writer(spark: SparkSession, sides: Sides) -> Callable[[Column], str]:
    """Return a function that writes Columns as SQL and qualifies those of known DataFrames."""
    writing = Writing(sides, partial(_registered, spark))
    return partial(column_sql, writing=writing)


def _registered(spark: Any, function: Any) -> str:
    if is_connect(spark):
        from deltasql.spark.columns.connect import register_function
    else:
        from deltasql.spark.columns.classic import register_function
    return register_function(spark, function)
