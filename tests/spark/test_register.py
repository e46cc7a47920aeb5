"""`register(spark)`: the data source, table names and views of a catalog in a Spark session."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException

import deltasql.spark
from deltasql.exceptions import CatalogNotFoundError, TxnLogConfigError
from deltasql.spark import DeltaTable
from deltasql.spark.exceptions import ConcurrentWriteException
from deltasql.spark.register import _warn_of_other_python
from deltasql.spark.session import catalog_of
from tests.oracles import tables, tables_staged
from tests.oracles.states import arrow_rows
from tests.spark.support import ODD, settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog


def test_register_creates_views_and_refreshes_them(spark: SparkSession, lake: Catalog) -> None:
    for name in ("j_sales", "crm.j_clients"):
        with lake.begin() as tx:
            tx.write(name, pa.table({"id": [1, 2]}))
    assert deltasql.spark.register(spark, lake) == {
        "j_sales": "j_sales",
        "crm.j_clients": "crm__j_clients",
    }
    both = "SELECT * FROM j_sales JOIN crm__j_clients USING (id)"
    assert spark.sql(both).count() == 2
    with lake.begin() as tx:
        tx.write("j_sales", pa.table({"id": [3]}))
    lake.drop("crm.j_clients")
    assert deltasql.spark.register(spark, lake) == {"j_sales": "j_sales"}
    assert spark.table("j_sales").count() == 3


def test_read_and_write_find_tables_of_the_registered_catalog_by_name(
    spark: SparkSession, lake: Catalog
) -> None:
    deltasql.spark.register(spark, lake, views=False)
    assert deltasql.spark.write(spark.range(3), "crm.by_name") == 0
    assert deltasql.spark.write(spark.range(3, 5), "crm.by_name") == 1
    for name, version in (("crm.by_name", None), ("CRM.By_Name", None), ("crm.by_name", 0)):
        rows = deltasql.spark.read(spark, name, version=version).count()
        assert rows == (5 if version is None else 3)
    assert deltasql.spark.read(spark, lake.table("crm.by_name").location).count() == 5


def test_name_without_a_registered_catalog_is_rejected_with_a_solution(
    spark: SparkSession,
) -> None:
    other = spark.newSession()
    for call in (
        lambda: deltasql.spark.read(other, "sales"),
        lambda: deltasql.spark.write(other.range(1), "sales"),
    ):
        with pytest.raises(TxnLogConfigError, match="'sales': no catalog is registered") as caught:
            call()
        assert "deltasql.spark.register(spark, catalog_uri)" in caught.value.help


def test_statements_that_would_not_change_the_catalog_are_rejected(
    spark: SparkSession, lake: Catalog
) -> None:
    lake.create_table("j_kept", pa.schema([("id", pa.int64())]))
    deltasql.spark.register(spark, lake)
    for text in (
        "CREATE TABLE j_new (id INT) USING deltasql",
        "CREATE TABLE IF NOT EXISTS spark_catalog.default.j_new USING DeltaSQL AS SELECT 1 AS x",
        "DROP TABLE j_kept",
        "DROP TABLE IF EXISTS `J_Kept`",
    ):
        with pytest.raises(AnalysisException, match=r"deltasql\.spark\.sql\(spark"):
            spark.sql(text)
    assert not spark.catalog.tableExists("default.j_new")
    assert lake.exists("j_kept")
    # The view can be dropped, and the name used for a table of Spark.
    spark.sql("DROP VIEW j_kept")
    spark.sql("CREATE TABLE j_kept (id INT) USING parquet")
    spark.sql("DROP TABLE j_kept")


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize("mode", ["error", "append", "overwrite", "ignore"])
def test_save_as_table_with_the_format_creates_no_table_if_delta_spark_is_configured(
    spark: SparkSession, lake: Catalog, mode: str
) -> None:
    lake.create_table("j_kept", pa.schema([("id", pa.int64())]))
    deltasql.spark.register(spark, lake)
    writer = spark.range(2).write.format("deltasql").mode(mode)
    for table in ("j_kept", "j_new"):
        # The catalog of delta-spark, which this session has, fails with an internal error.
        with pytest.raises(Exception, match=r"INTERNAL_ERROR|deltasql\.spark\.write"):
            writer.saveAsTable(table)
        assert not spark.catalog.tableExists(f"spark_catalog.default.{table}")
    assert lake.table("j_kept").version() == 0


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_data_source_keeps_values_with_unusual_session_settings(
    spark: SparkSession, lake: Catalog
) -> None:
    made = [
        tables.typed_partitions(lake),
        tables.nested(lake),
        tables_staged.deletion_vectors(lake),
    ]
    deltasql.spark.register(spark, lake, views=False)
    with settings(spark, ODD):
        for [written] in made:
            frame = spark.read.format("deltasql").load(written.name)
            assert arrow_rows(frame.toArrow()) == written.states[-1]
            writer = frame.write.format("deltasql").mode("append")
            keys = list(written.partition_by)
            writer.option("partitionBy", ",".join(keys)).save(f"{written.name}_copy")
            copy = lake.table(f"{written.name}_copy")
            assert list(copy.snapshot().partition_columns) == keys
            found = deltasql.spark.read(spark, copy.uri).toArrow()
            assert arrow_rows(found) == written.states[-1]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_data_source_supports_append_overwrite_and_options(
    spark: SparkSession, lake: Catalog
) -> None:
    deltasql.spark.register(spark)
    uri = lake.uri.with_table("t").to_string()

    def save(frame: Any, mode: str, **options: object) -> None:
        frame.write.format("deltasql").mode(mode).options(**options).save(uri)

    ids = spark.range(6).coalesce(1)
    save(ids, "append", userMetadata="first")
    save(ids.where("id > 3"), "overwrite", replaceWhere="id > 2")
    save(ids.selectExpr("id", "'x' AS more"), "append", mergeSchema="true")
    table = lake.table("t")
    assert table.version() == 2
    frame = spark.read.format("deltasql").option("versionAsOf", 1).load(uri)
    assert sorted(row["id"] for row in frame.collect()) == [0, 1, 2, 4, 5]
    save(ids, "overwrite", overwriteSchema="true", txnAppId="job", txnVersion=1)
    save(ids, "append", txnAppId="job", txnVersion=1)
    assert deltasql.spark.read(spark, uri).columns == ["id"]
    assert table.snapshot().totals().num_records == 6
    for mode in ("error", "ignore"):
        with pytest.raises(Exception, match="Append"):
            save(ids, mode)
    with pytest.raises(Exception, match="partitioning"):
        ids.write.format("deltasql").mode("append").partitionBy("id").save(uri)
    assert table.version() == 3


def test_format_can_be_registered_in_two_sessions(spark: SparkSession, lake: Catalog) -> None:
    for session in (spark, spark.newSession()):
        deltasql.spark.register(session, lake, views=False)
        assert session.range(1).count() == 1  # the session is active from now on


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_sessions_have_their_own_catalogs(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    with deltasql.connect(f"deltasql://sqlite/{tmp_path}/other.db", create=True) as other:
        sessions = {lake: spark, other: spark.newSession()}
        for number, (catalog, session) in enumerate(sessions.items(), 1):
            catalog.create_table("t", pa.schema([("id", pa.int64())]))
            deltasql.spark.register(session, catalog, views=False)
            rows = session.range(number)  # the session is active from now on
            rows.write.format("deltasql").mode("append").save("t")
        for number, session in enumerate(sessions.values(), 1):
            assert session.read.format("deltasql").load("t").count() == number


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_failed_task_commits_nothing(spark: SparkSession, lake: Catalog) -> None:
    deltasql.spark.register(spark, lake, views=False)
    lake.create_table("t", pa.schema([("id", pa.int64())]))
    broken = spark.range(10).selectExpr("IF(id = 7, raise_error('broken'), id) AS id")
    with pytest.raises(Exception, match="broken"):
        broken.write.format("deltasql").mode("append").save("t")
    assert lake.table("t").version() == 0


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_reads_of_a_missing_catalog_raise_and_create_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/typo.db"
    table = f"{uri}?table=t"
    deltasql.spark.register(spark)  # only the data source
    kept = catalog_of(spark)
    calls: dict[str, Callable[[], object]] = {
        "register": lambda: deltasql.spark.register(spark, uri),
        "read": lambda: deltasql.spark.read(spark, table),
        "mirror_spark": lambda: deltasql.spark.mirror_spark(spark, uri),
        "forPath": lambda: DeltaTable.forPath(spark, table),
        "load": lambda: spark.read.format("deltasql").load(table),
        "stream": lambda: spark.readStream.format("deltasql").load(table),
    }
    for name, call in calls.items():
        with pytest.raises((CatalogNotFoundError, PySparkException), match="no catalog yet"):
            call()
        assert [*tmp_path.iterdir()] == [], name
    assert not DeltaTable.isDeltaTable(spark, table)
    assert catalog_of(spark) is kept
    deltasql.spark.register(spark, uri, views=False)  # a stream may write to it first
    for call in (
        lambda: spark.read.format("deltasql").load("t"),
        lambda: DeltaTable.forName(spark, "t"),
    ):
        with pytest.raises((CatalogNotFoundError, PySparkException), match="no catalog yet"):
            call()
    assert [*tmp_path.iterdir()] == []
    DeltaTable.create(spark).tableName("t").addColumn("id", "BIGINT").execute()
    assert deltasql.spark.register(spark, uri) == {"t": "t"}


JOB = """
import sys
from pyspark.sql import SparkSession
import deltasql.spark
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
before = (spark.sparkContext.pythonExec, spark.conf.getAll)
deltasql.spark.register(spark, sys.argv[1], views=False)
spark.range(3).write.format("deltasql").mode("append").save("t")
print(spark.read.format("deltasql").load("t").count())

