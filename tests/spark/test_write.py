"""Every reader returns the rows that Spark wrote, and a failed write is not visible."""

from __future__ import annotations

import json
import logging
import math
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql
import deltasql.spark
from deltasql.engine.base import WriteOptions
from deltasql.engine.spark import write as spark_write
from deltasql.exceptions import (
    TableExistsError,
    TxnLogEngineError,
    TxnLogSchemaError,
    TxnLogUriError,
)
from tests.oracles.fixed_set import PLAIN
from tests.oracles.readers import Deltalake, DeltalakeArrow, DeltaSpark, DuckDb, Place, Polars
from tests.oracles.states import arrow_rows
from tests.selection import smoke
from tests.spark.support import ODD, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from deltasql import Catalog
    from tests.oracles.writing import Written

READERS = {"deltalake": Deltalake, "arrow": DeltalakeArrow, "duckdb": DuckDb, "polars": Polars}
EXCUSED = {("hive_null", "polars")}
"""polars takes partition values from folder names."""


def uri(lake: Catalog, name: str) -> str:
    return lake.uri.with_table(name).to_string()


def ids(spark: SparkSession, lake: Catalog, name: str) -> list[int]:
    frame = deltasql.spark.read(spark, lake.table(name).uri)
    return sorted(row["id"] for row in frame.collect())


def files_of(lake: Catalog, name: str) -> list[Path]:
    """Return all files below a table's folder, also unreferenced ones."""
    root = Path(lake.table(name).location)
    found = [path for path in root.rglob("*") if path.is_file()]
    return [path.relative_to(root) for path in found if "_delta_log" not in path.parts]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize(
    "make",
    smoke(PLAIN, ("typed_partitions", "nested"), "more kinds of tables", named=True),
    ids=lambda make: make.__name__,
)
def test_every_reader_returns_rows_written_with_unusual_session_settings(
    spark: SparkSession, lake: Catalog, make: Callable[[Catalog], list[Written]]
) -> None:
    [written] = make(lake)
    with settings(spark, ODD):
        frame = deltasql.spark.read(spark, written.table.uri)
        version = deltasql.spark.write(
            frame, uri(lake, "copy"), partition_by=list(written.partition_by) or None
        )
        assert version == 0
        own = deltasql.spark.read(spark, lake.table("copy").uri)
        assert arrow_rows(own.toArrow()) == written.states[-1]
    place = Place(lake.table("copy").location)
    for name, reader in READERS.items():
        if (written.name, name) not in EXCUSED:
            assert reader().rows(place, 0) == written.states[-1], name
    assert DeltaSpark(spark).rows(place, 0) == written.states[-1]
    assert len(files_of(lake, "copy")) == len(lake.table("copy").snapshot().files())


def test_transaction_accepts_spark_and_arrow_frames(spark: SparkSession, lake: Catalog) -> None:
    with lake.begin() as tx:
        tx.write("orders", spark.range(3))
        tx.write("stock", pa.table({"id": [7]}))
        tx.write("orders", spark.range(10, 12))
    assert tx.versions == {"orders": 0, "stock": 0}
    assert ids(spark, lake, "orders") == [0, 1, 2, 10, 11]
    assert ids(spark, lake, "stock") == [7]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_predicates_use_the_escapes_and_formats_of_spark(
    spark: SparkSession, lake: Catalog
) -> None:
    place = uri(lake, "t")
    rows = spark.range(3).selectExpr("id", r"concat('C:\\n', id) AS s", "DATE '2024-05-01' AS day")
    deltasql.spark.write(rows, place)
    digits = r"s RLIKE '\\d$' AND id > 0 AND date_format(day, 'yyyy-MM') = '2024-05'"
    found = deltasql.spark.read(spark, place, predicate=digits)
    assert sorted(row.id for row in found.collect()) == [1, 2]
    deltasql.spark.write(rows.where("id = 2"), place, "overwrite", replace_where=digits)
    assert ids(spark, lake, "t") == [0, 2]
    equal = deltasql.spark.read(spark, place, predicate=r"s = 'C:\\n2'")
    assert [row.id for row in equal.collect()] == [2]


