"""The engine on Spark Connect; `test_connect` runs this in a process without classic Spark."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import deltasql.spark
from deltasql.config import Config
from deltasql.engine.spark.engine import SparkEngine
from deltasql.exceptions import TxnLogError, UnsupportedReleaseError
from deltasql.serve import Service
from deltasql.serve.service_file import write_service_file
from tests.conftest import JARS
from tests.each import check_each
from tests.engine.protocol import EngineProtocol
from tests.mirror.support import open_mirrored
from tests.oracles import tables, tables_staged
from tests.oracles.readers import Deltalake, Place
from tests.oracles.states import arrow_rows
from tests.serve.client import watch_ends
from tests.spark.support import ODD, add_catalog, settings
from tests.sql.cases import CASES, T, run_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.engine.base import Engine
    from deltasql.uri import DeltaSqlUri
    from tests.oracles.writing import Written
    from tests.sql.cases import Case


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    session = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraClassPath", f"{JARS}/s3/*")
        .config("spark.jars", deltasql.spark.jar())
        .config("spark.python.authenticate.socketTimeout", "300s")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        yield opened


@pytest.mark.everything("Spark Connect, beyond a smoke test")
class TestOnConnect(EngineProtocol):
    @pytest.fixture
    def engine(self, spark: SparkSession) -> Iterator[Engine]:
        with settings(spark, ODD), SparkEngine(Config(), spark) as engine:
            yield engine


@pytest.mark.everything("Spark Connect, beyond a smoke test")
@pytest.mark.parametrize(
    "make",
    [tables.typed_partitions, tables.nested, tables_staged.deletion_vectors],
    ids=lambda make: make.__name__,
)
def test_connect_reads_and_writes_tables(
    spark: SparkSession, lake: Catalog, make: Callable[[Catalog], list[Written]]
) -> None:
    [written] = make(lake)
    with settings(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        frame = deltasql.spark.read(spark, written.table.uri)
        assert arrow_rows(frame.toArrow()) == written.states[-1]
        with lake.begin() as tx:
            tx.write("copy", frame, partition_by=list(written.partition_by) or None)
    found = Deltalake().rows(Place(lake.table("copy").location), 0)
    assert found == written.states[-1]


@pytest.mark.everything("Spark Connect, beyond a smoke test")
def test_frames_are_evaluated_with_the_session_settings(spark: SparkSession, lake: Catalog) -> None:
    odd = {name: ODD[name] for name in ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")}
    with settings(spark, odd), lake.begin() as tx:
        frame = spark.sql(
            "SELECT CAST(TIMESTAMP '2024-05-01T23:00:00Z' AS DATE) AS day, 1 / 0 AS none"
        )
        tx.write("t", frame)
    [row] = deltasql.spark.read(spark, lake.table("t").uri).collect()
    assert (str(row["day"]), row["none"]) == ("2024-05-02", None)


@pytest.mark.everything("Spark Connect, beyond a smoke test")
def test_connect_writes_in_every_mode_and_reads_every_version(
    spark: SparkSession, lake: Catalog
) -> None:
    uri = lake.uri.with_table("t").to_string()
    write = partial(deltasql.spark.write, uri=uri)
    columns = ("id", "id % 2 = 0 AS even")
    write(spark.range(4).selectExpr(*columns), partition_by="even")
    first = lake.table("t").snapshot().committed_at
    write(spark.range(4, 6).selectExpr(*columns))
    write(
        spark.range(6, 8).selectExpr(*columns).where("even"), mode="overwrite", replace_where="even"
    )
    write(spark.range(1).selectExpr("id", "true AS even"), mode="overwrite")

    def ids(**chosen: Any) -> list[int]:
        frame = deltasql.spark.read(spark, uri, columns=["id"], **chosen)
        return sorted(row[0] for row in frame.collect())

    assert [ids(version=version) for version in range(4)] == [
        [0, 1, 2, 3],
        [0, 1, 2, 3, 4, 5],
        [1, 3, 5, 6],
        [0],
    ]
    assert ids(timestamp=first) == [0, 1, 2, 3]
    assert ids(version=1, predicate="NOT even AND id > 1") == [3, 5]


@pytest.mark.everything("Spark Connect, beyond a smoke test")
def test_unsupported_release_of_the_server_is_refused_before_a_change(
    spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(spark), "version", "5.0.0")
    with (
        pytest.raises(UnsupportedReleaseError, match=r"Spark 5\.0\.0 is not supported"),
        lake.begin() as tx,
    ):
        tx.write("t", spark.range(2))
    assert lake.tables() == []


def test_connect_transaction_is_atomic(spark: SparkSession, lake: Catalog) -> None:
    with lake.begin() as tx:
        tx.write("orders", spark.range(4))
        tx.write("audit", pa.table({"n": [4]}))
    assert tx.versions == {"orders": 0, "audit": 0}
    with pytest.raises(TxnLogError), lake.begin() as tx:
        tx.delete("orders", "id > 1", engine="spark")
        tx.write("audit", spark.sql("SELECT 'four' AS n"))
    with lake.begin() as tx:
        tx.delete("orders", "id = 0", engine="spark")
        tx.update("orders", {"id": "id * 10"}, predicate="id = 3", engine="spark")
        tx.write("audit", spark.sql("SELECT 2L AS n"))
        assert deltasql.spark.read(spark, "orders", transaction=tx).count() == 3
    assert tx.versions == {"orders": 1, "audit": 1}
    uris = [lake.table(name).uri for name in ("orders", "audit")]
    found = [deltasql.spark.read(spark, uri).collect() for uri in uris]
    assert [sorted(row[0] for row in rows) for rows in found] == [[1, 2, 30], [2, 4]]
    assert lake.store.intents_before(2**60) == []


@pytest.mark.everything("Spark Connect, beyond a smoke test")
def test_merge_runs_on_connect(spark: SparkSession, lake: Catalog) -> None:
    lake.create_table("t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    with lake.begin() as tx:
        tx.write("t", spark.range(10).selectExpr("id", "'old' AS v"))
    with lake.begin() as tx:
        source = spark.range(8, 12).selectExpr("id", "'new' AS v")
        merger = tx.merge("t", source, "t.id = s.id", source_alias="s", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()
    found = deltasql.spark.read(spark, lake.table("t").uri)
    assert sorted((row["id"], row["v"]) for row in found.collect()) == [
        *((number, "old") for number in range(8)),
        *((number, "new") for number in range(8, 12)),
    ]


@pytest.mark.everything("Spark Connect, beyond a smoke test")
def test_delta_table_accepts_columns_and_sql_strings_on_connect(
    spark: SparkSession, lake: Catalog
) -> None:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    from deltasql.spark import DeltaTable
    from deltasql.spark.session import set_catalog

    set_catalog(spark, lake)
    made = (
        DeltaTable.create(spark).tableName("t").addColumn("id", "bigint").addColumn("v", "string")
    )
    table = made.execute()
    source = spark.range(6).selectExpr("id", "'old' AS v")
    table.merge(source, table.toDF().id == source.id).whenNotMatchedInsertAll().execute()
    table.delete(F.col("id").isin(0, 1))
    table.update(F.col("id") == 2, {"v": F.when(F.col("v") == "old", F.lit("it's")).otherwise("?")})
    news = spark.range(4, 7).selectExpr("id", "'new' AS v").alias("s")
    [counts] = (
        table.alias("t")
        .merge(news, "t.id = s.id")
        .whenMatchedUpdate(set={"v": F.concat(F.col("t.v"), news["v"])})
        .whenNotMatchedInsert(values={"id": F.col("s.id"), "v": F.upper("s.v")})
        .whenNotMatchedBySourceDelete("t.id = 3")
        .execute()
        .collect()
    )
    assert tuple(counts) == (4, 2, 1, 1)
    found = sorted(tuple(row) for row in table.toDF().collect())
    assert found == [(2, "it's"), (4, "oldnew"), (5, "oldnew"), (6, "NEW")]
    with pytest.raises(AnalysisException):
        table.delete("none = 1")
    assert table.history(1).first()["operation"] == "MERGE"
    [row] = table.optimize().executeCompaction().collect()
    assert row.metrics.numFilesAdded <= 1
    table.restoreToVersion(1)
    assert table.toDF().count() == 6
    assert table.detail().first()["format"] == "delta"


@pytest.mark.everything("Spark Connect, beyond a smoke test")
def test_data_source_and_stream_writer_work_on_connect(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    lake.create_table("t", pa.schema([("id", pa.int64())]))
    assert deltasql.spark.register(spark, lake) == {"t": "t"}
    spark.range(3).write.format("deltasql").mode("append").save("t")
    assert spark.read.format("deltasql").load("t").count() == 3
    write = deltasql.spark.stream_writer({"a": None, "b": None}, app_id="s", catalog=lake)
    for _ in range(2):
        write(spark.range(3), 0)
    assert deltasql.spark.register(spark, lake)["b"] == "b"
    assert spark.sql("SELECT * FROM a JOIN b USING (id)").count() == 3


@pytest.mark.everything("Spark Connect, beyond a smoke test")
def test_streaming_query_between_tables_runs_on_the_server(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    for number in range(4):
        with lake.begin() as tx:
            tx.write("source", pa.table({"id": [number]}))
    deltasql.spark.register(spark, lake, views=False)
    write = deltasql.spark.stream_writer({"a": None, "b": None}, app_id="s", catalog=lake)
    reader = spark.readStream.format("deltasql").options(startingVersion=2, maxFilesPerTrigger=1)
    query = (
        reader.load(lake.table("source").uri)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    with lake.begin() as tx:
        assert [sorted(tx.read(name)["id"].to_pylist()) for name in ("a", "b")] == [[2, 3]] * 2
    assert lake.table("a").version() == 1


@pytest.mark.everything("Spark Connect, beyond a smoke test")
def test_connect_uses_the_storage_options_of_the_client(
    spark: SparkSession, sqlite_uri: DeltaSqlUri, s3_location: str, s3_options: dict[str, str]
) -> None:
    with open_mirrored(sqlite_uri, s3_location, storage={"options": s3_options}) as lake:
        with lake.begin() as tx:
            tx.write("t", spark.range(4).selectExpr("id", "id % 2 AS p"), partition_by="p")
        with lake.begin() as tx:
            tx.delete("t", "id = 3", engine="spark")
            found = deltasql.spark.read(spark, "t", transaction=tx).collect()
    assert sorted(tuple(row) for row in found) == [(0, 0), (1, 1), (2, 0)]


def run_statements(
    spark: SparkSession, sqlite_uri: DeltaSqlUri, folder: Path, cases: list[Case]
) -> None:
    """Run the scripts of SQL cases, each in an empty catalog."""

    def check(case: Case) -> None:
        place = folder / str(cases.index(case))
        (place / "files").mkdir(parents=True)
        pq.write_table(pa.table({"x": [1]}), place / "files" / "a.parquet")
        uri = replace(sqlite_uri, database=str(place / "meta.db"))
        with open_mirrored(uri, place / "lake") as lake:

            def sql(text: str) -> list[dict[str, Any]]:
                found = deltasql.spark.sql(spark, text, catalog=lake)
                return [row.asDict(recursive=True) for row in found.collect()]

            assert run_case(case, sql, str(place / "files")) == case.rows

    check_each(cases, check, name=lambda case: case.shown)


def test_chosen_statements_give_the_documented_rows(
    spark: SparkSession, sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    chosen = ("UPDATE t SET … WHERE …", "BEGIN … COMMIT")
    run_statements(spark, sqlite_uri, tmp_path, [each for each in CASES if each.shown in chosen])


@pytest.mark.everything("Spark Connect, beyond a smoke test")
def test_statements_give_the_documented_rows(
    spark: SparkSession, sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    run_statements(spark, sqlite_uri, tmp_path, CASES)


@pytest.mark.everything("Spark Connect, beyond a smoke test")
def test_writes_that_would_not_change_the_catalog_are_rejected(
    spark: SparkSession, lake: Catalog
) -> None:
    lake.create_table("t", pa.schema([("id", pa.int64())]))
    deltasql.spark.register(spark, lake)
    frame = spark.range(2)
    calls: dict[str, Callable[[], object]] = {
        "CREATE TABLE": partial(spark.sql, "CREATE TABLE new (id INT) USING deltasql"),
        "DROP TABLE": partial(spark.sql, "DROP TABLE t"),
        "saveAsTable": partial(frame.write.format("deltasql").saveAsTable, "new"),
        "append": partial(frame.write.format("deltasql").mode("append").saveAsTable, "default.new"),
        "writeTo": frame.writeTo("new").using("deltasql").create,
        "default": partial(frame.write.saveAsTable, "new"),
        "default overwrite": partial(frame.write.mode("overwrite").saveAsTable, "default.t"),
    }
    for name, call in calls.items():
        default = {"spark.sql.sources.default": "deltasql"} if "default" in name else {}
        with (
            settings(spark, default),
            pytest.raises(PySparkException, match=r"Help: |PYTHON_DATA_SOURCE_ERROR"),
        ):
            call()
        assert not spark.catalog.tableExists("default.new"), name
        assert not spark.catalog.tableExists("default.t"), name
    spark.sql("DROP VIEW t")
    assert lake.table("t").version() == 0


def run_in_catalog(
    spark: SparkSession, sqlite_uri: DeltaSqlUri, folder: Path, cases: list[Case]
) -> None:
    """Run the scripts of SQL cases with the Spark catalog, each in an empty catalog."""

    def check(case: Case) -> None:
        place = folder / str(CASES.index(case))
        (place / "files").mkdir(parents=True)
        pq.write_table(pa.table({"x": [1]}), place / "files" / "a.parquet")
        uri = replace(sqlite_uri, database=str(place / "meta.db"))
        with open_mirrored(uri, place / "lake") as lake:
            service = Service(lake).start(place / "service.json")
            # The class that `catalog_options` configures on this release.
            name = add_catalog(
                spark, kind="TransactionalDeltaSqlCatalog", service=str(place / "service.json")
            )
            spark.catalog.setCurrentCatalog(name)

            def sql(text: str) -> list[dict[str, Any]]:
                return [row.asDict(recursive=True) for row in spark.sql(text).collect()]

            try:
                expected = case.with_catalog()
                assert run_case(expected, sql, str(place / "files")) == expected.rows
                for text in set(case.script) - set(expected.script):
                    with pytest.raises(PySparkException):  # else the page could say "yes"
                        sql(text.replace("{parquet}", str(place / "files")))
            finally:
                spark.catalog.setCurrentCatalog("spark_catalog")
                service.stop()

    check_each(cases, check, name=lambda case: case.shown)


@pytest.mark.everything("Spark Connect, beyond a smoke test")
def test_chosen_statements_give_the_documented_rows_in_the_catalog(
    spark: SparkSession, sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    chosen = ("INSERT INTO t VALUES …", "CREATE, DROP NAMESPACE n")
    run_in_catalog(spark, sqlite_uri, tmp_path, [each for each in CASES if each.shown in chosen])


@pytest.mark.everything("Spark Connect, beyond a smoke test")
def test_statements_give_the_documented_rows_in_the_catalog(
    spark: SparkSession, sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    run_in_catalog(spark, sqlite_uri, tmp_path, CASES)


@pytest.mark.everything("Spark Connect, beyond a smoke test")
def test_end_of_a_session_rolls_its_transaction_back(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    with Service(lake) as service:
        write_service_file(tmp_path / "service.json", service.access)
        ended = watch_ends(service)
        name = add_catalog(spark, service=str(tmp_path / "service.json"))
        first, second = spark.cloneSession(), spark.cloneSession()
        first.sql(f"CREATE TABLE {name}.default.t (id INT)")
        for session in (first, second):
            session.sql(f"CALL {name}.system.begin()")
            session.sql(f"INSERT INTO {name}.default.t VALUES (1)")
        first.client.release_session()
        assert ended.wait(30)
        second.sql(f"CALL {name}.system.commit()")
        second.client.release_session()
    assert lake.table("t").version() == 1


def test_registered_session_runs_statements(spark: SparkSession, lake: Catalog) -> None:
    deltasql.sql(lake, T)
    deltasql.spark.register(spark, lake, sql=True)
    spark.sql("INSERT INTO t VALUES (1, :name)", {"name": "it's {x}"})
    assert spark.sql("SELECT name FROM t WHERE id = ?", [1]).collect() == [("it's {x}",)]
    assert spark.sql("SELECT 1 AS x").collect() == [(1,)]
    deltasql.spark.register(spark, lake, views=False)
