"""Every statement of the reference on classic Spark, and `spark.sql` of a registered session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import deltasql.spark
from deltasql.exceptions import InvalidQueryError, TxnLogTableNotFoundError
from tests.mirror.support import open_mirrored
from tests.sql.cases import ALL, CASES, TWO, Case, T, run_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def sql(spark: SparkSession, lake: Catalog) -> Callable[..., list[dict[str, Any]]]:
    def run(text: str, parameters: Any = None) -> list[dict[str, Any]]:
        found = deltasql.spark.sql(spark, text, parameters, catalog=lake)
        return [row.asDict(recursive=True) for row in found.collect()]

    return run


CHOSEN = [
    each
    if each.smoke
    else pytest.param(each, marks=pytest.mark.everything("Spark, beyond the chosen statements"))
    for each in CASES
]


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.shown)
def test_statement_gives_the_documented_rows(
    case: Case, sql: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "files" / "a.parquet")
    assert run_case(case, sql, str(tmp_path / "files")) == case.rows


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_statement_uses_views_of_spark_and_parameters(
    spark: SparkSession, sql: Callable[..., list[dict[str, Any]]]
) -> None:
    sql("CREATE TABLE crm.t (id BIGINT, name STRING)")
    spark.createDataFrame([(1, "{x}"), (2, "it's")], ["id", "name"]).createOrReplaceTempView("src")
    sql("INSERT INTO crm.t SELECT * FROM src WHERE id < ?", [2])
    sql(
        "MERGE INTO crm.t USING src ON t.id = src.id WHEN NOT MATCHED AND src.name = :name "
        "THEN INSERT *",
        {"name": "it's"},
    )
    found = sql(
        "SELECT crm.t.id, '{y}' AS y FROM crm.t JOIN src ON crm.t.id = src.id "
        "WHERE crm.t.name IN (:name, '{x}') ORDER BY 1",
        {"name": "it's"},
    )
    assert found == [{"id": 1, "y": "{y}"}, {"id": 2, "y": "{y}"}]
    spark.catalog.dropTempView("src")


def test_registered_session_runs_statements_about_tables_of_the_catalog(
    spark: SparkSession, lake: Catalog
) -> None:
    deltasql.sql(lake, T)
    deltasql.sql(lake, TWO)
    try:
        assert deltasql.spark.register(spark, lake, sql=True) == {}
        spark.sql("INSERT INTO t VALUES (3, 'c')")
        spark.sql("UPDATE T SET name = 'B' WHERE id = :id", {"id": 2})
        assert [row.name for row in spark.sql(ALL).collect()] == ["a", "B", "c"]
        assert spark.sql("DESCRIBE HISTORY t LIMIT 1").first().version == 3
        # Commits of other programs are visible at once.
        deltasql.sql(lake, "DELETE FROM t WHERE id = 3")
        assert spark.sql("SELECT count(*) AS n FROM t").first().n == 2
        spark.sql("BEGIN")
        spark.sql("DELETE FROM t")
        assert spark.sql(ALL).collect() == []
        assert lake.table("t").version() == 4
        spark.sql("ROLLBACK")
        with pytest.raises(InvalidQueryError, match="ALTER COLUMN"):
            spark.sql("ALTER TABLE t ALTER COLUMN id FIRST")
        # Everything else is a statement of Spark.
        spark.sql("CREATE OR REPLACE TEMP VIEW v AS SELECT 1 AS one")
        assert spark.sql("SELECT * FROM v").collect() == [(1,)]
        assert spark.sql("SELECT * FROM {df}", df=spark.range(2)).count() == 2
        assert spark.sql("SET spark.sql.shuffle.partitions").first().value == "2"
        assert spark.newSession().sql("SELECT 1 AS x").first().x == 1
    finally:
        deltasql.spark.register(spark, lake, views=False)
        spark.catalog.dropTempView("v")


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_registered_session_reads_the_catalog_in_statements_about_tables_of_spark(
    spark: SparkSession, lake: Catalog
) -> None:
    deltasql.sql(lake, T)
    deltasql.sql(lake, TWO)
    try:
        deltasql.spark.register(spark, lake, sql=True)
        spark.sql(
            "CREATE TABLE own USING parquet AS SELECT id, '{x}' AS x FROM t WHERE id = ?", [1]
        )
        spark.sql("INSERT INTO own SELECT x.id, :name FROM T AS x WHERE id > 1", {"name": "it's"})
        assert spark.sql("SELECT * FROM own ORDER BY id").collect() == [(1, "{x}"), (2, "it's")]
        spark.sql("INSERT INTO t SELECT * FROM own")
        assert lake.table("t").snapshot().totals().num_records == 4
        spark.sql("BEGIN")
        with pytest.raises(InvalidQueryError, match="outside this catalog in a transaction"):
            spark.sql("INSERT INTO own SELECT * FROM t")
        spark.sql("ROLLBACK")
        # The name of a catalog that this session does not have.
        with pytest.raises(PySparkException, match="lake"):
            spark.table("own").write.saveAsTable("lake.crm.t")
    finally:
        deltasql.spark.register(spark, lake, views=False)
        spark.sql("DROP TABLE IF EXISTS own")


@pytest.mark.everything("delta-spark as the oracle")
def test_same_statements_give_the_same_rows_as_delta_spark(
    spark: SparkSession, sql: Callable[..., list[dict[str, Any]]]
) -> None:
    def on_delta_spark(text: str) -> list[dict[str, Any]]:
        return [row.asDict(recursive=True) for row in spark.sql(text).collect()]

    many = ", ".join(f"({n}, {n % 7}, 's{n % 3}', {n / 4})" for n in range(100))
    script = (
        "CREATE TABLE checked (id BIGINT, n INT, s STRING, d DOUBLE) USING delta",
        f"INSERT INTO checked VALUES {many}",
        "UPDATE checked SET n = n / 2, s = concat(s, NULL) WHERE n > 4",
        "DELETE FROM checked WHERE s IS NULL AND id % 2 = 0",
        "MERGE INTO checked AS t USING (SELECT id + 50 AS id, n, 'new' AS s, d FROM checked) AS s "
        "ON t.id = s.id WHEN MATCHED AND s.n > 2 THEN DELETE WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND t.id < 9 THEN UPDATE SET d = -1",
        "INSERT INTO checked REPLACE WHERE id < 5 SELECT 4, 4, 'four', 4",
        "ALTER TABLE checked ADD COLUMNS (more DECIMAL(5, 2) COMMENT 'x')",
        "INSERT INTO checked (id, more) VALUES (1000, 1.005)",
    )
    try:
        for run in (sql, on_delta_spark):
            for text in script:
                run(text)
        query = "SELECT * FROM checked ORDER BY id, n, s, d"
        assert sql(query) == on_delta_spark(query)
        older = "SELECT count(*) AS n, sum(d) AS d FROM checked VERSION AS OF 3"
        assert sql(older) == on_delta_spark(older)
    finally:
        spark.sql("DROP TABLE IF EXISTS checked")


def test_error_for_an_unknown_table_is_an_analysis_exception_of_spark(
    sql: Callable[..., list[dict[str, Any]]],
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(TxnLogTableNotFoundError) as caught:
        sql("DELETE FROM nowhere")
    assert isinstance(caught.value, AnalysisException)
    with pytest.raises(AnalysisException, match="nowhere"):
        sql("SELECT * FROM nowhere")