def test_spark_write_modes_are_those_of_deltalake(spark: SparkSession, lake: Catalog) -> None:
    place = uri(lake, "t")
    assert deltasql.spark.write(spark.range(3), place, mode="error") == 0
    with pytest.raises(TableExistsError, match="A table already exists at"):
        deltasql.spark.write(spark.range(3), place, mode="error")
    assert deltasql.spark.write(spark.range(3), place, mode="ignore") is None
    assert deltasql.spark.write(spark.range(3, 5), place) == 1
    assert ids(spark, lake, "t") == [0, 1, 2, 3, 4]
    assert (
        deltasql.spark.write(spark.range(9, 10), place, "overwrite", replace_where="id >= 3") == 2
    )
    assert ids(spark, lake, "t") == [0, 1, 2, 9]
    assert deltasql.spark.write(spark.range(1), place, "overwrite") == 3
    assert ids(spark, lake, "t") == [0]
    wider = spark.range(1).selectExpr("id", "'x' AS more")
    with pytest.raises(TxnLogSchemaError):
        deltasql.spark.write(wider, place)
    assert deltasql.spark.write(wider, place, schema_mode="merge") == 4
    found = deltasql.spark.read(spark, lake.table("t").uri).orderBy("more").collect()
    assert [tuple(row) for row in found] == [(0, None), (0, "x")]


def test_write_with_an_app_version_is_applied_once(spark: SparkSession, lake: Catalog) -> None:
    place = uri(lake, "t")
    again = {"app_id": "etl", "app_version": 5}
    assert deltasql.spark.write(spark.range(2), place, **again) == 0
    assert deltasql.spark.write(spark.range(2), place, **again) is None
    assert deltasql.spark.write(spark.range(2), place, app_id="etl", app_version=6) == 1
    assert lake.table("t").snapshot().transaction_version("etl") == 6
    assert len(ids(spark, lake, "t")) == 4


def test_failed_write_leaves_no_commit_and_no_files(spark: SparkSession, lake: Catalog) -> None:
    place = uri(lake, "t")
    deltasql.spark.write(spark.range(2), place)
    before = files_of(lake, "t")
    broken = spark.range(0, 100, 1, 4).selectExpr(
        "CAST(raise_error('no luck') AS BIGINT) + id AS id"
    )
    with pytest.raises(TxnLogEngineError, match="no luck"):
        deltasql.spark.write(broken, place)
    assert lake.table("t").snapshot().version == 0
    assert files_of(lake, "t") == before
    assert lake.store.intents_before(2**60) == []


def test_concurrent_overwrites_of_an_empty_table_conflict(
    spark: SparkSession, lake: Catalog
) -> None:
    deltasql.spark.write(spark.range(0), uri(lake, "t"))
    for options in ({}, {"predicate": "id < 100"}):
        tx = lake.begin()
        tx.write("t", spark.range(5), mode="overwrite", **options)
        deltasql.spark.write(spark.range(7, 8), uri(lake, "t"), "overwrite")
        with pytest.raises(deltasql.exceptions.CommitConflictError):
            tx.commit()
        assert ids(spark, lake, "t") == [7]
        with lake.begin() as emptied:
            emptied.delete("t")


def test_files_of_a_conflicting_write_are_deleted(spark: SparkSession, lake: Catalog) -> None:
    deltasql.spark.write(spark.range(2), uri(lake, "t"))
    tx = lake.begin()
    tx.write("t", spark.range(5), mode="overwrite")
    deltasql.spark.write(spark.range(7, 8), uri(lake, "t"), "overwrite")
    with pytest.raises(deltasql.exceptions.CommitConflictError):
        tx.commit()
    committed = [
        lake.table("t").snapshot(version).files()["path"].to_pylist() for version in (0, 1)
    ]
    assert set(files_of(lake, "t")) == {Path(path) for paths in committed for path in paths}
    assert ids(spark, lake, "t") == [7]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_intent_for_the_folder_of_a_spark_write_is_recorded_first(
    spark: SparkSession, lake: Catalog
) -> None:
    deltasql.spark.write(spark.range(2), uri(lake, "t"))
    tx = lake.begin()
    tx.write("t", spark.range(3).repartition(1))
    intended = [path for _, _, path, _ in lake.store.intents_before(2**60)]
    folder = intended[0]
    assert folder.endswith("/")
    assert all(path.startswith(folder) for path in intended)
    tx.rollback()
    assert lake.store.intents_before(2**60) == []
    assert not [path for path in Path(folder).rglob("*") if path.is_file()]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize("folder", ["_temporary/0/_temporary/attempt_late", "__magic_job-1/late"])
