"""Default values of columns on Spark, in alternation with delta-spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import deltasql.spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.serve import Service
    from deltasql.spark import DeltaTable

pytestmark = pytest.mark.everything("column defaults on Spark; tests/sql has a smoke test")
T = (
    "CREATE TABLE t (id BIGINT, name STRING DEFAULT 'it\\'s', n INT DEFAULT 7 DIV 2, "
    "d DECIMAL(10, 2) DEFAULT 1.5, tags ARRAY<INT> DEFAULT array(1, 2))"
)
NEW = {"name": "it's", "n": 3, "d": "1.50", "tags": [1, 2]}


def shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name: str(row[name]) if name == "d" else row[name] for name in NEW}


def test_delta_spark_and_deltasql_fill_the_same_defaults(
    spark: SparkSession, lake: Catalog, bridge: Service
) -> None:
    lake.sql(T)
    path = lake.table("t").location
    spark.sql(f"INSERT INTO delta.`{path}` (id) VALUES (1)")
    lake.sql("INSERT INTO t (id) VALUES (2)")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (3, DEFAULT, DEFAULT, DEFAULT, DEFAULT)")
    deltasql.spark.sql(spark, "INSERT INTO t (id) VALUES (4)", catalog=lake)
    deltasql.spark.write(
        spark.createDataFrame([(5,)], "id BIGINT"), lake.table("t").uri, mode="append"
    )
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": [6]}), engine="spark")
    lake.sql("UPDATE t SET n = 100, name = NULL WHERE id < 4")
    spark.sql(f"UPDATE delta.`{path}` SET n = DEFAULT, name = DEFAULT WHERE id = 1")
    deltasql.spark.sql(spark, "UPDATE t SET n = DEFAULT, name = DEFAULT WHERE id = 2")
    lake.sql("UPDATE t SET n = DEFAULT, name = DEFAULT WHERE id = 3")
    # delta-spark does not resolve DEFAULT in MERGE.
    spark.sql(f"MERGE INTO delta.`{path}` t USING (SELECT 7L AS id) s ON t.id = s.id "
              "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)")  # fmt: skip
    merge = "USING (SELECT 1L AS id UNION ALL SELECT {n}L) s ON t.id = s.id WHEN MATCHED THEN "
    merge += "UPDATE SET d = DEFAULT WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, DEFAULT)"
    deltasql.spark.sql(spark, f"MERGE INTO t {merge.format(n=8)}")
    lake.sql(f"MERGE INTO t {merge.format(n=9)}")
    found = lake.sql("SELECT * FROM t ORDER BY id").to_pylist()
    assert [row["id"] for row in found] == list(range(1, 10))
    assert [shown(row) for row in found] == [NEW] * 9
    by_delta_spark = [row.asDict() for row in spark.read.format("delta").load(path).collect()]
    assert sorted(row["id"] for row in by_delta_spark) == list(range(1, 10))
    assert all(shown(row) == NEW for row in by_delta_spark)


def test_defaults_of_either_writer_are_used_by_the_other(
    spark: SparkSession, lake: Catalog, bridge: Service
) -> None:
    lake.sql("CREATE TABLE t (id BIGINT, name STRING) "
             "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')")  # fmt: skip
    path = lake.table("t").location
    spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN name SET DEFAULT concat('a', 'b')")
    lake.sql("INSERT INTO t (id) VALUES (1)")
    lake.sql("ALTER TABLE t ALTER COLUMN name SET DEFAULT upper('c')")
    spark.sql(f"INSERT INTO delta.`{path}` (id) VALUES (2)")
    spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN name DROP DEFAULT")
    lake.sql("INSERT INTO t (id) VALUES (3)")
    found = lake.sql("SELECT * FROM t ORDER BY id").to_pylist()
    assert [row["name"] for row in found] == ["ab", "C", None]


def test_imported_table_with_defaults_is_writable(
    spark: SparkSession, lake: Catalog, tmp_path: Any
) -> None:
    path = tmp_path / "theirs"
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, at TIMESTAMP DEFAULT current_timestamp(), "
              "n INT DEFAULT 5) USING delta "
              "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')")  # fmt: skip
    spark.sql(f"INSERT INTO delta.`{path}` (id) VALUES (1)")
    lake.import_table(str(path), name="t")
    lake.sql("INSERT INTO t (id) VALUES (2)")
    found = lake.sql("SELECT * FROM t ORDER BY id").to_pylist()
    assert [(row["id"], row["n"]) for row in found] == [(1, 5), (2, 5)]
    assert found[0]["at"] < found[1]["at"]


def test_spark_catalog_fills_defaults(
    spark: SparkSession, lake: Catalog, sql: Callable[[str], list[Any]]
) -> None:
    lake.sql(T)
    sql("INSERT INTO lake.default.t (id) VALUES (1)")
    sql("INSERT INTO lake.default.t VALUES (2, DEFAULT, DEFAULT, DEFAULT, DEFAULT)")
    sql("UPDATE lake.default.t SET n = 9 WHERE id = 1")
    sql("UPDATE lake.default.t SET n = DEFAULT WHERE id = 1")
    sql("MERGE INTO lake.default.t t USING (SELECT 3L AS id) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)")  # fmt: skip
    found = lake.sql("SELECT * FROM t ORDER BY id").to_pylist()
    assert [shown(row) for row in found] == [NEW] * 3


def test_merge_of_the_delta_table_api_sets_defaults(
    spark: SparkSession, lake: Catalog, table: DeltaTable
) -> None:
    lake.sql("ALTER TABLE t ALTER COLUMN value SET DEFAULT 42")
    source = spark.createDataFrame([("a",), ("z",)], "k STRING")
    table.alias("t").merge(source, "t.key = k").whenMatchedUpdate(
        set={"value": "DEFAULT"}
    ).whenNotMatchedInsert(values={"key": "k"}).execute()
    assert {row.key: row.value for row in table.toDF().collect()} == {
        "a": 42,
        "b": 2,
        "c": 3,
        "d": 4,
        "z": 42,
    }
