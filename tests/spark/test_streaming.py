"""A stream commits each batch to all its tables exactly once, even if batches are repeated."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import deltasql.spark
from deltasql.exceptions import CatalogNotFoundError, TxnLogConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltasql import Catalog, MultiTableTransaction

pytestmark = pytest.mark.every_database

IDS = pa.schema([("id", pa.int64())])


def found(lake: Catalog, name: str) -> list[int]:
    with lake.begin() as tx:
        return sorted(tx.read(name)["id"].to_pylist())


def append(lake: Catalog, *numbers: int) -> None:
    with lake.begin() as tx:
        tx.write("source", pa.table({"id": numbers}, IDS))


PARTS: dict[str, Any] = {"all": None, "odd": lambda df: df.where("id % 2 = 1")}


def test_repeated_batch_is_skipped_in_every_table(spark: SparkSession, lake: Catalog) -> None:
    write = deltasql.spark.stream_writer(PARTS, app_id="s", catalog=lake)
    for batch in (0, 0, 1, 1, 0):
        write(spark.range(batch * 10, batch * 10 + 3), batch)
    assert (found(lake, "all"), found(lake, "odd")) == ([0, 1, 2, 10, 11, 12], [1, 11])
    assert lake.table("all").version() == lake.table("odd").version() == 1
    groups = {lake.table(name).history(1)[0].txn_id for name in PARTS}
    assert len(groups) == 1


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_batch_function_may_write_different_tables_per_batch(
    spark: SparkSession, lake: Catalog
) -> None:
    def each(tx: MultiTableTransaction, df: DataFrame, batch_id: int) -> None:
        tx.write(f"t{batch_id}", df)
        if batch_id:
            merging = tx.merge("t0", df, "t.id = s.id", source_alias="s", target_alias="t")
            merging.when_not_matched_insert_all().execute()

    write = deltasql.spark.stream_writer(each, app_id="s", catalog=lake)
    for batch in (0, 1, 1, 0):
        write(spark.range(batch, batch + 2), batch)
    assert (found(lake, "t0"), found(lake, "t1")) == ([0, 1, 2], [1, 2])


def test_failed_batch_commits_nothing_and_can_be_repeated(
    spark: SparkSession, lake: Catalog
) -> None:
    broken = "IF(id = 1, raise_error('broken'), id) AS id"
    parts: dict[str, Any] = {"good": None, "bad": lambda df: df.selectExpr(broken)}
    with pytest.raises(Exception, match="broken"):
        deltasql.spark.stream_writer(parts, app_id="s", catalog=lake)(spark.range(3), 0)
    assert not lake.tables()
    deltasql.spark.stream_writer({"good": None}, app_id="s", catalog=lake)(spark.range(3), 0)
    assert found(lake, "good") == [0, 1, 2]


def test_same_batch_of_two_drivers_is_committed_once(spark: SparkSession, lake: Catalog) -> None:
    lake.create_table("t", IDS)
    both_staged = Barrier(2)

    def each(tx: MultiTableTransaction, df: DataFrame, batch_id: int) -> None:
        tx.write("t", df)
        both_staged.wait(60)

    write = deltasql.spark.stream_writer(each, app_id="s", catalog=lake)
    drivers = [Thread(target=write, args=(spark.range(3), 0)) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(120)
    assert found(lake, "t") == [0, 1, 2]
    assert lake.table("t").version() == 1


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_streams_with_different_app_ids_are_independent(spark: SparkSession, lake: Catalog) -> None:
    for name in ("one", "two"):
        deltasql.spark.stream_writer("t", app_id=name, catalog=lake)(spark.range(1), 5)
    assert found(lake, "t") == [0, 0]


def test_repeated_batches_are_committed_once_on_every_database(catalog: Catalog) -> None:
    def each(tx: MultiTableTransaction, df: Any, batch_id: int) -> None:
        tx.write("t", df)
        if batch_id != 1:
            tx.write(f"only_{batch_id}", df)

    write: Any = deltasql.spark.stream_writer(each, app_id="s", catalog=catalog, persist=False)
    for batch in (0, 0, 1, 1, 2, 0, 1, 2):
        write(pa.table({"id": [batch]}, IDS), batch)
    assert found(catalog, "t") == [0, 1, 2]
    assert (found(catalog, "only_0"), found(catalog, "only_2")) == ([0], [2])
    # A dropped table of an old batch does not make the batch run again.
    catalog.drop("only_2")
    write(pa.table({"id": [2]}, IDS), 2)
    assert found(catalog, "t") == [0, 1, 2]


def test_batch_with_a_conflict_is_retried_on_a_new_snapshot(
    catalog: Catalog,
) -> None:
    catalog.create_table("t", IDS)
    with catalog.begin() as tx:
        tx.write("t", pa.table({"id": [0, 1, 2]}, IDS))
    others = iter(["id = 0", "id = 1"])

    def each(tx: MultiTableTransaction, df: Any, batch_id: int) -> None:
        tx.delete("t", "id = 2")
        tx.write("t", df)
        for predicate in others:
            with catalog.begin() as other:
                other.delete("t", predicate)
            break

    stubborn: Any = deltasql.spark.stream_writer(each, app_id="s", catalog=catalog, persist=False)
    stubborn(pa.table({"id": [7]}, IDS), 0)
    assert found(catalog, "t") == [7]


def test_pickled_stream_writer_keeps_its_catalog(spark: SparkSession, lake: Catalog) -> None:
    writer = deltasql.spark.stream_writer({"all": None}, app_id="s", catalog=lake)
    sent: Any = pickle.loads(pickle.dumps(writer))
    for _ in range(2):
        sent(spark.range(3), 0)
    assert found(lake, "all") == [0, 1, 2]
    assert lake.table("all").location.startswith(str(lake.config.table.data_root))
    assert lake.table("all").version() == 0


def test_unpickled_stream_writer_does_not_create_a_catalog(tmp_path: Path) -> None:
    file = tmp_path / "meta.db"
    with deltasql.connect(f"deltasql://sqlite/{file}", create=True) as catalog:
        writer = deltasql.spark.stream_writer("t", app_id="s", catalog=catalog)
        sent: Any = pickle.loads(pickle.dumps(writer))
    file.unlink()
    with pytest.raises(CatalogNotFoundError, match="no catalog yet"):
        sent(pa.table({"id": [1]}, IDS), 0)
    assert not file.exists()


def test_stream_writer_of_an_in_memory_catalog_cannot_be_pickled() -> None:
    with deltasql.connect("deltasql://duckdb/:memory:") as catalog:
        writer = deltasql.spark.stream_writer("t", app_id="s", catalog=catalog)
        with pytest.raises(TxnLogConfigError, match="in the memory of this process"):
            pickle.dumps(writer)


def test_stream_writer_rejects_a_missing_app_id_and_unused_options() -> None:
    with pytest.raises(TxnLogConfigError, match="app_id"):
        deltasql.spark.stream_writer("t", app_id="")
    with pytest.raises(TxnLogConfigError, match="schema_mode"):
        deltasql.spark.stream_writer(lambda tx, df, n: None, app_id="s", schema_mode="merge")


def run(spark: SparkSession, checkpoint: Path, uri: str, writer: Any, **options: object) -> None:
    """Run a stream from `source` until there are no new rows.

    Spark fails if a Python worker does not start within ten seconds. A restarted stream continues
    at its checkpoint.
    """
    for attempt in range(3):
        try:
            _run_once(spark, checkpoint, uri, writer, options)
        except Exception as error:
            if attempt == 2 or "failed to connect back" not in str(error):
                raise
        else:
            return


def _run_once(
    spark: SparkSession, checkpoint: Path, uri: str, writer: Any, options: dict[str, Any]
) -> None:
    reader = spark.readStream.format("deltasql").options(**options)
    query = (
        reader.load(f"{uri}?table=source")
        .writeStream.foreachBatch(writer)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_streaming_query_continues_after_restarts(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    append(lake, 1, 2)
    append(lake, 3)
    uri = lake.uri.to_string()
    deltasql.spark.register(spark, lake, views=False)
    write = deltasql.spark.stream_writer(PARTS, app_id="s")
    checkpoint = tmp_path / "checkpoint"
    run(spark, checkpoint, uri, write, maxFilesPerTrigger=1)
    assert (found(lake, "all"), lake.table("all").version()) == ([1, 2, 3], 1)
    append(lake, 4, 5)
    # As if the driver died after the commit: Spark does not know that the batch is committed.
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    run(spark, checkpoint, uri, write)
    assert found(lake, "all") == [1, 2, 3, 4, 5]
    assert found(lake, "odd") == [1, 3, 5]
    assert lake.table("all").version() == 2


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_restarted_query_continues_at_its_checkpoint(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    for number in range(4):
        append(lake, number)
    deltasql.spark.register(spark, lake, views=False)
    uri, checkpoint = lake.uri.to_string(), tmp_path / "checkpoint"
    batches: list[list[int]] = []

    def record(df: DataFrame, batch_id: int) -> None:
        batches.append(sorted(row["id"] for row in df.collect()))

    run(spark, checkpoint, uri, record, startingVersion=2, maxFilesPerTrigger=1)
    assert batches == [[2], [3]]
    append(lake, 4)
    append(lake, 5)
    run(spark, checkpoint, uri, record, startingVersion=0, maxFilesPerTrigger=1)
    assert batches[2:] == [[4], [5]]
    append(lake, 6)
    append(lake, 7)
    run(spark, checkpoint, uri, record, maxFilesPerTrigger=2)
    assert batches[4:] == [[6, 7]]


DRIVER = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import deltasql.spark

uri, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
)
deltasql.spark.register(spark, uri, views=False)
write = deltasql.spark.stream_writer(
    {"all": None, "odd": lambda df: df.where("id % 2 = 1")}, app_id="s"
)

def write_and_die(df, batch_id):
    write(df, batch_id)
    if batch_id == 1:
        os.kill(os.getpid(), 9)

reader = spark.readStream.format("deltasql").option("maxFilesPerTrigger", 1).load("source")
stream = reader.writeStream.foreachBatch(write_and_die).option("checkpointLocation", checkpoint)
stream.start().awaitTermination()
"""


@pytest.mark.everything("a JVM is started and killed")
def test_driver_killed_between_commit_and_checkpoint_loses_and_repeats_nothing(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    for number in range(4):
        append(lake, number)
    uri, checkpoint = lake.uri.to_string(), tmp_path / "checkpoint"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", DRIVER, uri, str(checkpoint)]
    died = subprocess.run(command, env=environment, capture_output=True, timeout=240, check=False)
    assert died.returncode == -9, died.stderr[-3000:]
    assert (found(lake, "all"), lake.table("odd").version()) == ([0, 1], 1)
    committed = {int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")}
    planned = {int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*")}
    assert (max(committed), max(planned)) == (0, 1)
    deltasql.spark.register(spark, lake, views=False)
    write = deltasql.spark.stream_writer(PARTS, app_id="s")
    run(spark, checkpoint, uri, write, maxFilesPerTrigger=1)
    assert found(lake, "all") == [0, 1, 2, 3]
    assert found(lake, "odd") == [1, 3]
    assert lake.table("all").version() == lake.table("odd").version() == 3
