"""The Spark catalog of the jar: `spark.sql` and `writeTo` on tables of a deltasql catalog."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import polars
import psutil
import pyarrow as pa
import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    UnsupportedOperationException,
)
from pyspark.sql import functions

import deltasql.spark
from deltasql.serve import Service
from deltasql.serve.service_file import write_service_file
from tests.oracles.fixed_set import SMALL
from tests.oracles.states import arrow_rows
from tests.selection import smoke
from tests.serve.client import losing_responses
from tests.spark.support import ODD, add_catalog, mirrored, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from tests.oracles.writing import Written

SMOKE = ("column_mapping", "deletion_vectors")
BEYOND = "the Spark catalog with more kinds of tables"


def test_rows_are_inserted_and_read_by_sql(lake: Catalog, sql: Any) -> None:
    sql(
        "CREATE TABLE lake.default.t (id BIGINT NOT NULL, day DATE, price DECIMAL(9,2))"
        " PARTITIONED BY (day)"
    )
    sql("INSERT INTO lake.default.t VALUES (1, DATE'2024-05-01', 1.5), (2, NULL, NULL)")
    sql("INSERT INTO lake.default.t (id) VALUES (3)")
    assert sql("SELECT id, CAST(day AS STRING) FROM lake.default.t ORDER BY id") == [
        (1, "2024-05-01"),
        (2, None),
        (3, None),
    ]
    assert sql("SELECT price FROM lake.default.t WHERE day = DATE'2024-05-01'")[0][0] == 1.5
    assert sql("SELECT count(*) FROM lake.default.t VERSION AS OF 1") == [(2,)]
    assert [row["id"] for row in mirrored(lake, "t")] == [1, 2, 3]
    assert lake.table("t").version() == 2


def test_filters_skip_files(spark: SparkSession, lake: Catalog, sql: Any) -> None:
    for start in (0, 100):
        with lake.begin() as tx:
            tx.write("t", pa.table({"id": range(start, start + 10)}))
    assert sql("SELECT sum(id) FROM lake.default.t WHERE id >= 105") == [
        (105 + 106 + 107 + 108 + 109,)
    ]
    files = "SELECT DISTINCT input_file_name() FROM lake.default.t WHERE id >"
    assert (len(sql(f"{files} 5")), len(sql(f"{files} 50"))) == (2, 1)


def test_create_table_as_select_and_replace_table_make_one_commit_each(
    lake: Catalog, sql: Any
) -> None:
    sql("CREATE TABLE lake.default.a AS SELECT id, id * 2 AS b FROM range(3)")
    assert lake.table("a").version() == 0
    sql("CREATE OR REPLACE TABLE lake.default.a AS SELECT b FROM lake.default.a WHERE b > 0")
    assert lake.table("a").version() == 1
    assert mirrored(lake, "a") == [{"b": 2}, {"b": 4}]
    assert sql("SELECT sum(id) FROM lake.default.a VERSION AS OF 0") == [(3,)]
    sql("REPLACE TABLE lake.default.a (c STRING)")
    assert (lake.table("a").version(), sql("SELECT * FROM lake.default.a")) == (2, [])


def test_failed_create_as_select_leaves_no_table(lake: Catalog, sql: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        sql("CREATE TABLE lake.default.a AS SELECT 1 / (id - 1) AS x FROM range(3)")
    assert not lake.exists("a")
    assert not list((tmp_path / "lake").rglob("*.parquet"))


def test_partitions_are_overwritten_truncated_and_deleted(lake: Catalog, sql: Any) -> None:
    sql("CREATE TABLE lake.default.t (p STRING, id INT) PARTITIONED BY (p)")
    sql("INSERT INTO lake.default.t VALUES ('a', 1), ('b', 2), ('é/ü', 3)")
    sql("INSERT OVERWRITE lake.default.t PARTITION (p = 'a') VALUES (10)")
    sql("INSERT INTO lake.default.t REPLACE WHERE p = 'é/ü' SELECT 'é/ü', 30")
    assert sorted(row["id"] for row in mirrored(lake, "t")) == [2, 10, 30]
    sql("DELETE FROM lake.default.t WHERE p = 'b'")
    assert sql("SELECT * FROM lake.default.t ORDER BY p") == [("a", 10), ("é/ü", 30)]
    assert sorted(polars.read_delta(lake.table("t").location)["p"]) == ["a", "é/ü"]
    sql("INSERT INTO lake.default.t REPLACE WHERE id >= 30 SELECT 'c', 40")
    assert sql("SELECT * FROM lake.default.t ORDER BY p") == [("a", 10), ("c", 40)]
    with pytest.raises(IllegalArgumentException, match="New rows must match the condition"):
        sql("INSERT INTO lake.default.t REPLACE WHERE id = 10 SELECT 'a', 1")
    with pytest.raises(UnsupportedOperationException, match="cannot have this condition"):
        sql("INSERT INTO lake.default.t REPLACE WHERE p LIKE 'a%' SELECT 'a', 1")
    assert lake.table("t").version() == 5
    sql("TRUNCATE TABLE lake.default.t")
    assert mirrored(lake, "t") == []


def test_data_frames_are_written_by_name(
    spark: SparkSession, lake: Catalog, name: str, sql: Any
) -> None:
    rows = spark.sql("SELECT * FROM VALUES (1, 'a'), (2, 'b') AS t(id, p)")
    rows.writeTo(f"{name}.default.t").partitionedBy(rows.p).create()
    rows.select("p", "id").writeTo(f"{name}.default.t").append()
    rows.where("id = 2").writeTo(f"{name}.default.t").overwritePartitions()
    assert [row["p"] for row in mirrored(lake, "t")] == ["a", "a", "b"]
    rows.write.mode("overwrite").saveAsTable(f"{name}.default.t")
    assert mirrored(lake, "t") == [{"id": 1, "p": "a"}, {"id": 2, "p": "b"}]
    assert spark.read.table(f"{name}.default.t").count() == 2
    assert spark.read.option("versionAsOf", 0).table(f"{name}.default.t").count() == 2


@pytest.mark.everything(BEYOND)
def test_save_as_table_without_a_catalog_uses_the_current_catalog(
    spark: SparkSession, lake: Catalog, name: str
) -> None:
    session = spark.newSession()
    for key in (f"spark.sql.catalog.{name}", f"spark.sql.catalog.{name}.service"):
        session.conf.set(key, spark.conf.get(key))
    session.sql(f"USE {name}.default")
    rows = session.range(2)
    rows.write.saveAsTable("t")
    rows.write.mode("append").saveAsTable("t")
    rows.write.saveAsTable("crm.t")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        rows.write.saveAsTable("t")
    rows.write.mode("ignore").saveAsTable("t")
    assert [row["id"] for row in mirrored(lake, "t")] == [0, 0, 1, 1]
    rows.write.mode("overwrite").saveAsTable("t")
    assert mirrored(lake, "t") == mirrored(lake, "crm.t") == [{"id": 0}, {"id": 1}]
    assert not spark.catalog.tableExists("spark_catalog.default.t")


def test_namespaces_and_tables_are_created_renamed_and_dropped(lake: Catalog, sql: Any) -> None:
    sql("CREATE NAMESPACE lake.crm")
    sql("CREATE TABLE lake.crm.t (id INT) COMMENT 'all' TBLPROPERTIES ('owner.team' = 'x')")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        sql("CREATE TABLE lake.crm.t (id INT)")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_EMPTY"):
        sql("DROP NAMESPACE lake.crm")
    sql("ALTER TABLE lake.crm.t RENAME TO crm.s")
    assert sql("SHOW TABLES IN lake.crm")[0][1] == "s"
    assert lake.table("crm.s").describe()["description"] == "all"
    sql("DROP TABLE lake.crm.s")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("SELECT * FROM lake.crm.s")
    assert [row.name for row in lake.dropped()] == ["s"]
    sql("DROP NAMESPACE lake.crm")


def test_columns_are_added_renamed_and_dropped(lake: Catalog, sql: Any) -> None:
    sql("CREATE TABLE lake.default.t AS SELECT 1 AS a, named_struct('x', 1) AS s")
    sql("ALTER TABLE lake.default.t ADD COLUMNS (b STRING COMMENT 'new', s.y INT)")
    sql("ALTER TABLE lake.default.t RENAME COLUMN a TO key")
    sql("INSERT INTO lake.default.t VALUES (2, named_struct('x', 2, 'y', 3), 'z')")
    assert sql("SELECT key, s.y, b FROM lake.default.t ORDER BY key") == [
        (1, None, None),
        (2, 3, "z"),
    ]
    sql("ALTER TABLE lake.default.t DROP COLUMN b")
    assert sql("SELECT * FROM lake.default.t WHERE key = 2") == [(2, (2, 3))]
    with pytest.raises(Exception, match="type widening is not enabled"):
        sql("ALTER TABLE lake.default.t ALTER COLUMN s.x TYPE BIGINT")
    sql("ALTER TABLE lake.default.t SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    sql("ALTER TABLE lake.default.t ALTER COLUMN s.x TYPE BIGINT")
    assert sql("SELECT s.x FROM lake.default.t WHERE s.x < 3000000000 ORDER BY key") == [(1,), (2,)]


@pytest.mark.parametrize(
    "make", smoke(SMALL, SMOKE, BEYOND, named=True), ids=lambda make: make.__name__
)
def test_catalog_reads_the_rows_of_each_version(
    spark: SparkSession, lake: Catalog, name: str, make: Callable[[Catalog], list[Written]]
) -> None:
    """Some of the tables have mapped columns, deletion vectors or partitions of every type."""
    for written in make(lake):
        table = f"{name}.`{written.table.namespace}`.`{written.table.name}`"
        for version, expected in enumerate(written.states):
            frame = spark.sql(f"SELECT * FROM {table} VERSION AS OF {version}")
            assert arrow_rows(frame.toArrow()) == expected, version
            assert frame.selectExpr("count(*)").first()[0] == len(expected.rows), version


@pytest.mark.everything(BEYOND)
@pytest.mark.parametrize("make", SMALL, ids=lambda make: make.__name__)
def test_create_table_as_select_copies_rows_unchanged(
    spark: SparkSession, lake: Catalog, name: str, make: Callable[[Catalog], list[Written]]
) -> None:
    for written in make(lake):
        table = f"{name}.`{written.table.namespace}`.`{written.table.name}`"
        columns = written.table.snapshot().partition_columns
        partitioning = ", ".join(f"`{each}`" for each in columns)
        spark.sql(
            f"CREATE TABLE {name}.copies.`{written.table.name}` "
            + f"PARTITIONED BY ({partitioning}) " * bool(columns)
            + f"AS SELECT * FROM {table}"
        )
        copy = spark.sql(f"SELECT * FROM {name}.copies.`{written.table.name}`")
        assert arrow_rows(copy.toArrow()) == written.states[-1]


def test_concurrent_overwrite_is_a_conflict(
    spark: SparkSession, lake: Catalog, name: str, sql: Any
) -> None:
    sql("CREATE TABLE lake.default.t AS SELECT 1 AS id")
    uri = lake.uri.to_string()

    def overwrite_first(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with deltasql.connect(uri) as catalog, catalog.begin() as tx:
            tx.write("t", pa.table({"id": pa.array([5], pa.int32())}), mode="overwrite")
        yield from batches

    late = spark.sql("SELECT 9 AS id").mapInArrow(overwrite_first, "id int")
    with pytest.raises(IllegalArgumentException, match=r"Concurrent.*Error"):
        late.writeTo(f"{name}.default.t").overwrite(functions.lit(True))
    assert sql("SELECT id FROM lake.default.t") == [(5,)]


def test_commit_is_applied_once_although_its_response_is_lost(
    spark: SparkSession, lake: Catalog, service: Service, tmp_path: Path, sql: Any
) -> None:
    sql("CREATE TABLE lake.default.t (id INT)")
    with losing_responses(service, "write_commit", times=2) as (address, lost):
        write_service_file(tmp_path / "proxy.json", {**service.access, "address": address})
        name = add_catalog(spark, service=str(tmp_path / "proxy.json"))
        spark.sql(f"INSERT INTO {name}.default.t VALUES (1)")
    assert lost == ["write_commit", "write_commit"]
    assert lake.table("t").version() == 1
    assert mirrored(lake, "t") == [{"id": 1}]


def test_writes_do_not_depend_on_settings_of_the_session(
    spark: SparkSession, lake: Catalog, sql: Any
) -> None:
    with settings(spark, ODD):
        sql(
            "CREATE TABLE lake.default.t AS SELECT TIMESTAMP_LTZ'2024-05-01 00:00:00+00:00' AS at, "
            "DATE'0001-01-01' AS day, 1.5BD AS d"
        )
        assert sql("SELECT CAST(day AS STRING) FROM lake.default.t") == [("0001-01-01",)]
    (row,) = mirrored(lake, "t")
    assert row["at"].isoformat() == "2024-05-01T00:00:00+00:00"
    assert str(row["day"]) == "0001-01-01"
    (file,) = lake.table("t").files().to_pylist()
    assert "2024-05-01T00:00:00" in file["stats"]


def test_error_names_a_service_that_has_stopped(sql: Any, service: Service) -> None:
    sql("CREATE TABLE lake.default.t (id INT)")
    service.stop()
    with pytest.raises(
        IllegalArgumentException, match=r"service at http.* does not respond: start"
    ):
        sql("SELECT * FROM lake.default.t")


def test_statement_finds_a_restarted_service(
    lake: Catalog, service: Service, sql: Any, tmp_path: Path
) -> None:
    sql("CREATE TABLE lake.default.t (id INT)")
    port = int(service.address.rpartition(":")[2])
    service.stop()
    for new_port in (0, port):  # another address, and the first one with another token
        again = Service(lake, port=new_port).start(tmp_path / "service.json")
        sql("INSERT INTO lake.default.t VALUES (1)")
        again.stop()
    assert mirrored(lake, "t") == [{"id": 1}, {"id": 1}]


def test_error_for_a_too_large_request_names_the_limit(
    spark: SparkSession, service: Service, tmp_path: Path
) -> None:
    limit = {**service.access, "largest_request": 1000}
    write_service_file(tmp_path / "limited.json", limit)
    name = add_catalog(spark, service=str(tmp_path / "limited.json"))
    message = r"^The request call to the deltasql service has \d+ bytes, and the limit is 1000: "
    with pytest.raises(IllegalArgumentException, match=message):
        spark.sql(f"CALL {name}.system.detail('{'x' * 1000}')")


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_catalog_starts_a_service_of_its_own(spark: SparkSession, lake: Catalog) -> None:
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": [1, 2]}))
    name = add_catalog(spark, uri=lake.uri.to_string())
    assert spark.sql(f"SELECT sum(id) FROM {name}.default.t").first()[0] == 3
    jvm = psutil.Process(spark.sparkContext._jvm.ProcessHandle.current().pid())
    running = [each for each in jvm.children() if each.status() != psutil.STATUS_ZOMBIE]
    (served,) = [each for each in running if "deltasql.serve" in each.cmdline()]
    served.send_signal(signal.SIGINT)  # Ctrl-C in a shell
    assert spark.sql(f"SELECT sum(id) FROM {name}.default.t").first()[0] == 3
    assert served.is_running()
    served.kill()
    served.wait()
    assert spark.sql(f"SELECT sum(id) FROM {name}.default.t").first()[0] == 3
    name = add_catalog(spark, uri="deltasql://sqlite/relative?bad=1")
    with pytest.raises(IllegalArgumentException, match=r"did not start.*unknown parameter 'bad'"):
        spark.sql(f"SELECT * FROM {name}.default.t")


def test_error_names_a_wrong_option_of_the_catalog(spark: SparkSession, tmp_path: Path) -> None:
    write_service_file(tmp_path / "other.json", {"protocol": 1})
    address = "http://127.0.0.1:1"
    for file, content in (("older", {"protocol": 1}), ("newer", {"protocol": 9, "release": "9.1"})):
        found = {"address": address, "token": "", **content}
        write_service_file(tmp_path / f"{file}.json", found)
    jar = "and this jar has protocol 2: use the jar of the service's deltasql, whose path"
    for options, message in (
        ({}, "Set spark.sql.catalog.lake.* to a catalog"),
        ({"urii": "x"}, "urii is not an option: the options are"),
        ({"uri": "deltasql://postgres/me:secret@host/db"}, "contains a password"),
        ({"service": "/no/such/file"}, "/no/such/file cannot be read"),
        ({"service": str(tmp_path / "other.json")}, "is not a service file of deltasql"),
        (
            {"service": str(tmp_path / "older.json")},
            f"The service of an older deltasql at {address} has protocol 1, {jar}",
        ),
        (
            {"service": str(tmp_path / "newer.json")},
            f"The service of deltasql 9.1 at {address} has protocol 9, {jar}",
        ),
    ):
        name = add_catalog(spark, **options)
        with pytest.raises(IllegalArgumentException, match=message) as raised:
            spark.sql(f"SELECT * FROM {name}.default.t")
        assert "secret" not in str(raised.value)
