"""In a transaction, Spark reads the transaction's own changes on one snapshot."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import deltasql.spark
from deltasql.exceptions import TxnLogSchemaError
from tests.spark.support import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql.uri import DeltaSqlUri


def test_transaction_reads_its_own_changes_and_one_snapshot(
    spark: SparkSession, sqlite_uri: DeltaSqlUri
) -> None:
    def ids(predicate: object = None) -> list[int]:
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
            assert ids([("id", ">", 1)]) == [2]
            assert ids([[("id", "=", 0)], [("id", "in", [2, 9])]]) == [0, 2]
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


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_filters_mean_the_same_with_and_without_a_transaction(
    spark: SparkSession, sqlite_uri: DeltaSqlUri
) -> None:
    days = [date(2024, 5, day) for day in (1, 2, 3)]
    times = [datetime(2024, 5, day, 12, tzinfo=UTC) for day in (1, 2, 3)]
    local = pa.array([time.replace(tzinfo=None) for time in times], pa.timestamp("us"))
    rows = pa.table({"day": days, "at": times, "local": local, "s": ["a'b", "c\\d", None]})
    filters: list[object] = [
        [("day", ">", days[0])],
        [("day", "=", "2024-05-02")],
        [("at", "<=", times[1])],
        [("at", ">", "2024-05-02 11:00:00")],
        [("local", "=", times[2].replace(tzinfo=None))],
        [("s", "in", ["a'b", "c\\d"])],
        [("s", "!=", None)],
        "s = 'c\\\\d'",
    ]
    with deltasql.connect(sqlite_uri) as catalog, catalog.begin() as tx:
        tx.write("t", rows)
    with (
        settings(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}),
        deltasql.connect(sqlite_uri) as catalog,
        catalog.begin() as tx,
    ):
        for each in filters:
            inside = deltasql.spark.read(spark, "t", predicate=each, transaction=tx)
            outside = deltasql.spark.read(spark, catalog.table("t").uri, predicate=each)
            found = sorted(row["day"] for row in inside.collect())
            assert found == sorted(row["day"] for row in outside.collect()), each
            assert 0 < len(found) < 3, each
