"""Spark with executors in separate processes; `test_cluster` runs this file in a new process.

A master and two workers on different addresses: Spark runs speculative tasks only on another host.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import deltasql.spark
from deltasql.exceptions import TxnLogEngineError
from deltasql.serve import Service
from tests.mirror.support import open_mirrored
from tests.spark.support import add_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

HOSTS = ("127.0.0.1", "127.0.0.2")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    with ExitStack() as cluster:
        log = tmp_path_factory.mktemp("master") / "log"
        _start(cluster, log, "master.Master", HOSTS[0], "--port", "0")
        address = _address(log)
        for host in HOSTS:
            work = tmp_path_factory.mktemp("work")
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
            _start(cluster, work / "log", "worker.Worker", host, *size, address)
        session = (
            SparkSession.builder.master(address)
            .config("spark.ui.enabled", "false")
            .config("spark.jars", deltasql.spark.jar())
            .config("spark.driver.host", HOSTS[0])
            .config("spark.executor.memory", "512m")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.task.maxFailures", "4")
            .config("spark.speculation", "true")
            .config("spark.speculation.interval", "50ms")
            .config("spark.speculation.multiplier", "1.01")
            .config("spark.speculation.quantile", "0.3")
            .config("spark.speculation.minTaskRuntime", "100ms")
            .getOrCreate()
        )
        cluster.callback(session.stop)
        yield session


def _start(cluster: ExitStack, log: Path, kind: str, host: str, *arguments: str) -> None:
    from pyspark.find_spark_home import _find_spark_home

    home: str = _find_spark_home()  # type: ignore[no-untyped-call]
    names = (f"{home}/bin/spark-class", f"org.apache.spark.deploy.{kind}", "--host", host)
    with log.open("w") as out:
        process = subprocess.Popen(
            [*names, "--webui-port", "0", *arguments],
            env={**os.environ, "SPARK_LOCAL_IP": host, "SPARK_HOME": home},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    cluster.callback(process.wait)
    cluster.callback(process.terminate)


def _address(log: Path) -> str:
    while (found := re.search(r"(spark://[0-9.]+:[0-9]+)\s", log.read_text())) is None:
        time.sleep(0.05)  # the test's own timeout ends it
    return found[1]


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def name(spark: SparkSession, lake: Catalog, tmp_path: Path) -> Iterator[str]:
    """The name of the catalog in the session."""
    service = Service(lake).start(tmp_path / "service.json")
    yield add_catalog(spark, service=str(tmp_path / "service.json"))
    service.stop()


def assert_task_was_repeated(marks: Path) -> None:
    """Check that the bad task ran again; an attempt that lost its executor may have no marker."""
    attempts = {path.name for path in marks.iterdir()}
    assert "0" in attempts
    assert len(attempts) > 1


def with_a_bad_task(
    frame: DataFrame, marks: Path, fault: str, written: Path | None = None
) -> DataFrame:
    """Return the same rows; the first attempt of the last task fails, dies or hangs.

    The attempt does so after it has passed its rows to the writer. Every attempt creates a marker
    file. With `written`, the attempt first waits until this folder has a file of the task.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Imported here, so that executors do not need the tests.
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        is_last, attempt = context.partitionId() == 3, context.attemptNumber()
        yield from batches
        if not is_last:
            return
        first = not (marks / "0").exists()
        (marks / str(attempt)).touch()
        while first and written is not None and not any(written.rglob("part-00003-*.parquet")):
            time.sleep(0.05)
        if first and fault == "fails":
            raise RuntimeError("the first attempt")
        if first and fault == "dies":
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
            time.sleep(600)
        while fault == "lags" and not (marks / "1").exists():
            time.sleep(0.05)

    return frame.mapInArrow(run, frame.schema)


@pytest.mark.parametrize("fault", ["fails", "dies", "lags"])
def test_rows_of_a_task_that_ran_twice_are_written_once(
    spark: SparkSession, lake: Catalog, tmp_path: Path, fault: str
) -> None:
    rows = spark.range(0, 400, 1, 4).selectExpr("id", "id % 3 AS p")
    marks = tmp_path / "marks"
    marks.mkdir()
    with lake.begin() as tx:
        tx.write("t", with_a_bad_task(rows, marks, fault), partition_by=["p"])
    assert_task_was_repeated(marks)
    with lake.begin() as tx:
        ids = tx.read("t", engine="duckdb")["id"].to_pylist()
    assert sorted(ids) == list(range(400))
    root = Path(lake.table("t").location)
    live = set(lake.table("t").snapshot().files()["path"].to_pylist())
    # A cancelled attempt may still write to `_temporary` or leave it behind; os.walk ignores
    # folders that disappear.
    found = {
        Path(folder, name).relative_to(root) for folder, _, names in os.walk(root) for name in names
    }
    data = {path for path in found if path.suffix == ".parquet" and "_temporary" not in path.parts}
    assert {str(path) for path in data} == live
    assert lake.store.intents_before(2**60) == []


