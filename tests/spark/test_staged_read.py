"""In a transaction, Spark reads the transaction's own changes on one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import deltasql.spark
from deltasql.exceptions import TxnLogSchemaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql.uri import DeltaSqlUri


def test_a_transaction_reads_its_own_changes_and_one_snapshot(
    spark: SparkSession, sqlite_uri: DeltaSqlUri
) -> None:
    def ids(predicate: str | None = None) -> list[int]:
        frame = deltasql.spark.read(spark, "t", predicate=predicate, transaction=tx)
        return sorted(row["id"] for row in frame.collect())

    with deltasql.connect(sqlite_uri) as catalog:
        catalog.create_table("t", pa.schema([("id", pa.int64())]))
        with catalog.begin() as tx:
            assert ids() == []
            tx.write("t", spark.range(3))
            deltasql.spark.write(spark.range(9, 10), catalog.table("t").uri)
            tx.delete("t", "id = 1", engine="spark")
            assert ids() == [0, 2]
            assert ids("id > 1") == [2]
            with pytest.raises(TxnLogSchemaError, match="No field named nope"):
                deltasql.spark.read(spark, "t", columns=["nope"], transaction=tx)
            tx.rollback()
        assert catalog.table("t").snapshot().totals().num_records == 1


def test_frames_of_a_transaction_share_one_snapshot(
    spark: SparkSession, sqlite_uri: DeltaSqlUri
) -> None:
    def grow(number: int) -> None:
        with catalog.begin() as tx:
            for name in ("a", "b"):
                tx.write(name, pa.table({"id": [number]}))

    with deltasql.connect(sqlite_uri) as catalog:
        grow(1)
        with catalog.begin() as tx:
            a = deltasql.spark.read(spark, "a", transaction=tx)
            grow(2)
            b = deltasql.spark.read(spark, "b", transaction=tx)
            assert a.join(b, "id", "full").collect() == [(1,)]