def test_files_of_a_late_task_attempt_are_not_part_of_the_table(
    spark: SparkSession, lake: Catalog, folder: str
) -> None:
    deltasql.spark.write(spark.range(2).coalesce(1), uri(lake, "t"))
    root = lake.table("t").location
    [done] = files_of(lake, "t")

    def lag(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for job in Path(root).glob("*/_temporary"):
            attempt = job.parent / folder
            attempt.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(root, done), attempt / "part-late.parquet")
        yield from batches

    # As if the attempt wrote after the job removed its temporary folder.
    late = "mapreduce.fileoutputcommitter.cleanup.skipped"
    spark.conf.set(late, "true")
    try:
        frame = spark.range(2, 4).coalesce(1)
        deltasql.spark.write(frame.mapInArrow(lag, frame.schema), uri(lake, "t"))
    finally:
        spark.conf.unset(late)
    assert ids(spark, lake, "t") == [0, 1, 2, 3]
    live = lake.table("t").snapshot().files()["path"].to_pylist()
    assert sorted(path for path in files_of(lake, "t") if path.suffix == ".parquet") == sorted(
        map(Path, live)
    )
    assert lake.store.intents_before(2**60) == []


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_second_session_in_a_transaction_is_rejected(spark: SparkSession, lake: Catalog) -> None:
    with lake.begin() as tx:
        tx.write("t", spark.range(1))
        with pytest.raises(TxnLogEngineError, match="another Spark session"):
            tx.write("t", spark.newSession().range(1))


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_invalid_spark_writes_raise_clear_errors(spark: SparkSession, lake: Catalog) -> None:
    with pytest.raises(TxnLogEngineError, match="expected a Spark DataFrame, got Table"):
        deltasql.spark.write(pa.table({"id": [1]}), uri(lake, "t"))  # type: ignore[arg-type]
    with pytest.raises(TxnLogUriError, match="names a catalog"):
        deltasql.spark.write(spark.range(1), lake.uri)
    interval = spark.sql("SELECT INTERVAL '1' DAY AS i")
    with pytest.raises(TxnLogSchemaError):
        deltasql.spark.write(interval, uri(lake, "t"))
    assert not lake.exists("t")