@pytest.mark.parametrize("fault", ["fails", "dies", "lags"])
def test_rows_of_a_task_that_ran_twice_are_committed_once_through_the_catalog(
    spark: SparkSession, lake: Catalog, name: str, tmp_path: Path, fault: str
) -> None:
    spark.sql(f"CREATE TABLE {name}.default.t (id BIGINT)")
    marks, root = tmp_path / "marks", Path(lake.table("t").location)
    marks.mkdir()
    # More rows than fit into the buffers between Python and the writer.
    rows = with_a_bad_task(spark.range(0, 200_000, 1, 4), marks, fault, written=root)
    rows.writeTo(f"{name}.default.t").append()
    assert_task_was_repeated(marks)
    assert lake.table("t").version() == 1
    with lake.begin() as tx:
        ids = tx.read("t", engine="duckdb")["id"].to_pylist()
    assert sorted(ids) == list(range(200_000))
    live = set(lake.table("t").snapshot().files()["path"].to_pylist())
    if fault == "dies":  # a killed executor cannot delete its file
        assert data_files(root) > live
    options = {"retention_hours": 0, "enforce_retention_duration": False, "full": True}
    lake.vacuum("t", dry_run=False, **options)
    assert data_files(root) == live
    assert lake.store.intents_before(2**60) == []


def data_files(root: Path) -> set[str]:
    """Return the data files in the folder of a table."""
    return {str(path.relative_to(root)) for path in root.rglob("*.parquet")}


@pytest.mark.parametrize("fault", ["fails", "dies"])
def test_merge_through_the_catalog_succeeds_after_a_lost_task(
    spark: SparkSession, lake: Catalog, name: str, tmp_path: Path, fault: str
) -> None:
    rows = spark.range(0, 400, 1, 2).selectExpr("id", "0L AS v")
    rows.writeTo(f"{name}.default.t").create()
    marks = tmp_path / "marks"
    marks.mkdir()
    source = spark.range(200, 600, 1, 4).selectExpr("id", "1L AS v")
    with_a_bad_task(source, marks, fault).createOrReplaceTempView("bad")
    spark.sql(
        f"MERGE INTO {name}.default.t AS t USING bad ON t.id = bad.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert (marks / "0").exists()
    assert lake.table("t").version() == 1
    with lake.begin() as tx:
        found = tx.read("t", engine="duckdb").sort_by("id").to_pylist()
    assert found == [{"id": n, "v": int(n >= 200)} for n in range(600)]
    assert lake.store.intents_before(2**60) == []


def test_two_table_commit_succeeds_after_a_lost_executor(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    rows = spark.range(0, 400, 1, 4).selectExpr("id", "id % 3 AS p")
    marks = tmp_path / "marks"
    marks.mkdir()
    with lake.begin() as tx:
        tx.write("t", rows)
    with lake.begin() as tx:
        tx.write("t", rows.where("id < 100"), mode="overwrite")
        tx.write("u", with_a_bad_task(rows, marks, "dies"))
    assert_task_was_repeated(marks)
    with lake.begin() as tx:
        found = {name: tx.read(name, engine="duckdb")["id"].to_pylist() for name in ("t", "u")}
    assert {name: sorted(ids) for name, ids in found.items()} == {
        "t": list(range(100)),
        "u": list(range(400)),
    }
    assert lake.table("t").history()[0].txn_id == lake.table("u").history()[0].txn_id
    assert lake.store.intents_before(2**60) == []


@contextmanager
def checks_error(lake: Catalog) -> Iterator[None]:
    """Check that an error names the table and the remedy, and that no intents remain."""
    try:
        yield
    except TxnLogEngineError as error:
        message = str(error)
        if "(table: t)" not in message or "Run the operation again" not in message:
            raise AssertionError(message) from error
        if lake.store.intents_before(2**60):
            raise AssertionError("intents are left") from error
        raise


def test_merge_that_loses_an_executor_is_atomic(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    with lake.begin() as tx:
        tx.write("t", spark.range(0, 400, 1, 2).selectExpr("id", "0L AS v"))
    source = spark.range(200, 600, 1, 4).selectExpr("id", "1L AS v")
    marks = tmp_path / "marks"
    marks.mkdir()
    bad = with_a_bad_task(source, marks, "dies")

    def merge() -> None:
        with lake.begin() as tx:
            merger = tx.merge("t", bad, "t.id = s.id", "s", "t")
            merger.when_matched_update_all().when_not_matched_insert_all().execute()

    with (
        suppress(TxnLogEngineError),
        checks_error(lake),
    ):  # the computed rows are lost with the executor
        merge()
    if lake.table("t").version() == 0:
        merge()
    assert (marks / "0").exists()
    with lake.begin() as tx:
        found = tx.read("t", engine="duckdb").sort_by("id").to_pylist()
    assert found == [{"id": n, "v": int(n >= 200)} for n in range(600)]
    assert lake.store.intents_before(2**60) == []
