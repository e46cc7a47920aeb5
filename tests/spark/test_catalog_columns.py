"""Default values and identity columns through the Spark catalog."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException

from deltasql.model.schema.identity import MARK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.serve import Service

T = "CREATE TABLE lake.default.t (id BIGINT GENERATED {} AS IDENTITY {}, v STRING)"
MORE = pytest.mark.everything("identity columns of the Spark catalog beyond a smoke test")


def rows(lake: Catalog, order: str = "id") -> list[tuple[Any, ...]]:
    found = lake.sql(f"SELECT * FROM t ORDER BY {order}").to_pylist()
    return [tuple(row.values()) for row in found]


def test_statements_fill_defaults_and_identity_columns(
    lake: Catalog, sql: Callable[[str], list[Any]]
) -> None:
    sql("CREATE TABLE lake.default.t (id BIGINT GENERATED ALWAYS AS IDENTITY "
        "(START WITH 5 INCREMENT BY 5), v STRING, n INT DEFAULT 1 + 1, "
        "d DATE DEFAULT DATE'2024-05-01')")  # fmt: skip
    sql("INSERT INTO lake.default.t (v) VALUES ('a')")
    sql("INSERT INTO lake.default.t VALUES (DEFAULT, 'b', DEFAULT, NULL)")
    sql("ALTER TABLE lake.default.t ALTER COLUMN n SET DEFAULT 7")
    sql("MERGE INTO lake.default.t t USING (SELECT 'b' AS v UNION ALL SELECT 'c') s ON t.v = s.v "
        "WHEN MATCHED THEN UPDATE SET n = DEFAULT "
        "WHEN NOT MATCHED THEN INSERT (v, n) VALUES (s.v, DEFAULT)")  # fmt: skip
    sql("ALTER TABLE lake.default.t ALTER COLUMN n DROP DEFAULT")
    sql("INSERT INTO lake.default.t (v) VALUES ('d')")
    sql("UPDATE lake.default.t SET v = 'A', d = DEFAULT WHERE id = 5")
    found = [(*row[:3], str(row[3])) for row in rows(lake)]
    assert found == [
        (5, "A", 2, "2024-05-01"),
        (10, "b", 7, "None"),
        (15, "c", 7, "2024-05-01"),
        (20, "d", None, "2024-05-01"),
    ]
    with pytest.raises(Py4JJavaError, match="cannot be added with a default"):
        sql("ALTER TABLE lake.default.t ADD COLUMNS (x INT DEFAULT 3)")


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize("vectors", [pytest.param("false", marks=MORE), "true"])
def test_explicit_values_for_generated_always_columns_are_refused(
    lake: Catalog, sql: Callable[[str], list[Any]], vectors: str
) -> None:
    sql(T.format("ALWAYS", "") + f" TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')")
    sql("INSERT INTO lake.default.t (v) VALUES ('a'), ('b')")
    merge = "MERGE INTO lake.default.t t USING (SELECT {} AS id, 'x' AS v) s ON t.id = s.id "
    for text, problem in (
        ("INSERT INTO lake.default.t VALUES (3, 'c')", "GENERATED ALWAYS"),
        ("INSERT OVERWRITE lake.default.t VALUES (3, 'c')", "GENERATED ALWAYS"),
        (merge.format("9L") + "WHEN NOT MATCHED THEN INSERT *", "GENERATED ALWAYS"),
        (merge.format("2L") + "WHEN MATCHED THEN UPDATE SET v = s.v "
         "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET id = 4", "cannot be updated"),
        ("UPDATE lake.default.t SET id = id + 5", "cannot be updated"),
    ):  # fmt: skip
        with pytest.raises(IllegalArgumentException, match=problem) as caught:
            sql(text)
        assert "TxnLogSchemaError" in str(caught.value)
        assert lake.table("t").version() == 1
    sql(merge.format("2L") + "WHEN MATCHED THEN UPDATE SET *")  # with the number that it has
    sql("DELETE FROM lake.default.t WHERE id = 1")
    assert rows(lake) == [(2, "x")]


def test_large_write_of_several_tasks_generates_each_number_once(
    spark: SparkSession, lake: Catalog, name: str, sql: Callable[[str], list[Any]]
) -> None:
    sql(T.format("BY DEFAULT", "(START WITH 100 INCREMENT BY -2)"))
    new = spark.range(0, 30_000, 1, 3).selectExpr("CAST(id AS STRING) AS v")
    new.writeTo(f"{name}.default.t").append()
    sql("INSERT INTO lake.default.t VALUES (1001, 'own'), (NULL, 'next')")
    found = lake.sql("SELECT id, v FROM t").to_pydict()
    assert len(set(found["id"])) == 30_002
    assert sorted(set(found["v"])) == sorted({*map(str, range(30_000)), "own", "next"})
    numbers = [number for number in found["id"] if number != 1001]
    assert max(numbers) == 100
    assert all(number % 2 == 0 for number in numbers)
    mark = lake.table("t").snapshot().schema.fields[0].metadata[MARK]
    assert mark <= min(numbers)


@MORE
def test_concurrent_writers_never_generate_the_same_number(
    spark: SparkSession, lake: Catalog, bridge: Service, sql: Callable[[str], list[Any]]
) -> None:
    sql(T.format("ALWAYS", ""))
    path = lake.table("t").location
    barrier = threading.Barrier(3)

    def by_catalog(own: str) -> None:
        barrier.wait()
        for turn in range(5):
            sql(f"INSERT INTO lake.default.t (v) SELECT concat('{own}-{turn}-', id) FROM range(9)")

    def by_python() -> None:
        barrier.wait()
        for turn in range(10):
            with lake.begin() as tx:
                tx.write("t", pa.table({"v": [f"python-{turn}-{n}" for n in range(9)]}))

    threads = [threading.Thread(target=by_catalog, args=(own,)) for own in "ab"]
    threads.append(threading.Thread(target=by_python))
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    spark.sql(f"INSERT INTO delta.`{path}` (v) VALUES ('theirs')")
    sql("INSERT INTO lake.default.t (v) VALUES ('last')")
    numbers = [row[0] for row in rows(lake)]
    assert len(numbers) == len(set(numbers)) == 20 * 9 + 2
    theirs = spark.read.format("delta").load(path).collect()
    assert sorted(row.id for row in theirs) == numbers


@MORE
def test_stream_fills_defaults_and_identity_columns(
    spark: SparkSession, lake: Catalog, name: str, sql: Callable[[str], list[Any]], tmp_path: Path
) -> None:
    sql("CREATE TABLE lake.default.s (v STRING)")
    sql("CREATE TABLE lake.default.t (id BIGINT GENERATED ALWAYS AS IDENTITY, v STRING, "
        "n INT DEFAULT 4, x INT)")  # fmt: skip
    for turn in range(2):
        sql(f"INSERT INTO lake.default.s VALUES ('{turn}a'), ('{turn}b')")
        spark.readStream.table(f"{name}.default.s").writeStream.option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        ).trigger(availableNow=True).toTable(f"{name}.default.t").awaitTermination()
    assert [row[1:] for row in rows(lake, "v")] == [(v, 4, None) for v in ("0a", "0b", "1a", "1b")]
    assert [row[0] for row in rows(lake)] == [1, 2, 3, 4]


@MORE
def test_identity_values_continue_across_the_statements_of_a_transaction(
    lake: Catalog, sql: Callable[[str], list[Any]]
) -> None:
    sql("CALL lake.system.begin()")
    sql(T.format("ALWAYS", "(START WITH 3)"))
    sql("INSERT INTO lake.default.t (v) VALUES ('a')")
    sql("INSERT INTO lake.default.t (v) VALUES ('b')")
    sql("CALL lake.system.commit()")
    sql("CALL lake.system.begin()")
    sql("INSERT INTO lake.default.t (v) VALUES ('lost')")
    sql("CALL lake.system.rollback()")
    sql("INSERT INTO lake.default.t (v) VALUES ('c')")
    assert rows(lake) == [(3, "a"), (4, "b"), (6, "c")]


@MORE
def test_generated_columns_and_constraints_use_identity_values(
    lake: Catalog, sql: Callable[[str], list[Any]]
) -> None:
    sql("CREATE TABLE lake.default.t (id BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY, v STRING, "
        "p BIGINT GENERATED ALWAYS AS (id % 2), CONSTRAINT few CHECK (id < 3)) PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")  # fmt: skip
    sql("INSERT INTO lake.default.t (v) VALUES ('a')")
    sql("MERGE INTO lake.default.t t USING (SELECT 'a' AS v UNION ALL SELECT 'b') s ON t.v = s.v "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (v) VALUES (s.v)")  # fmt: skip
    with pytest.raises(IllegalArgumentException, match="few"):
        sql("INSERT INTO lake.default.t (v) VALUES ('c')")
    assert rows(lake) == [(2, "b", 0)]
    published = deltalake.DeltaTable(lake.table("t").location)
    changes = pa.table(published.load_cdf(starting_version=2)).to_pylist()
    assert sorted((row["id"], row["_change_type"]) for row in changes) == [
        (1, "delete"),
        (2, "insert"),
    ]
