"""Streams through the Spark catalog: `readStream.table` and `writeStream.toTable`."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException, StreamingQueryException
from pyspark.sql import DataFrameReader

from deltasql import DeltaTable
from deltasql.serve.service_file import write_service_file
from tests.oracles.fixed_set import SMALL
from tests.oracles.states import arrow_rows
from tests.serve.client import losing_responses
from tests.spark.in_process import Stream
from tests.spark.support import add_catalog, mirrored

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from deltasql import Catalog
    from deltasql.serve import Service
    from tests.oracles.writing import Written

BEYOND = "streams through the Spark catalog, beyond a smoke test"
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int64())])


def append(lake: Catalog, *numbers: int) -> None:
    """Append rows: one file for the even ids and one for the odd ids."""
    rows = pa.table({"id": numbers, "part": [n % 2 for n in numbers]}, SCHEMA)
    with lake.begin() as tx:
        tx.write("t", rows, partition_by=["part"])


def ids(lake: Catalog, name: str) -> list[int]:
    return sorted(row["id"] for row in mirrored(lake, name))


def run(frame: DataFrame, table: str, checkpoint: Path, mode: str = "append") -> None:
    """Run a stream into a table until there are no new rows."""
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).outputMode(mode)
    query = writer.trigger(availableNow=True).toTable(table)
    assert query.awaitTermination(120)


def forget_last_commit(checkpoint: Path) -> None:
    """Change a checkpoint as if the driver had died after our commit, and before Spark's."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def test_stream_copies_every_row_once_over_restarts(
    spark: SparkSession, lake: Catalog, name: str, tmp_path: Path
) -> None:
    append(lake, 1, 2)
    append(lake, 3, 4, 5)
    checkpoint = tmp_path / "checkpoint"
    source = f"{name}.default.t"
    limited = spark.readStream.option("maxFilesPerTrigger", 3).table(source)
    run(limited, f"{name}.default.copy", checkpoint)
    # The first commit creates the table, and two batches have three files and one file.
    assert (ids(lake, "copy"), lake.table("copy").version()) == ([1, 2, 3, 4, 5], 2)
    append(lake, 6)
    forget_last_commit(checkpoint)
    run(spark.readStream.table(source), f"{name}.default.copy", checkpoint)
    assert (ids(lake, "copy"), lake.table("copy").version()) == ([1, 2, 3, 4, 5, 6], 3)
    assert [row["part"] for row in mirrored(lake, "copy")] == [1, 0, 1, 0, 1, 0]


def test_batch_is_committed_once_although_its_response_is_lost(
    spark: SparkSession, lake: Catalog, service: Service, tmp_path: Path
) -> None:
    append(lake, 1, 2)
    lake.create_table("copy", SCHEMA)
    with losing_responses(service, "write_commit", times=2) as (address, lost):
        write_service_file(tmp_path / "proxy.json", {**service.access, "address": address})
        name = add_catalog(spark, service=str(tmp_path / "proxy.json"))
        stream = spark.readStream.table(f"{name}.default.t")
        run(stream, f"{name}.default.copy", tmp_path / "checkpoint")
    assert lost == ["write_commit", "write_commit"]
    assert (ids(lake, "copy"), lake.table("copy").version()) == ([1, 2], 1)


def test_schema_change_stops_a_stream_until_it_is_loaded_again(
    spark: SparkSession, lake: Catalog, name: str, sql: Any, tmp_path: Path
) -> None:
    append(lake, 1)
    stream = spark.readStream.option("startingVersion", 0).table(f"{name}.default.t")
    append(lake, 2)
    sql("ALTER TABLE lake.default.t ADD COLUMNS (more STRING)")
    sql("INSERT INTO lake.default.t VALUES (3, 1, 'x')")
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(StreamingQueryException, match="version 2 changed the columns"):
        run(stream, f"{name}.default.copy", checkpoint)
    assert ids(lake, "copy") == [1, 2]
    again = spark.readStream.table(f"{name}.default.t")
    with pytest.raises(StreamingQueryException, match="a column 'more', which copy does not have"):
        run(again, f"{name}.default.copy", checkpoint)
    sql("ALTER TABLE lake.default.copy ADD COLUMNS (more STRING)")
    run(again, f"{name}.default.copy", checkpoint)
    assert mirrored(lake, "copy")[-1] == {"id": 3, "part": 1, "more": "x"}