def test_spark_writes_enforce_constraints(spark: SparkSession, lake: Catalog) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    lake.create_table("t", schema, properties={"delta.constraints.small": "id < 10"})
    frame = spark.range(3)
    deltasql.spark.write(frame, uri(lake, "t"))
    for bad in (spark.range(9, 11), spark.sql("SELECT CAST(NULL AS BIGINT) AS id")):
        with pytest.raises(Exception, match="1 rows failed validation check"):
            deltasql.spark.write(bad, uri(lake, "t"))
    assert ids(spark, lake, "t") == [0, 1, 2]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_nondeterministic_rows_are_computed_once(spark: SparkSession, lake: Catalog) -> None:
    frame = spark.range(1000).selectExpr("id", "rand() AS r")
    deltasql.spark.write(frame, uri(lake, "t"))
    found = deltasql.spark.read(spark, lake.table("t").uri)
    assert found.count() == found.select("id").distinct().count() == 1000


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_small_write_takes_one_job_and_one_file(spark: SparkSession, lake: Catalog) -> None:
    frame = spark.range(0, 100, 1, 4).selectExpr("id", "id % 2 AS p")
    deltasql.spark.write(frame, uri(lake, "t"), partition_by="p")
    tracker: Any = spark.sparkContext.statusTracker()
    group = f"a few rows of {lake.uri}"
    spark.sparkContext.setJobGroup(group, "write")
    try:
        deltasql.spark.write(frame.where("p = 1"), uri(lake, "t"))
        deadline = time.monotonic() + 60
        while not tracker.getJobIdsForGroup(group):  # Spark reports its jobs with a delay
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert len(tracker.getJobIdsForGroup(group)) == 1
    assert len(lake.table("t").snapshot().files()) == 3
    assert len(ids(spark, lake, "t")) == 150


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_repartitioned_frame_keeps_its_partitions(spark: SparkSession, lake: Catalog) -> None:
    deltasql.spark.write(spark.range(100).repartitionByRange(3, "id"), uri(lake, "t"))
    assert len(lake.table("t").snapshot().files()) == 3


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_failing_rows_are_not_computed_twice(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with (tmp_path / "runs").open("a") as runs:
            runs.write("x")
        for batch in batches:
            raise RuntimeError("no luck")
            yield batch

    frame = spark.range(0, 5, 1, 1).mapInArrow(fail, "id long").limit(5)
    with pytest.raises(TxnLogEngineError, match="could not compute rows"):
        deltasql.spark.write(frame, uri(lake, "t"))
    assert (tmp_path / "runs").read_text() == "x"


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_rows_too_large_for_the_driver_are_written_by_executors(
    spark: SparkSession, lake: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    frame = spark.range(0, 900, 1, 2).selectExpr("id", "repeat(CAST(id AS STRING), 2000) AS text")
    limit = "spark.driver.maxResultSize"
    conf: Any = spark.sparkContext._jsc.sc().conf()  # type: ignore[attr-defined]
    before = conf.get(limit, "1g")
    conf.set(limit, "200k")
    try:
        with caplog.at_level(logging.INFO, "deltasql.engine.spark.engine"):
            deltasql.spark.write(frame, uri(lake, "t"))
    finally:
        conf.set(limit, before)
    assert "rows written by executors" in caplog.text
    assert ids(spark, lake, "t") == list(range(900))


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize(
    ("value", "rows", "files"),
    [
        ("CAST('x' AS BINARY)", 11, 2),
        ("array(id)", 11, 2),
        ("named_struct('x', id)", 11, 2),
        ("CAST('x' AS BINARY)", 10, 1),
        ("'x'", 11, 1),
    ],
)
def test_values_of_unbounded_size_are_written_by_executors(
    spark: SparkSession, lake: Catalog, value: str, rows: int, files: int
) -> None:
    deltasql.spark.write(
        spark.range(0, rows, 1, 2).selectExpr("id", f"{value} AS v"), uri(lake, "t")
    )
    assert len(lake.table("t").snapshot().files()) == files


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize("most", [3_000, 0], ids=["driver", "executors"])
def test_file_statistics_cover_all_row_groups(
    spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(spark_write, "_BY_DRIVER", most)
    frame = spark.range(0, 100, 1, 1).selectExpr(
        "id",
        "CASE WHEN id = 50 THEN double('NaN') ELSE id END AS nan",
        "CASE WHEN id = 50 THEN double('-Infinity') ELSE id END AS inf",
        "CASE WHEN id = 50 THEN -0D ELSE 0D END AS zero",
        "CASE WHEN id < 60 THEN NULL ELSE concat(repeat('z', 40), id) END AS text",
        "repeat('x', 5000) AS huge",
        "CAST(NULL AS DATE) AS none",
    )
    options = WriteOptions(max_row_group_size=10)
    deltasql.spark.write(frame.repartition(1), uri(lake, "t"), options=options)
    [row] = lake.table("t").snapshot().scan().arrow.to_pylist()
    footer = pq.read_metadata(Path(lake.table("t").location) / row["path"])
    assert footer.num_row_groups == 10
    stats = json.loads(row["stats"])
    assert stats["numRecords"] == 100
    assert stats["nullCount"]["text"] == 60
    assert stats["nullCount"]["none"] == 100
    low, high = stats["minValues"], stats["maxValues"]
    assert (low["id"], high["id"]) == (0, 99)
    assert low["text"] == "z" * 32
    assert high["text"] > "z" * 40
    assert math.copysign(1, low["zero"]) == -1
    # A Parquet footer does not record NaN, which is greater than all numbers.
    assert low["nan"] == 0
    assert not {"nan", "zero"} & {*high}
    # Bounds are omitted if values are too long for the footer, all null, or not possible in JSON.
    assert not {"inf", "huge", "none"} & {*low, *high}
    place = lake.table("t").uri
    for condition, count in (
        ("nan > 1000", 1),
        ("nan < 0", 0),
        ("inf < -5", 1),
        ("zero >= 0", 100),
    ):
        assert deltasql.spark.read(spark, place, predicate=condition).count() == count
        assert deltasql.spark.read(spark, place).where(condition).count() == count


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_compaction_on_spark_writes_one_file_per_partition(
    spark: SparkSession, lake: Catalog
) -> None:
    frame = spark.range(0, 40, 1, 4).selectExpr("id", "id % 2 AS p")
    deltasql.spark.write(frame.localCheckpoint(), uri(lake, "t"), partition_by="p")
    assert len(lake.table("t").snapshot().files()) == 8
    with lake.begin() as tx:
        tx.optimize("t", engine="spark")
    assert len(lake.table("t").snapshot().files()) == 2
    assert ids(spark, lake, "t") == list(range(40))


def test_merge_on_spark_updates_and_inserts_rows(spark: SparkSession, lake: Catalog) -> None:
    frame: DataFrame = spark.range(0, 100, 1, 2).selectExpr("id", "id % 3 AS p", "'old' AS v")
    deltasql.spark.write(frame, uri(lake, "t"), partition_by="p")
    source = spark.range(95, 105).selectExpr("id", "id % 3 AS p", "'new' AS v")
    with lake.begin() as tx:
        merger: Any = tx.merge("t", source, "t.id = s.id", source_alias="s", target_alias="t")
        metrics = merger.when_matched_update_all().when_not_matched_insert_all().execute()
    assert metrics["num_target_rows_updated"] == 5
    assert metrics["num_target_rows_inserted"] == 5
    found = deltasql.spark.read(spark, lake.table("t").uri)
    assert found.where("v = 'new'").count() == 10
    assert found.count() == 105
    assert DeltaSpark(spark).rows(Place(lake.table("t").location), 1) == arrow_rows(found.toArrow())
