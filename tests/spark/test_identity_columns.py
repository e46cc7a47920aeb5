"""Identity columns on Spark, in alternation with delta-spark."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import deltasql.spark
from deltasql.exceptions import TxnLogSchemaError, UnsupportedFeatureError
from deltasql.model.schema.identity import MARK
from deltasql.phases import hooked
from deltasql.spark import DeltaTable
from deltasql.spark.session import set_catalog
from deltasql.spark.tables import IdentityGenerator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.serve import Service

pytestmark = pytest.mark.everything("identity columns on Spark; tests/sql has a smoke test")
T = "(id BIGINT GENERATED {} AS IDENTITY (START WITH {} INCREMENT BY {}), v STRING)"


def mark(catalog: Catalog, version: int | None = None) -> int | None:
    return catalog.table("t").snapshot(version).schema.fields[0].metadata.get(MARK)


def check(spark: SparkSession, lake: Catalog, values: list[str], step: int) -> None:
    """Check that every row has its own number, as both read it, and that marks never move back."""
    found = lake.sql("SELECT id, v FROM t").to_pylist()
    assert sorted(row["v"] for row in found) == sorted(values)
    numbers = [row["id"] for row in found]
    assert len(set(numbers)) == len(numbers)
    theirs = spark.read.format("delta").load(lake.table("t").location).collect()
    assert sorted(row.id for row in theirs) == sorted(numbers)
    marks = [mark(lake, n) for n in range(lake.table("t").version() + 1)]
    known = [step * each for each in marks if each is not None]
    assert known == sorted(known)
    assert known[-1] >= max(step * each for each in numbers)


@pytest.mark.parametrize(("kind", "start", "step"), [("ALWAYS", 1, 1), ("BY DEFAULT", 7, -3)])
def test_delta_spark_and_deltasql_never_generate_the_same_number(
    spark: SparkSession, lake: Catalog, bridge: Service, kind: str, start: int, step: int
) -> None:
    set_catalog(spark, lake)
    lake.sql(f"CREATE TABLE t {T.format(kind, start, step)}")
    path, values = lake.table("t").location, list[str]()

    def by_delta_spark(some: list[str]) -> None:
        spark.createDataFrame([(v,) for v in some], "v STRING").write.format("delta").mode(
            "append"
        ).save(path)

    def by_delta_spark_sql(some: list[str]) -> None:
        listed = ", ".join(f"('{v}')" for v in some)
        spark.sql(f"INSERT INTO delta.`{path}` (v) VALUES {listed}")

    def by_delta_spark_merge(some: list[str]) -> None:
        listed = ", ".join(f"('{v}')" for v in some)
        source = f"(SELECT col1 AS v FROM VALUES {listed}) s"
        spark.sql(f"MERGE INTO delta.`{path}` t USING {source} ON t.v = s.v "
                  "WHEN NOT MATCHED THEN INSERT (v) VALUES (s.v)")  # fmt: skip

    def by_python(some: list[str]) -> None:
        with lake.begin() as tx:
            tx.write("t", pa.table({"v": some}))

    def by_spark(some: list[str]) -> None:
        frame = spark.createDataFrame([(v,) for v in some], "v STRING").repartition(3)
        deltasql.spark.write(frame, lake.table("t").uri, mode="append")

    def by_spark_merge(some: list[str]) -> None:
        listed = ", ".join(f"('{v}')" for v in [*some, *values[:2]])
        deltasql.spark.sql(spark, f"MERGE INTO t USING (VALUES {listed}) AS s(v) ON t.v = s.v "
                           "WHEN MATCHED THEN UPDATE SET v = s.v "
                           "WHEN NOT MATCHED THEN INSERT (v) VALUES (s.v)")  # fmt: skip

    writers = [by_delta_spark, by_python, by_delta_spark_sql, by_spark, by_delta_spark_merge]
    writers += [by_spark_merge, by_python, by_delta_spark]
    random.Random(5).shuffle(writers)
    for turn, write in enumerate(writers):
        new = [f"{turn}-{n}" for n in range(5)]
        write(new)
        values += new
    check(spark, lake, values, step)


def test_append_of_delta_spark_merges_marks_of_a_concurrent_append(
    spark: SparkSession, lake: Catalog, bridge: Service
) -> None:
    """Python commits numbers after delta-spark has computed its commit without numbers."""
    lake.sql(f"CREATE TABLE t {T.format('BY DEFAULT', 1, 1)}")
    done = threading.Event()

    def interfere(phase: str) -> None:
        if phase == "staged" and not done.is_set():
            done.set()
            with lake.begin() as tx:
                tx.write("t", pa.table({"v": ["python"]}))

    path = lake.table("t").location
    with hooked(interfere):
        spark.createDataFrame([(100, "theirs")], "id BIGINT, v STRING").write.format("delta").mode(
            "append"
        ).save(path)
    found = lake.sql("SELECT id, v FROM t ORDER BY id").to_pylist()
    assert found == [{"id": 1, "v": "python"}, {"id": 100, "v": "theirs"}]
    assert mark(lake) == 1
    spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN id SYNC IDENTITY")
    with lake.begin() as tx:
        tx.write("t", pa.table({"v": ["next"]}))
    assert mark(lake) == 101
    lake.sql("INSERT INTO t (id, v) VALUES (200, 'mine')")
    deltasql.spark.sql(spark, "ALTER TABLE t ALTER COLUMN id SYNC IDENTITY", catalog=lake)
    spark.sql(f"INSERT INTO delta.`{path}` (v) VALUES ('last')")
    assert max(row["id"] for row in lake.sql("SELECT id FROM t").to_pylist()) > 200


def test_imported_table_with_identity_columns_is_writable(
    spark: SparkSession, lake: Catalog, tmp_path: Any
) -> None:
    path = tmp_path / "theirs"
    spark.sql(f"CREATE TABLE delta.`{path}` {T.format('ALWAYS', 10, 10)} USING delta")
    spark.sql(f"INSERT INTO delta.`{path}` (v) VALUES ('a'), ('b')")
    lake.import_table(str(path), name="t")
    before = mark(lake)
    with lake.begin() as tx:
        tx.write("t", pa.table({"v": ["c"]}))
    assert before is not None
    assert mark(lake) == before + 10
    lake.rollback("t")
    spark.sql(f"INSERT INTO delta.`{path}` (v) VALUES ('d')")
    numbers = [row.id for row in spark.read.format("delta").load(str(path)).collect()]
    assert len(set(numbers)) == 4
    assert min(numbers) == 10


def test_delta_table_api_creates_and_fills_identity_columns(
    spark: SparkSession, lake: Catalog
) -> None:
    set_catalog(spark, lake)
    table = (
        DeltaTable.create(spark)
        .tableName("t")
        .addColumn("id", "BIGINT", generatedAlwaysAs=IdentityGenerator(start=3, step=2))
        .addColumn("v", "STRING")
        .execute()
    )
    frame = spark.range(0, 50, 1, 4).selectExpr("CAST(id AS STRING) AS v")
    deltasql.spark.write(frame, lake.table("t").uri, mode="append")
    source = spark.createDataFrame([("0",), ("x",)], "k STRING")
    table.alias("t").merge(source, "t.v = k").whenMatchedUpdate(
        set={"v": "'y'"}
    ).whenNotMatchedInsert(values={"v": "k"}).execute()
    assert sorted(row.id for row in table.toDF().collect()) == list(range(3, 3 + 2 * 51, 2))
    with pytest.raises((PySparkException, TxnLogSchemaError), match="cannot be updated"):
        table.update(set={"id": "7"})


def test_writer_that_cannot_generate_numbers_fails_and_names_the_feature(
    spark: SparkSession, lake: Catalog
) -> None:
    lake.sql(f"CREATE TABLE t {T.format('ALWAYS', 1, 1)}")
    lake.sql("INSERT INTO t (v) VALUES ('a'), ('b')")
    frame = spark.createDataFrame([("c",)], "v STRING")
    with pytest.raises((PySparkException, UnsupportedFeatureError), match="identity column 'id'"):
        deltasql.spark.register(spark, lake)
        frame.write.format("deltasql").mode("append").save(str(lake.table("t").uri))
    assert lake.table("t").version() == 1
