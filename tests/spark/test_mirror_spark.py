"""The tables of a catalog by name in a Spark session, with and without delta-spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltasql.exceptions import TxnLogConfigError, TxnLogEngineError
from deltasql.spark import mirror_spark
from tests.mirror.support import open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

IDS = pa.schema([("id", pa.int64())])


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "a lake") as opened:
        yield opened


def append(catalog: Catalog, name: str, *ids: int) -> None:
    if not catalog.exists(name):
        catalog.create_table(name, IDS)
    with catalog.begin() as tx:
        tx.write(name, pa.table({"id": pa.array(ids, pa.int64())}))


def ids(spark: SparkSession, name: str) -> list[int]:
    return sorted(row[0] for row in spark.sql(f"SELECT id FROM {name}").collect())


def test_views_keep_their_version_until_the_next_call(spark: SparkSession, lake: Catalog) -> None:
    append(lake, "orders", 1)
    append(lake, "crm.it's odd", 2)
    names = mirror_spark(spark, lake, using_delta=False)
    assert names == {"orders": "orders", "crm.it's odd": "`crm__it's odd`"}
    assert {table: ids(spark, name) for table, name in names.items()} == {
        "orders": [1],
        "crm.it's odd": [2],
    }
    append(lake, "orders", 3)
    assert ids(spark, "orders") == [1]
    lake.drop("crm.it's odd")
    assert mirror_spark(spark, lake.uri, using_delta=False) == {"orders": "orders"}
    assert ids(spark, "orders") == [1, 3]
    assert [view.name for view in spark.catalog.listTables() if view.isTemporary] == ["orders"]
    lake.drop("orders")
    mirror_spark(spark, lake, using_delta=False)
    assert not spark.catalog.tableExists("orders")


def test_only_requested_tables_become_views(spark: SparkSession, lake: Catalog) -> None:
    for name in ("one", "two"):
        append(lake, name, 1)
    assert mirror_spark(spark, lake, tables=["two"], using_delta=False) == {"two": "two"}
    assert not spark.catalog.tableExists("one")
    spark.catalog.dropTempView("two")


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_tables_with_the_same_view_name_are_rejected(spark: SparkSession, lake: Catalog) -> None:
    for name in ("crm.sales", "crm__Sales"):
        lake.create_table(name, IDS)
    with pytest.raises(TxnLogEngineError, match=r"crm\.sales and crm__Sales|crm__Sales and crm\.s"):
        mirror_spark(spark, lake, using_delta=False)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_views_reject_a_database(spark: SparkSession, lake: Catalog) -> None:
    with pytest.raises(TxnLogConfigError, match="cannot be in the database 'x'"):
        mirror_spark(spark, lake, database="x", using_delta=False)


@pytest.mark.everything("delta-spark as a reader, beyond the smoke set")
def test_delta_spark_tables_show_every_commit(spark: SparkSession, lake: Catalog) -> None:
    append(lake, "orders", 1)
    append(lake, "crm.sales", 2)
    assert mirror_spark(spark, lake, tables=["crm.sales"]) == {"crm.sales": "crm.sales"}
    named = mirror_spark(spark, lake, tables=["orders"], database="lake", using_delta=True)
    assert named == {"orders": "lake.orders"}
    assert (ids(spark, "crm.sales"), ids(spark, "lake.orders")) == ([2], [1])
    append(lake, "orders", 3)
    assert ids(spark, "lake.orders") == [1, 3]
    assert mirror_spark(spark, lake, tables=["orders"], database="lake") == named
    for database in ("lake", "crm"):
        spark.sql(f"DROP DATABASE {database} CASCADE")
    assert Path(lake.table("orders").location).exists()


WRITES = (
    "INSERT INTO guarded.orders VALUES (9)",
    "DELETE FROM guarded.orders",
    "UPDATE guarded.orders SET id = 9",
    "MERGE INTO guarded.orders t USING (SELECT 9L AS id) s ON t.id = s.id "
    "WHEN NOT MATCHED THEN INSERT *",
    "TRUNCATE TABLE guarded.orders",
    "ALTER TABLE guarded.orders ADD COLUMNS (more INT)",
)


def test_delta_spark_cannot_write_through_a_mirrored_name(
    spark: SparkSession, lake: Catalog
) -> None:
    from pyspark.errors import AnalysisException

    append(lake, "orders", 1)
    location = lake.table("orders").location
    spark.sql("CREATE DATABASE guarded")
    # An earlier release created a table, to which delta-spark could write.
    spark.sql(f"CREATE TABLE guarded.orders USING delta LOCATION '{location}'")
    names = mirror_spark(spark, lake, database="guarded", using_delta=True)
    assert names == {"orders": "guarded.orders"}
    log = sorted(each.name for each in (Path(location) / "_delta_log").iterdir())
    for statement in WRITES:
        with pytest.raises(AnalysisException):
            spark.sql(statement)
    with pytest.raises(AnalysisException):
        spark.range(1).write.mode("append").saveAsTable("guarded.orders")
    assert sorted(each.name for each in (Path(location) / "_delta_log").iterdir()) == log
    with lake.begin() as tx:
        tx.write("orders", pa.table({"id": [2], "more": ["x"]}), schema_mode="merge")
    assert spark.table("guarded.orders").columns == ["id", "more"]
    assert ids(spark, "guarded.orders") == [1, 2]
    assert mirror_spark(spark, lake, database="guarded", using_delta=True) == names
    spark.sql("DROP DATABASE guarded CASCADE")


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_table_name_that_spark_does_not_support_is_rejected(
    spark: SparkSession, lake: Catalog
) -> None:
    lake.create_table("it's odd", IDS)
    with pytest.raises(TxnLogEngineError, match="only letters, digits and _"):
        mirror_spark(spark, lake)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_existing_spark_table_with_the_same_name_is_rejected(
    spark: SparkSession, lake: Catalog
) -> None:
    append(lake, "orders", 1)
    spark.sql("CREATE DATABASE taken")
    spark.sql("CREATE TABLE taken.orders (id BIGINT) USING delta")
    with pytest.raises(TxnLogEngineError, match=r"taken\.orders is already a different table"):
        mirror_spark(spark, lake, database="taken")
    assert ids(spark, "taken.orders") == []
    spark.sql("DROP DATABASE taken CASCADE")


WITHOUT_JARS = """
import json, sys
from pyspark.sql import SparkSession
import deltasql.spark
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
)
names = deltasql.spark.mirror_spark(spark, sys.argv[1])
rows = spark.sql("SELECT day, sum(id) AS ids FROM orders GROUP BY day ORDER BY day").collect()
try:
    spark._jvm.java.lang.Class.forName("io.delta.sql.DeltaSparkSessionExtension")
    delta = True
except Exception:
    delta = False
print(json.dumps([names, [[str(row.day), row.ids] for row in rows], delta]))
"""


@pytest.mark.everything("starts a JVM of its own")
def test_views_need_only_pyspark(lake: Catalog, sqlite_uri: DeltaSqlUri) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    lake.create_table("orders", schema, partition_by=["day"])
    for day in ("mon", "tue"):
        with lake.begin() as tx:
            tx.write("orders", pa.table({"id": [1, 2], "day": [day, day]}, schema=schema))
    command = [sys.executable, "-c", WITHOUT_JARS, sqlite_uri.to_string()]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    assert json.loads(result.stdout.splitlines()[-1]) == [
        {"orders": "orders"},
        [["mon", 3], ["tue", 3]],
        False,
    ]
