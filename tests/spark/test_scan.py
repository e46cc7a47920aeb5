"""Spark's Parquet scan of a snapshot's files returns exactly the rows of that version."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql.spark
from deltasql.engine.files.live_files import LiveFiles
from deltasql.engine.spark import scan as engine
from deltasql.engine.spark.schema import spark_path
from deltasql.exceptions import MissingDriverError, TxnLogEngineError, TxnLogUriError
from deltasql.spark.read import read_snapshot
from tests.conftest import add_file
from tests.oracles import tables, tables_staged
from tests.oracles.fixed_set import SMALL
from tests.oracles.foreign import stage_all_commits
from tests.oracles.states import Rows, arrow_rows
from tests.oracles.writing import Written, create
from tests.selection import smoke

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from deltasql import Catalog

IDS = pa.schema([("id", pa.int64())])
THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
EVERY_VERSION = ("column_mapping", "deletion_vectors", "mapped_partition")

BEYOND = "more kinds of tables; the engine's tests have all"
SMOKE = ("typed_partitions", "nested", "evolved", "column_mapping", "deletion_vectors")


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def rows(spark: SparkSession, written: Written, version: int | None = None, **how: Any) -> Rows:
    snapshot = written.table.snapshot(version)
    return arrow_rows(read_snapshot(spark, snapshot, written.catalog.config, **how).toArrow())


@pytest.mark.parametrize(
    "make", smoke(SMALL, SMOKE, BEYOND, named=True), ids=lambda make: make.__name__
)
def test_scan_returns_the_rows_of_the_version(
    spark: SparkSession, lake: Catalog, make: Callable[[Catalog], list[Written]]
) -> None:
    for written in make(lake):
        last = len(written.states) - 1
        for version in range(0 if written.name in EVERY_VERSION else last, last + 1):
            assert rows(spark, written, version) == written.states[version], version


def test_deltalake_returns_the_same_rows(spark: SparkSession, lake: Catalog) -> None:
    [written] = tables.nested(lake)
    stock = deltalake.DeltaTable(written.table.location).to_pyarrow_table()
    assert rows(spark, written) == arrow_rows(stock)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize(
    "make",
    smoke(
        [tables.typed_partitions, tables.zoneless, tables_staged.rules],
        ("zoneless",),
        BEYOND,
        named=True,
    ),
)
def test_session_time_zone_does_not_change_values(
    spark: SparkSession, lake: Catalog, make: Callable[[Catalog], list[Written]]
) -> None:
    [written] = make(lake)
    with setting(spark, "spark.sql.session.timeZone", "Asia/Tokyo"):
        assert rows(spark, written) == written.states[-1]


@pytest.mark.everything("tables of delta-spark, beyond the smoke set")
def test_imported_delta_spark_table_reads_the_same_as_in_delta_spark(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    for statement in (
        """CREATE TABLE {0}
             (id BIGINT, s STRUCT<`a b`: BIGINT, at: TIMESTAMP>, l ARRAY<STRUCT<x: INT, y: STRING>>,
              m MAP<STRING, STRUCT<z: DATE>>, day DATE)
           USING delta PARTITIONED BY (day) TBLPROPERTIES (
             'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name')""",
        """INSERT INTO {0} SELECT /*+ REPARTITION(1) */ id,
             struct(id, TIMESTAMP '2024-02-29 23:30:00Z' + make_interval(0, 0, 0, 0, 0, 0, id)),
             array(struct(cast(id AS INT), concat('y', id)), NULL),
             map('k', struct(DATE '2024-02-29')), date_add(DATE '2024-02-29', cast(id % 2 AS INT))
           FROM range(100000)""",
        "DELETE FROM {0} WHERE id % 3 = 0 OR id BETWEEN 20000 AND 80000",
        "ALTER TABLE {0} RENAME COLUMN l.element.x TO `new x`",
    ):
        spark.sql(statement.format(f"delta.`{source}`"))
    written = stage_all_commits(lake, spark, source, tmp_path / "foreign")
    ours = read_snapshot(spark, written.table.snapshot(), lake.config)
    theirs = spark.read.format("delta").load(str(source))
    assert ours.schema == theirs.schema
    assert ours.count() == sum(n % 3 > 0 and not 20_000 <= n <= 80_000 for n in range(100_000))
    texts = [frame.selectExpr("to_json(struct(*)) AS row") for frame in (ours, theirs)]
    assert texts[0].exceptAll(texts[1]).count() == texts[1].exceptAll(texts[0]).count() == 0


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_added_columns_and_fields_are_null_in_older_files(
    spark: SparkSession, lake: Catalog
) -> None:
    written = create(lake, "grown", pa.schema([("id", pa.int32()), ("s", _struct("a"))]))
    written.append([{"id": 1, "s": {"a": "x"}}])
    after = pa.schema([("id", pa.int32()), ("s", _struct("a", "b")), ("more", pa.date32())])
    written.alter(after, rows=[{"id": 1, "s": {"a": "x", "b": None}}])
    written.append([{"id": 2, "s": {"a": None, "b": "y"}}])
    assert rows(spark, written) == written.states[-1]


def _struct(*names: str) -> pa.DataType:
    return pa.struct([(name, pa.string()) for name in names])


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_old_timestamps_are_utc_in_any_session(spark: SparkSession, lake: Catalog) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    written = create(lake, "timestamps", schema)
    row = {"at": datetime(2024, 2, 29, 23, 30, 0, 250, UTC)}
    for name, data, int96 in (
        ("int96", written.arrow([row]), True),
        ("naive", written.arrow([row]).cast(pa.schema([("at", pa.timestamp("us"))])), False),
    ):
        target = Path(written.table.location) / f"{name}.parquet"
        target.parent.mkdir(exist_ok=True)
        pq.write_table(data, target, use_deprecated_int96_timestamps=int96)
        size = target.stat().st_size
        written.stage([add_file(target.name, size=size)], [*written.rows, row])
    with setting(spark, "spark.sql.session.timeZone", "Asia/Tokyo"):
        assert rows(spark, written) == written.states[-1]


def test_table_without_files_has_its_schema(spark: SparkSession, lake: Catalog) -> None:
    schema = pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), pa.date32()))])
    frame = read_snapshot(spark, create(lake, "t", schema).table.snapshot(), lake.config)
    assert frame.schema.simpleString() == "struct<id:bigint,m:map<string,date>>"
    assert frame.count() == 0


# Which rows


def test_read_accepts_versions_timestamps_columns_and_predicates(
    spark: SparkSession, lake: Catalog
) -> None:
    schema = pa.schema([("id", pa.int64()), ("the.part", pa.string()), ("_metadata", pa.int64())])
    written = create(lake, "t", schema, partition_by=["the.part"])
    written.append([{"id": 1, "the.part": "a", "_metadata": 7}])
    between = written.table.snapshot().committed_at + timedelta(microseconds=500)
    written.append([{"id": 2, "the.part": "b"}, {"id": 3, "the.part": "a"}])
    uri = written.table.uri

    def ids(*args: Any, **how: Any) -> list[int]:
        return sorted(row["id"] for row in deltasql.spark.read(spark, *args, **how).collect())

    assert ids(uri) == [1, 2, 3]
    assert ids(uri, 1) == ids(f"{uri}&version=1") == ids(uri, timestamp=between) == [1]
    assert ids(uri, predicate="`the.part` = 'a' AND id > 1") == [3]
    assert ids(uri, predicate=[("the.part", "=", "b")]) == [2]
    frame = deltasql.spark.read(spark, uri, columns=["the.part", "_metadata"], predicate="id < 2")
    assert [tuple(row) for row in frame.collect()] == [("a", 7)]
    with pytest.raises(TxnLogUriError, match="names a catalog"):
        deltasql.spark.read(spark, lake.uri)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_timestamp_in_a_predicate_is_utc_in_any_session(spark: SparkSession, lake: Catalog) -> None:
    written = create(lake, "t", pa.schema([("at", pa.timestamp("us", "UTC"))]))
    for hour in (0, 6, 12, 18):
        written.append([{"at": datetime(2024, 5, 1, hour, tzinfo=UTC)}])
    with setting(spark, "spark.sql.session.timeZone", "America/New_York"):
        for text, count in (
            ("at >= '2024-05-01 06:00:00'", 3),
            ("at BETWEEN '2024-05-01' AND '2024-05-01T12:00:00'", 3),
            ("at = TIMESTAMP '2024-05-01 18:00:00'", 1),
            ("at IN ('2024-05-01 00:00:00', '2024-05-01T02:00:00-04:00')", 2),
        ):
            assert len(rows(spark, written, predicate=text).rows) == count, text


def test_predicate_skips_files(spark: SparkSession, lake: Catalog) -> None:
    written = create(lake, "t", IDS)
    for number in range(4):
        written.append([{"id": number}])
    snapshot = written.table.snapshot()
    frame = read_snapshot(spark, snapshot, lake.config, "id >= 3")
    assert len(frame.inputFiles()) == 1


# Which files


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_file_names_are_not_glob_patterns(spark: SparkSession, lake: Catalog) -> None:
    written = create(
        lake, "stars", pa.schema([("id", pa.int64()), ("p", pa.int64())]), partition_by=["p"]
    )
    names = [
        "axx.parquet",
        "a1.parquet",
        "a*.parquet",
        "a[1].parquet",
        "a?.parquet",
        "{a,b}.parquet",
    ]
    names += ["a\\b.parquet", "100%25 é\u3000+.parquet", 'it\'s "#".parquet']
    for number, name in enumerate(names):
        file = written.file(pa.table({"id": [number]}), name=name, partition={"p": str(number)})
        if number > 1:  # the first two files exist but are not part of the table
            written.stage([file], [*written.rows, {"id": number, "p": number}])
    assert rows(spark, written) == written.states[-1]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize("name", ["_x.parquet", ".x.parquet", "d/_x.parquet"])
def test_file_names_that_spark_hides_are_read(
    spark: SparkSession, lake: Catalog, name: str
) -> None:
    written = create(lake, "t", IDS)
    written.stage([written.file(pa.table({"id": [1]}), name=name)], [{"id": 1}])
    assert rows(spark, written) == written.states[-1]
    with pytest.raises(TxnLogEngineError, match="because of its name"):
        listed_by_name(spark, written)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_file_name_that_hadoop_cannot_open_is_rejected(spark: SparkSession, lake: Catalog) -> None:
    written = create(lake, "t", IDS)
    written.stage([written.file(pa.table({"id": [1]}), name="a:b.parquet")], [{"id": 1}])
    for read in (rows, listed_by_name):
        with pytest.raises(TxnLogEngineError, match="because of its name"):
            read(spark, written)


def listed_by_name(spark: SparkSession, written: Written) -> Rows:
    """Read as Spark Connect does, from file names only."""
    snapshot = written.table.snapshot()
    listed = snapshot.scan().arrow.drop_columns(["size"])
    settings = written.catalog.config.storage
    files = LiveFiles(snapshot.table.location, snapshot.metadata, listed, settings)
    return arrow_rows(engine.scan(spark, files).toArrow())


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize(
    "make", smoke(SMALL, ("typed_partitions",), BEYOND, named=True), ids=lambda make: make.__name__
)
def test_files_listed_by_name_give_the_same_rows(
    spark: SparkSession, lake: Catalog, make: Callable[[Catalog], list[Written]]
) -> None:
    for written in make(lake):
        assert listed_by_name(spark, written) == written.states[-1]


def test_missing_file_raises_even_with_ignore_missing_files(
    spark: SparkSession, lake: Catalog
) -> None:
    written = create(lake, "t", IDS)
    written.append([{"id": 1}])
    written.append([{"id": 2}])
    [file, _] = [Path(written.table.location) / file.path for file in written.live()]
    with setting(spark, "spark.sql.files.ignoreMissingFiles", "true"):
        frame = read_snapshot(spark, written.table.snapshot(), lake.config)
        file.unlink()
        with pytest.raises(Exception, match=r"does not exist|FILE_NOT_EXIST"):
            frame.collect()
        with pytest.raises(Exception, match="PATH_NOT_FOUND"):
            listed_by_name(spark, written)


def test_reading_a_thousand_files_starts_no_listing_job(spark: SparkSession, lake: Catalog) -> None:
    written = create(lake, "t", IDS)
    add = written.file(pa.table({"id": [1]}), name="0.parquet")
    root = Path(written.table.location)
    for number in range(1, 1000):
        (root / f"{number}.parquet").hardlink_to(root / "0.parquet")
    written.stage([replace(add, path=f"{n}.parquet") for n in range(1000)], [{"id": 1}] * 1000)
    before = spark.conf.get(THRESHOLD)
    spark.sparkContext.setJobGroup("listing", "listing")
    try:
        frame = read_snapshot(spark, written.table.snapshot(), lake.config)
    finally:  # other tests use the same session
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("listing")) == []
    assert spark.conf.get(THRESHOLD) == before
    assert frame.count() == 1000


def test_object_store_urls_use_the_schemes_of_hadoop(spark: SparkSession) -> None:
    assert spark_path(spark, "s3://b/x") == "s3a://b/x"
    assert spark_path(spark, "gs://b/x") == "gs://b/x"
    assert spark_path(spark, "/a b/x") == "file:///a b/x"


def test_missing_pyspark_error_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingDriverError, match=r"pip install 'deltasql\[spark\]'"):
        engine.scan(None, None)  # type: ignore[arg-type]
