"""Writes through the Spark catalog keep the rules of a table, as the Python verbs do."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import Field, Schema
from pyspark.errors import (
    IllegalArgumentException,
    PythonException,
    UnsupportedOperationException,
)

from deltasql.exceptions import InvalidDataError
from tests.spark.support import ODD, mirrored, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog

MORE = "rules of tables in more statements of the Spark catalog"


def generated(name: str, kind: str, expression: str, **more: Any) -> Field:
    return Field(name, kind, metadata={"delta.generationExpression": expression}, **more)


def test_violated_constraint_raises_the_same_error_as_in_python(lake: Catalog, sql: Any) -> None:
    sql("CREATE TABLE lake.default.t (id INT, name STRING)")
    with lake.begin() as tx:
        tx.add_constraint("t", {"positive": "id > 0", "named": "name <> 'zz'"})
    sql("INSERT INTO lake.default.t VALUES (1, 'a')")
    rows = pa.table({"id": pa.array([-1, None, 3, 4], pa.int32()), "name": ["a", None, "zz", "d"]})
    with pytest.raises(InvalidDataError) as expected, lake.begin() as tx:
        tx.write("t", rows)
    with pytest.raises(IllegalArgumentException) as raised:
        sql(
            "INSERT INTO lake.default.t "
            "SELECT * FROM VALUES (-1, 'a'), (NULL, NULL), (3, 'zz'), (4, 'd')"
        )
    # The first prefix is deltalake's, the second one that of all errors of the catalog.
    message = str(expected.value).removeprefix("Generic DeltaTable error: External error: ")
    assert str(raised.value) == f"InvalidDataError: {message.replace(' (table: t)', '')}"
    assert mirrored(lake, "t") == [{"id": 1, "name": "a"}]
    assert lake.store.intents_before(2**60) == []


def test_generated_columns_are_computed_or_checked(lake: Catalog, sql: Any) -> None:
    twice = generated("twice", "long", "a * 2", nullable=False)
    text = generated("text", "string", "cast(a as string)")
    lake.create_table("t", Schema([Field("a", "long"), twice, text]))
    sql("INSERT INTO lake.default.t (a) VALUES (5)")
    sql("INSERT INTO lake.default.t VALUES (6, 12, '6'), (7, NULL, '7')")
    assert mirrored(lake, "t") == [
        {"a": 5, "twice": 10, "text": "5"},
        {"a": 6, "twice": 12, "text": "6"},
        {"a": 7, "twice": 14, "text": "7"},
    ]
    for row in ("(5, 11, '5')", "(NULL, NULL, NULL)"):  # a wrong value, and NULL in NOT NULL
        with pytest.raises(IllegalArgumentException, match=r"1 rows failed"):
            sql(f"INSERT INTO lake.default.t VALUES {row}")
    assert len(mirrored(lake, "t")) == 3


def test_rows_are_partitioned_by_a_generated_column(
    spark: SparkSession, lake: Catalog, sql: Any
) -> None:
    """The settings of the session change neither the expression nor the files of a partition."""
    day = generated("day", "date", "CAST(at AS DATE)")
    schema = Schema([Field("at", "timestamp"), day, generated("n", "long", "hour(at) / 2")])
    lake.create_table("t", schema, partition_by=["day"])
    with settings(spark, ODD):
        sql(
            "INSERT INTO lake.default.t (at) SELECT /*+ COALESCE(1) */ "
            "timestamp_seconds(1714521600 + 86400 * (id % 3) + 3600 * (id % 24)) FROM range(60)"
        )
    rows = mirrored(lake, "t")
    assert {row["day"] for row in rows} == {date(2024, 5, 1 + n) for n in range(3)}
    assert all(row["at"].astimezone(UTC).date() == row["day"] for row in rows)
    with lake.begin() as tx:
        tx.write("t", pa.table({"at": [datetime(2024, 5, 1, 23, tzinfo=UTC)]}))
        assert max(row["n"] for row in tx.read("t").to_pylist()) == 11
    assert len(lake.table("t").files(version=1)) == 3  # one file for each partition


def test_statement_whose_task_failed_is_committed_once_when_repeated(
    spark: SparkSession, lake: Catalog, name: str, sql: Any, tmp_path: Path
) -> None:
    sql("CREATE TABLE lake.default.t (id BIGINT)")
    failed = tmp_path / "failed"

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not failed.exists():
            failed.touch()
            raise RuntimeError("the first attempt")

    rows = spark.range(0, 100, 1, 1).mapInArrow(fail_once, "id BIGINT")
    with pytest.raises(PythonException, match="the first attempt"):
        rows.writeTo(f"{name}.default.t").append()
    assert lake.table("t").version() == 0
    assert not list((tmp_path / "lake").rglob("*.parquet"))
    assert lake.store.intents_before(2**60) == []
    rows.writeTo(f"{name}.default.t").append()
    assert lake.table("t").version() == 1
    assert sorted(row["id"] for row in mirrored(lake, "t")) == list(range(100))


def test_tables_are_created_and_altered_with_rules(lake: Catalog, sql: Any) -> None:
    columns = "id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2)"
    sql(f"CREATE TABLE lake.default.t ({columns}, CONSTRAINT low CHECK (id < 9))")
    sql("INSERT INTO lake.default.t (id) VALUES (4)")
    for values in ("(9, 18)", "(4, 9)"):
        with pytest.raises(IllegalArgumentException, match="rules for: low, twice"):
            sql(f"INSERT INTO lake.default.t VALUES {values}")
    assert mirrored(lake, "t") == [{"id": 4, "twice": 8}]
    sql("ALTER TABLE lake.default.t DROP CONSTRAINT low")
    sql("ALTER TABLE lake.default.t ADD CONSTRAINT positive CHECK (id > 0)")
    sql("ALTER TABLE lake.default.t CLUSTER BY (id)")
    with pytest.raises(IllegalArgumentException, match="rules for: positive, twice"):
        sql("INSERT INTO lake.default.t (id) VALUES (0)")
    assert sql("CALL lake.system.detail('t')")[0][8] == ["id"]
    sql(f"REPLACE TABLE lake.default.t ({columns})")  # the new definition has no constraints
    sql("INSERT INTO lake.default.t (id) VALUES (-1)")
    assert mirrored(lake, "t") == [{"id": -1, "twice": -2}]
    with pytest.raises(UnsupportedOperationException, match="only CHECK constraints"):
        sql("CREATE TABLE lake.default.keys (id INT PRIMARY KEY)")
    assert not lake.exists("keys")


@pytest.mark.everything(MORE)
def test_overwrites_and_new_tables_check_constraints(lake: Catalog, name: str, sql: Any) -> None:
    sql(
        "CREATE TABLE lake.default.t (id INT, p STRING) PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.constraints.positive' = 'id BETWEEN 1 AND 9')"
    )
    sql("INSERT OVERWRITE lake.default.t PARTITION (p = 'a') VALUES (1)")
    for statement in (
        "INSERT OVERWRITE lake.default.t PARTITION (p = 'a') VALUES (10)",
        "INSERT INTO lake.default.t REPLACE WHERE p = 'a' SELECT 10, 'a'",
        "CREATE OR REPLACE TABLE lake.default.t "
        "TBLPROPERTIES ('delta.constraints.positive' = 'id BETWEEN 1 AND 9') "
        "AS SELECT 10 AS id",
    ):
        with pytest.raises(IllegalArgumentException, match=r"1 rows failed.*"):
            sql(statement)
    assert mirrored(lake, "t") == [{"id": 1, "p": "a"}]


@pytest.mark.everything(MORE)
def test_values_of_all_types_are_shown_and_checked(lake: Catalog, sql: Any) -> None:
    sql(
        "CREATE TABLE lake.default.t (i INT, s STRUCT<x: INT, y: STRING>, l ARRAY<INT>, b BINARY, "
        "at TIMESTAMP, m MAP<STRING, INT>, ok BOOLEAN, d DECIMAL(9, 2))"
    )
    rules = {
        "a": "s.x > 0",
        "b": "size(l) < 3",
        "c": "coalesce(i, 1) IN (1, 2)",
        "d": "at < '2024-05-01'",
        "e": "nullif(d, 0) IS NOT NULL",
        "f": "CASE WHEN ok THEN length(s.y) < 3 ELSE true END",
    }
    with lake.begin() as tx:
        tx.add_constraint("t", rules)
    good = {
        "i": "1",
        "s": "named_struct('x', 1, 'y', 'a')",
        "l": "array(1)",
        "b": "X'0aff'",
        "at": "TIMESTAMP'2024-04-30T23:59:59Z'",
        "m": "map('k', 1)",
        "ok": "true",
        "d": "1.5BD",
    }
    sql(f"INSERT INTO lake.default.t SELECT {', '.join(good.values())}")
    for column, value in (
        ("s", "named_struct('x', 0, 'y', 'a')"),
        ("l", "array(1, 2, 3)"),
        ("i", "3"),
        ("at", "TIMESTAMP'2024-05-01T00:00:00Z'"),
        ("d", "0BD"),
        ("s", "named_struct('x', 1, 'y', 'long')"),
    ):
        with pytest.raises(IllegalArgumentException, match=r"1 rows failed") as raised:
            sql(f"INSERT INTO lake.default.t SELECT {', '.join({**good, column: value}.values())}")
        assert "| 0aff |" in str(raised.value)
    assert len(mirrored(lake, "t")) == 1