def test_error_names_a_wrong_option_of_a_stream(
    spark: SparkSession, lake: Catalog, name: str, tmp_path: Path
) -> None:
    append(lake, 1)
    stream = spark.readStream.option("maxFiles", 1).table(f"{name}.default.t")
    with pytest.raises(StreamingQueryException, match="the stream of t has no option 'maxFiles'"):
        run(stream, f"{name}.default.copy", tmp_path / "checkpoint")


@pytest.mark.everything(BEYOND)
def test_batches_are_those_of_the_python_source(
    spark: SparkSession, lake: Catalog, name: str, tmp_path: Path
) -> None:
    append(lake, 1, 2)
    append(lake, 3, 4)
    with lake.begin() as tx:
        tx.delete("t", "id = 1")
    append(lake, 5, 6, 7)
    uri = lake.uri.with_table("t").to_string()
    for number, options in enumerate(
        (
            {"maxFilesPerTrigger": "1"},
            {"startingVersion": "0", "ignoreChanges": "true"},
            {"startingVersion": "2", "maxFilesPerTrigger": "1", "skipChangeCommits": "true"},
        )
    ):
        batches: list[list[int]] = []

        def record(df: DataFrame, batch_id: int, batches: Any = batches) -> None:
            batches.append(sorted(row["id"] for row in df.collect()))

        stream = spark.readStream.options(**options).table(f"{name}.default.t").writeStream
        query = (
            stream.foreachBatch(record)
            .option("checkpointLocation", str(tmp_path / f"checkpoint{number}"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert batches == Stream(uri, **options).ids()


@pytest.mark.everything(BEYOND)
@pytest.mark.parametrize("make", SMALL, ids=lambda make: make.__name__)
def test_streamed_copy_has_the_rows_of_the_table(
    spark: SparkSession,
    lake: Catalog,
    name: str,
    make: Callable[[Catalog], list[Written]],
    tmp_path: Path,
) -> None:
    """Some of the tables have mapped columns, deletion vectors or partitions of every type."""
    for number, written in enumerate(make(lake)):
        table = f"{name}.`{written.table.namespace}`.`{written.table.name}`"
        copy = f"{name}.copies.copy{number}"
        run(spark.readStream.table(table), copy, tmp_path / f"checkpoint{number}")
        assert arrow_rows(spark.table(copy).toArrow()) == written.states[-1]


@pytest.mark.everything(BEYOND)
def test_complete_mode_replaces_all_rows(
    spark: SparkSession, lake: Catalog, name: str, tmp_path: Path
) -> None:
    append(lake, 1, 2, 3)
    counts = spark.readStream.table(f"{name}.default.t").groupBy("part").count()
    run(counts, f"{name}.default.counts", tmp_path / "checkpoint", "complete")
    append(lake, 5)
    run(counts, f"{name}.default.counts", tmp_path / "checkpoint", "complete")
    assert mirrored(lake, "counts") == [{"part": 0, "count": 1}, {"part": 1, "count": 3}]
    forget_last_commit(tmp_path / "checkpoint")
    version = lake.table("counts").version()
    run(counts, f"{name}.default.counts", tmp_path / "checkpoint", "complete")
    assert lake.table("counts").version() == version


@pytest.mark.everything(BEYOND)
def test_columns_of_a_stream_are_matched_by_name(
    spark: SparkSession, lake: Catalog, name: str, sql: Any, tmp_path: Path
) -> None:
    append(lake, 1, 2)
    sql(
        "CREATE TABLE lake.default.c (p BIGINT, note STRING, ID BIGINT NOT NULL) PARTITIONED BY (p)"
    )
    stream = spark.readStream.table(f"{name}.default.t")
    run(stream.selectExpr("id", "part AS p"), f"{name}.default.c", tmp_path / "checkpoint")
    assert sql("SELECT p, note, ID FROM lake.default.c ORDER BY ID") == [
        (1, None, 1),
        (0, None, 2),
    ]
    without = stream.selectExpr("nullif(id, 2) AS id")
    with pytest.raises(StreamingQueryException, match="the column ID, which is NOT NULL"):
        run(without, f"{name}.default.c", tmp_path / "other")
    assert lake.table("c").version() == 1


@pytest.mark.everything(BEYOND)
def test_stream_reads_versions_with_other_partition_columns(
    spark: SparkSession, lake: Catalog, name: str, sql: Any, tmp_path: Path
) -> None:
    append(lake, 1, 2)
    sql("CREATE OR REPLACE TABLE lake.default.t (id BIGINT, part BIGINT) PARTITIONED BY (id)")
    sql("INSERT INTO lake.default.t VALUES (3, 7)")
    stream = spark.readStream.options(startingVersion="0", skipChangeCommits="true")
    run(stream.table(f"{name}.default.t"), f"{name}.default.copy", tmp_path / "checkpoint")
    assert mirrored(lake, "copy") == [
        {"id": 1, "part": 1},
        {"id": 2, "part": 0},
        {"id": 3, "part": 7},
    ]


DRIVER = """
import os, sys
from pyspark.sql import SparkSession
import deltasql.spark

uri, checkpoint = sys.argv[1:]
options = {**deltasql.spark.catalog_options(uri), "spark.ui.enabled": "false"}
spark = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
commits = os.path.join(checkpoint, "commits", "0")
stream = spark.readStream.option("maxFilesPerTrigger", 1).table("lake.default.t")
query = (
    stream.writeStream.option("checkpointLocation", checkpoint)
    .trigger(processingTime="1 second")
    .toTable("lake.default.copy")
)
with deltasql.connect(uri) as catalog:
    while not catalog.exists("copy") or catalog.table("copy").version() < 3:
        pass
os.kill(os.getpid(), 9)
"""


@pytest.mark.everything("a JVM is started and killed")
def test_killed_driver_loses_and_repeats_nothing(
    spark: SparkSession, lake: Catalog, name: str, tmp_path: Path
) -> None:
    for first in range(0, 20, 2):
        append(lake, first, first + 1)
    checkpoint = tmp_path / "checkpoint"
    died = subprocess.run(
        [sys.executable, "-c", DRIVER, lake.uri.to_string(), str(checkpoint)],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert died.returncode == -9, died.stderr[-3000:]
    assert len(ids(lake, "copy")) < 20
    run(spark.readStream.table(f"{name}.default.t"), f"{name}.default.copy", checkpoint)
    assert ids(lake, "copy") == list(range(20))


def changed(rows: list[Any]) -> list[tuple[int, str, int]]:
    return sorted((row["_commit_version"], row["_change_type"], row["id"]) for row in rows)


@pytest.mark.skipif(not hasattr(DataFrameReader, "changes"), reason="Spark has it since 4.2")
def test_change_feed_has_the_rows_of_the_python_feed(
    spark: SparkSession, lake: Catalog, name: str, sql: Any, tmp_path: Path
) -> None:
    append(lake, 1, 2, 3)
    with lake.begin() as tx:
        tx.update("t", {"id": "id + 10"}, predicate="id = 1")
    sql("ALTER TABLE lake.default.t SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    with lake.begin() as tx:
        tx.update("t", {"id": "id + 10"}, predicate="id = 2")
        tx.delete("t", "id = 3")
    expected = changed(lake.changes("t", 0).read_all().to_pylist())
    assert {kind for _, kind, _ in expected} > {"insert", "update_preimage", "delete"}
    reader = spark.read.option("startingVersion", 0)
    assert changed(reader.changes(f"{name}.default.t").collect()) == expected
    query = f"SELECT part, id, _change_type FROM {name}.default.t CHANGES FROM VERSION 3"
    assert sorted(spark.sql(query).collect()) == [
        (part, id, kind)
        for part, id, kind in sorted(
            (row["part"], row["id"], row["_change_type"])
            for row in lake.changes("t", 3).read_all().to_pylist()
        )
    ]
    raw = spark.read.options(startingVersion=3, deduplicationMode="none")
    feed = DeltaTable(lake.uri.with_table("t").to_string()).load_cdf(starting_version=3)
    assert changed(raw.changes(f"{name}.default.t").collect()) == changed(
        pa.table(feed.read_all()).to_pylist()
    )
    stream = spark.readStream.option("startingVersion", 0).changes(f"{name}.default.t")
    run(stream, f"{name}.default.copy", tmp_path / "checkpoint")
    assert changed(spark.table(f"{name}.default.copy").collect()) == expected


@pytest.mark.everything(BEYOND)
def test_change_feed_is_not_an_option_of_a_table(
    spark: SparkSession, lake: Catalog, name: str, tmp_path: Path
) -> None:
    append(lake, 1)
    for option in ("readChangeFeed", "readChangeData"):
        stream = spark.readStream.option(option, True).table(f"{name}.default.t")
        with pytest.raises(StreamingQueryException, match="cannot read the change feed"):
            run(stream, f"{name}.default.copy", tmp_path / option)
        with pytest.raises(IllegalArgumentException, match="has no option readChange"):
            spark.read.option(option, True).table(f"{name}.default.t").collect()
