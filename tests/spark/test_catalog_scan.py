"""What a query through the Spark catalog does not read: files, and rows that statistics answer."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest

from tests.oracles.fixed_set import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from deltasql import Catalog
    from tests.oracles.writing import Written

BEYOND = "aggregates and filters of the Spark catalog on more kinds of tables"
EXACT = ("byte", "short", "integer", "long", "date")
ROWS = pa.table(
    {
        "id": pa.array([1, 2, None, 4], pa.int32()),
        "day": [date(2024, 5, 1), date(2024, 5, 2), date(2024, 5, 2), None],
        "name": ["a", "b", "c", None],
        "p": ["x", "y", "y", None],
    }
)


def executed(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan())  # type: ignore[operator]


@pytest.fixture
def table(lake: Catalog) -> str:
    """A table with three partitions."""
    with lake.begin() as tx:
        tx.write("t", ROWS, partition_by=["p"])
    return "t"


def remove_files(lake: Catalog, tmp_path: Path, partition: str = "") -> None:
    """Delete data files, so that a query fails if it reads them."""
    found = [path for path in (tmp_path / "lake").rglob("*.parquet") if partition in str(path)]
    assert found
    for path in found:
        path.unlink()


def test_count_min_and_max_are_computed_from_statistics(
    lake: Catalog, table: str, sql: Any, tmp_path: Path
) -> None:
    remove_files(lake, tmp_path)
    assert sql("SELECT count(*), count(id), min(id), max(day), max(p) FROM lake.default.t") == [
        (4, 3, 1, date(2024, 5, 2), "y")
    ]
    assert sql("SELECT count(*), max(id) FROM lake.default.t WHERE p <> upper('Y')") == [(3, 2)]
    assert sql("SELECT count(*), max(id) FROM lake.default.t WHERE p = 'z'") == [(0, None)]
    grouped = "SELECT p, count(*), min(id) FROM lake.default.t GROUP BY p ORDER BY p"
    assert sql(grouped) == [(None, 1, 4), ("x", 1, 1), ("y", 2, 2)]


def test_aggregates_that_statistics_do_not_give_exactly_read_the_files(
    lake: Catalog, table: str, sql: Any, tmp_path: Path
) -> None:
    queries = {
        "SELECT max(name) FROM lake.default.t": [("c",)],
        "SELECT count(DISTINCT id) FROM lake.default.t": [(3,)],
        "SELECT max(id + 1) FROM lake.default.t": [(5,)],
        "SELECT count(*) FROM lake.default.t WHERE id > 1": [(2,)],
        "SELECT id, count(*) FROM lake.default.t WHERE p = 'x' GROUP BY id": [(1, 1)],
    }
    for query, rows in queries.items():
        assert sql(query) == rows
    with lake.begin() as tx:
        tx.write(
            "v", pa.table({"id": [1, 2, 3]}), properties={"delta.enableDeletionVectors": "true"}
        )
        tx.write("v", pa.table({"id": [4]}))
    lake.table("v")
    with lake.begin() as tx:
        tx.delete("v", "id = 3")
    assert sql("SELECT count(*), max(id) FROM lake.default.v") == [(3, 4)]
    remove_files(lake, tmp_path)
    for query in queries:
        with pytest.raises(Exception, match="does not exist"):
            sql(query)


def test_filters_on_partition_columns_are_evaluated_once(
    spark: SparkSession, name: str, table: str
) -> None:
    frame = spark.sql(f"SELECT id FROM {name}.default.t WHERE substr(p, 1) = 'y' AND p IS NOT NULL")
    assert "Filter (" not in executed(frame)
    assert sorted(frame.collect(), key=str) == [(2,), (None,)]
    both = spark.sql(f"SELECT name FROM {name}.default.t WHERE p = 'y' AND id = 2")
    assert "Filter (isnotnull(id" in executed(both)
    assert both.collect() == [("b",)]
    either = spark.sql(f"SELECT name FROM {name}.default.t WHERE p = 'x' OR id = 2")
    assert sorted(either.collect()) == [("a",), ("b",)]


def test_join_skips_files_by_the_keys_it_finds(
    spark: SparkSession, lake: Catalog, name: str, tmp_path: Path
) -> None:
    with lake.begin() as tx:
        for start in (0, 100, 200):
            tx.write("facts", pa.table({"k": range(start, start + 10), "v": [1.5] * 10}))
        tx.write("dim", pa.table({"k": [103, 104, 9], "label": ["a", "a", "b"]}))
    frame = spark.sql(
        f"SELECT sum(v), max(facts.k) FROM {name}.default.facts JOIN {name}.default.dim d "
        "ON facts.k = d.k WHERE d.label = 'a'"
    )
    assert "BroadcastHashJoin" in executed(frame)
    for file in lake.table("facts").files().to_pylist():
        if '"k":100' not in file["stats"]:
            next((tmp_path / "lake").rglob(file["path"])).unlink()
    assert frame.collect() == [(3.0, 104)]
    none = spark.sql(
        f"SELECT count(*) FROM {name}.default.facts JOIN {name}.default.dim d "
        "ON facts.k = d.k WHERE d.label = concat('no', 'ne')"
    )
    assert none.collect() == [(0,)]


def test_limit_lists_only_the_files_it_needs(
    spark: SparkSession, lake: Catalog, name: str, sql: Any
) -> None:
    for start in range(3):
        with lake.begin() as tx:
            tx.write("t", pa.table({"id": range(start * 10, start * 10 + 10)}))
    frame = spark.sql(f"SELECT * FROM {name}.default.t LIMIT 12")
    assert len(frame.collect()) == 12
    assert len({urlsplit(each).path for each in map(unquote, frame.inputFiles())}) <= 3
    plan = frame._jdf.queryExecution().optimizedPlan()  # type: ignore[operator]
    assert plan.collectLeaves().head().stats().rowCount().get() == 20
    assert len(sql("SELECT * FROM lake.default.t WHERE id >= 15 LIMIT 12")) == 12


@pytest.mark.everything(BEYOND)
@pytest.mark.parametrize("make", SMALL, ids=lambda make: make.__name__)
def test_aggregates_equal_those_of_the_rows(
    spark: SparkSession, lake: Catalog, name: str, make: Callable[[Catalog], list[Written]]
) -> None:
    """Spark computes the expected values from a copy of the rows."""
    for written in make(lake):
        table = f"{name}.`{written.table.namespace}`.`{written.table.name}`"
        for version in range(len(written.states)):
            frame = spark.sql(f"SELECT * FROM {table} VERSION AS OF {version}")
            exact, others = ["count(*)"], ["count(*)"]
            for field in frame.schema.fields:
                column = "`" + field.name.replace("`", "``") + "`"
                is_exact = field.dataType.typeName() in EXACT
                functions = ["count", "min", "max"] if is_exact else ["count"]
                if field.dataType.typeName() in ("string", "double", "boolean", "timestamp"):
                    functions = ["count", "min", "max"]
                calls = (f"CAST({each}({column}) AS STRING)" for each in functions)
                (exact if is_exact else others).extend(calls)
            rows = frame.localCheckpoint()
            for functions in (exact, others):
                found = frame.selectExpr(*functions).collect()
                assert found == rows.selectExpr(*functions).collect(), (version, functions)
