"""Columns are written as SQL that keeps their names and values exactly."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from deltasql.spark.columns.columns import column_writer
from deltasql.spark.columns.sql_text import ColumnContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_NAMES = {
    "id": "`s`.`id`",
    "a.b": "`s`.`a`.`b`",
    "`a.b`": "`s`.`a.b`",
    "`a`.`b`": "`s`.`a`.`b`",
    "a.`b.c`": "`s`.`a`.`b.c`",
    "`a``b`": "`s`.`a``b`",
}
"""Names of a Connect DataFrame as users write them, and their SQL on the side `s`."""


def test_connect_names_keep_their_parts() -> None:
    from pyspark.sql.connect.expressions import ColumnReference

    from deltasql.spark.columns.connect import expression_sql

    context = ColumnContext([([7], "s")])
    for name, text in CONNECT_NAMES.items():
        assert expression_sql(ColumnReference(name, 7), context) == text, name
        plain = text.removeprefix("`s`.")
        assert expression_sql(ColumnReference(name), context) == plain, name


def test_connect_struct_members_keep_quoted_names() -> None:
    from pyspark.sql.connect.expressions import ColumnReference, UnresolvedFunction

    from deltasql.spark.columns.connect import expression_sql

    members = UnresolvedFunction("struct", [ColumnReference("`a.b`"), ColumnReference("c.d")])
    text = "named_struct('a.b', `a.b`, 'd', `c`.`d`)"
    assert expression_sql(members, ColumnContext()) == text


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_interval_literals_keep_microseconds(spark: SparkSession) -> None:
    lengths = [
        timedelta(microseconds=1),
        timedelta(microseconds=-1),
        timedelta(days=-3, microseconds=123456),
        timedelta(days=40_000, seconds=1, microseconds=999_999),
    ]
    for length in lengths:
        [row] = spark.sql(f"SELECT {column_writer(spark)(F.lit(length))} AS found").collect()
        assert row["found"] == length
