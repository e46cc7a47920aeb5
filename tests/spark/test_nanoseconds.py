"""Spark has no nanosecond timestamps: tables with them are rejected, never truncated."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

from deltasql.exceptions import UnsupportedFeatureError
from deltasql.spark import DeltaTable, read, register, write
from deltasql.spark.session import set_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from deltasql import Catalog

FIRST = 1_700_000_000_123_456_789


@pytest.fixture
def uri(lake: Catalog) -> Iterator[str]:
    """A table with one nanosecond timestamp."""
    deltalake.enable_nanosecond_timestamps()
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": [1], "at": pa.array([FIRST], pa.timestamp("ns", "UTC"))}))
    yield lake.uri.with_table("t").to_string()
    deltalake._disable_nanosecond_timestamps()


def test_spark_rejects_nanosecond_columns_by_name(
    spark: SparkSession, lake: Catalog, uri: str
) -> None:
    refused = pytest.raises(UnsupportedFeatureError, match=r"'at'.*nanoseconds.*Spark")
    with refused:
        read(spark, uri)
    frame = spark.createDataFrame([(2, datetime(2024, 1, 1))], "id long, at timestamp")
    with refused:
        write(frame, uri)
    with refused, lake.begin() as tx:
        tx.delete("t", "id = 1", engine="spark")
    set_catalog(spark, lake)
    table = DeltaTable.forName(spark, "t")
    with refused:
        table.toDF()
    with refused:
        table.alias("t").merge(frame.alias("s"), "t.id = s.id").whenMatchedUpdateAll().execute()
    with refused:
        table.update(set={"id": "id + 1"})


def test_delta_spark_rejects_the_published_table(
    spark: SparkSession, lake: Catalog, uri: str
) -> None:
    """delta-spark does not know the type, so it never truncates the nanoseconds."""
    with pytest.raises(Exception, match=r"(?i)timestamp_?nanos"):
        spark.read.format("delta").load(lake.table("t").location).collect()


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_data_source_rejects_nanosecond_columns(spark: SparkSession, uri: str) -> None:
    register(spark)
    with pytest.raises(Exception, match=r"nanoseconds.*Spark"):
        spark.read.format("deltasql").load(uri).collect()
    frame = spark.createDataFrame([(2, datetime(2024, 1, 1))], "id long, at timestamp")
    with pytest.raises(Exception, match=r"nanoseconds.*Spark"):
        frame.write.format("deltasql").mode("append").save(uri)