import logging
import deltalake
import pyarrow as pa
from deltasql.engine.spark import write

reports = []
handler = logging.Handler(logging.INFO)
handler.emit = lambda record: reports.append(record.getMessage())
logging.getLogger("deltasql").setLevel(logging.INFO)
logging.getLogger("deltasql").addHandler(handler)
write._BY_DRIVER = 1  # executors read the footers of more files
rows = spark.range(20).selectExpr("id", "id AS p")
deltasql.spark.write(rows, f"{sys.argv[1]}?table=parts", partition_by="p")
with deltasql.connect(sys.argv[1]) as catalog:
    catalog.vacuum("parts", engine="spark", dry_run=True)
    deltalake.write_deltalake(f"{sys.argv[2]}/source", pa.table({"id": [1]}))
    catalog.import_table(f"{sys.argv[2]}/source", name="copy", engine="spark")
    print(len(catalog.table("copy").files()))
print([each for each in reports if "by the driver" in each])
print((spark.sparkContext.pythonExec, spark.conf.getAll) == before)
"""


@pytest.mark.everything("starts a JVM of its own")
def test_local_workers_run_with_the_python_of_the_driver(sqlite_uri: Any, tmp_path: Path) -> None:
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho this is another Python >&2\nexit 1\n")
    other.chmod(0o755)
    known = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    answer = subprocess.run(
        [sys.executable, "-c", JOB, sqlite_uri.to_string(), str(tmp_path)],
        env={**known, "PATH": f"{other.parent}:{known['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert answer.stdout.split()[-4:] == ["3", "1", "[]", "True"], answer.stderr[-3000:]


def test_workers_with_another_python_are_logged_as_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "deltasql.spark.register"):
        _warn_of_other_python(sys.executable)
        assert caplog.text == ""
        _warn_of_other_python("python3-that-does-not-exist")
    assert "set PYSPARK_PYTHON to a Python that has deltasql" in caplog.text


def test_create_or_replace_conflicts_with_a_concurrent_create(
    spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltasql.spark.register(spark, lake, views=False)
    builder = DeltaTable.createOrReplace(spark).tableName("j_race").addColumn("id", "BIGINT")

    commit = builder._commit

    def late(*given: Any, **options: Any) -> None:
        """Let another writer create the table after this one found that it does not exist."""
        monkeypatch.undo()
        DeltaTable.create(spark).tableName("j_race").addColumn("id", "BIGINT").execute()
        commit(*given, **options)

    monkeypatch.setattr(builder, "_commit", late)
    with pytest.raises(ConcurrentWriteException, match="another commit has created it"):
        builder.execute()
    builder.execute()
    assert lake.table("j_race").version() == 1
