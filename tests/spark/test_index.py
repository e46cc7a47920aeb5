"""Filters that are applied after the read still skip files, on classic Spark."""

from __future__ import annotations

import logging
import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltasql.engine.files.live_files import LiveFiles
from deltasql.engine.spark import file_index as spark_index
from deltasql.engine.spark.scan import scan
from deltasql.spark.read import read_snapshot
from tests.conftest import add_file
from tests.mirror.support import open_mirrored
from tests.oracles.states import arrow_rows
from tests.oracles.writing import Written, create
from tests.selection import smoke
from tests.spark.support import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri


def frame_of(spark: SparkSession, written: Written) -> DataFrame:
    return read_snapshot(spark, written.table.snapshot(), written.catalog.config)


def files_read(frame: DataFrame) -> int:
    """Run a query and return the number of files that it reads."""
    frame.collect()
    return files_planned(frame)


def files_planned(frame: DataFrame) -> int:
    """Return the number of files that a query would read."""
    jvm_frame: Any = frame._jdf
    jvm_frame.queryExecution().toRdd()
    plan = jvm_frame.queryExecution().executedPlan()
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        plan = plan.executedPlan()
    leaves = plan.collectLeaves()
    found = [leaves.apply(place).metrics() for place in range(leaves.size())]
    return sum(m.apply("numFiles").value() for m in found if m.contains("numFiles"))


ROWS = [
    {
        "id": number,
        "at": datetime(2024, 3, 31, number, 30, tzinfo=UTC),
        "plain": datetime(2024, 3, 31, number, 30),
        "day": date(2024, 3, 1 + number),
        "name": f"it's {number}",
        "price": Decimal(f"{number}.50"),
        "s": {"x": number},
        "part": ["a", None][number % 2],
    }
    for number in range(4)
]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("plain", pa.timestamp("us")),
        ("day", pa.date32()),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("s", pa.struct([("x", pa.int64())])),
        ("part", pa.string()),
    ]
)


@pytest.mark.parametrize(
    "zone", smoke(["UTC", "America/New_York"], ["America/New_York"], "a second time zone")
)
def test_filters_skip_files_and_lose_no_rows(spark: SparkSession, lake: Catalog, zone: str) -> None:
    written = create(lake, "t", SCHEMA, partition_by=["part"])
    for row in ROWS:
        written.append([row])
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        frame = frame_of(spark, written)
        for condition, rows, files in (
            ("id >= 3", 1, 1),
            ("3 <= id", 1, 1),
            ("id IN (0, 3)", 2, 2),
            ("id = 1 OR id = 2", 2, 2),
            ("id IS NULL", 0, 0),
            ("abs(id) = 1", 1, 4),
            ("at > TIMESTAMP '2024-03-31 02:00:00Z'", 2, 2),
            ("plain = TIMESTAMP_NTZ '2024-03-31 02:30:00'", 1, 1),
            ("day BETWEEN DATE '2024-03-02' AND DATE '2024-03-03'", 2, 2),
            ('name = "it\'s 2"', 1, 1),
            ("price < 1.0", 1, 1),
            ("s.x = 2", 1, 1),
            ("part = 'a'", 2, 2),
            ("part IS NULL AND id > 1", 1, 1),
            ("upper(part) = 'A' AND s.x = 0", 1, 1),
            ("part <=> NULL", 2, 2),
        ):
            found = frame.where(condition)
            assert found.count() == rows, condition
            assert files_read(found) == files, condition


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_filters_on_renamed_columns_use_physical_names(spark: SparkSession, lake: Catalog) -> None:
    from tests.oracles import tables_staged

    [written] = tables_staged.column_mapping(lake)
    frame = frame_of(spark, written)
    assert frame.where("key = 3").count() == 1


def test_frame_works_after_its_catalog_is_closed(
    spark: SparkSession, sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as lake:
        written = create(lake, "t", pa.schema([("id", pa.int64())]))
        written.append([{"id": 1}])
        written.append([{"id": 2}])
        frame = frame_of(spark, written)
    assert [row["id"] for row in frame.where("id > 1").collect()] == [2]


def test_frame_keeps_its_version_after_a_refresh(spark: SparkSession, lake: Catalog) -> None:
    written = create(lake, "t", pa.schema([("id", pa.int64())]))
    written.append([{"id": 1}])
    frame = frame_of(spark, written).persist()
    written.append([{"id": 2}])
    spark.catalog.refreshByPath(written.table.location)
    assert frame.count() == 1
    frame.unpersist()


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_reads_of_tables_with_equal_schemas_stay_separate(
    spark: SparkSession, lake: Catalog
) -> None:
    one, two = (create(lake, name, pa.schema([("id", pa.int64())])) for name in ("one", "two"))
    one.append([{"id": 1}])
    two.append([{"id": 2}])
    both = frame_of(spark, one).union(frame_of(spark, two))
    assert sorted(row["id"] for row in both.collect()) == [1, 2]
    joined = frame_of(spark, one).alias("a").crossJoin(frame_of(spark, one).alias("b"))
    assert joined.count() == 1


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_py4j_calls_do_not_grow_with_partitions(
    spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    from py4j.clientserver import ClientServerConnection

    calls = 0
    send = ClientServerConnection.send_command

    def counted(connection: Any, command: str) -> Any:
        nonlocal calls
        # Python's garbage collector sends release commands to the JVM at any time.
        calls += not command.startswith("m\nd\n")
        return send(connection, command)

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    needed = []
    for name, count in (("warm", 1), ("few", 2), ("many", 40)):
        written = create(lake, name, SCHEMA, partition_by=["day"])
        written.append([{**ROWS[0], "day": date(2024, 1, 1 + n % 28)} for n in range(count)])
        calls = 0
        assert files_read(frame_of(spark, written).where("day > DATE '2023-01-01'")) == min(
            count, 28
        )
        needed.append(calls)
    assert needed[1] == needed[2]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_long_file_list_reaches_the_jvm_complete(
    spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("id", pa.int64()), ("part", pa.string())])
    written = create(lake, "t", schema, partition_by=["part"])
    written.append([{"id": 0, "part": "real"}])
    # More files than the JVM unpacks on one core; they are never opened.
    numbers = range(1, 6000)
    with lake.begin() as tx:
        tx.stage_table(
            "t",
            [
                add_file(f"part={n % 7}/{n}", n, n, partition_values={"part": str(n % 7)}, size=n)
                for n in numbers
            ],
        )
    context: Any = spark.sparkContext
    before = set(os.listdir(context._temp_dir))
    frame = frame_of(spark, written)
    assert frame.where("part = 'real'").collect() == [(0, "real")]
    assert files_planned(frame.where("part = '3' AND id > 5000")) == sum(
        n % 7 == 3 for n in range(5001, 6000)
    )
    assert files_planned(frame) == 6000
    listed = set(frame.inputFiles())
    assert len(listed) == 6000
    assert {name.rpartition("/")[2] for name in listed} > {str(n) for n in numbers}
    assert set(os.listdir(context._temp_dir)) == before
    monkeypatch.setattr(context, "_encryption_enabled", True)
    assert set(frame_of(spark, written).inputFiles()) == listed


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_filters_on_partition_columns_of_every_type_skip_files(
    spark: SparkSession, lake: Catalog
) -> None:
    values: dict[str, tuple[pa.DataType, Any, str]] = {
        "p_byte": (pa.int8(), -3, "= -3"),
        "p_short": (pa.int16(), 300, "> 299"),
        "p_int": (pa.int32(), -70_000, "< 0"),
        "p_long": (pa.int64(), 2**40, f"= {2**40}"),
        "p_float": (pa.float32(), 1.5, "= 1.5"),
        "p_double": (pa.float64(), float("inf"), "> 1e300"),
        "p_bool": (pa.bool_(), True, "= true"),
        "p_text": (pa.string(), "ä b/c%20", "LIKE 'ä b/%'"),
        "p_bytes": (pa.binary(), b"xyz", "= X'78797A'"),
        "p_day": (pa.date32(), date(1969, 12, 31), "< DATE '1970-01-01'"),
        "p_at": (
            pa.timestamp("us", "UTC"),
            datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
            "= TIMESTAMP '2024-01-02 03:04:05.000006Z'",
        ),
        "p_wall": (
            pa.timestamp("us"),
            datetime(1960, 1, 2, 3, 4, 5),
            "= TIMESTAMP_NTZ '1960-01-02 03:04:05'",
        ),
        "p_exact": (pa.decimal128(20, 3), Decimal("-12345678901234567.250"), "< -1"),
    }
    schema = pa.schema([("id", pa.int64()), *((n, kind) for n, (kind, *_) in values.items())])
    written = create(lake, "t", schema, partition_by=list(values))
    row = {name: value for name, (_, value, _) in values.items()}
    written.append([{"id": 1, **row}])
    written.append([{"id": 2, **dict.fromkeys(row)}])
    frame = frame_of(spark, written)
    for name, (_, value, condition) in values.items():
        assert files_read(frame.where(f"{name} {condition}")) == 1, name
        [found] = frame.where(f"{name} {condition}").collect()
        assert found["id"] == 1, name
        if name != "p_at":  # collect() returns it in the zone of this process
            assert found[name] == value, name
        assert frame.where(f"{name} IS NULL").collect()[0]["id"] == 2, name


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_filters_on_hidden_metadata_columns_do_not_use_table_columns(
    spark: SparkSession, lake: Catalog
) -> None:
    schema = pa.schema(
        [("file_name", pa.string()), ("file_path", pa.string()), ("file_size", pa.int64())]
    )
    written = create(lake, "t", schema)
    for number in (1, 2):
        written.append([{"file_name": "a", "file_path": "b", "file_size": -number}])
    frame = frame_of(spark, written)
    hidden = frame.selectExpr("file_size", "_metadata AS m").where("file_size = -1").first()
    assert hidden is not None
    place = hidden["m"]
    for condition in (
        f"_metadata.file_name = '{place['file_name']}'",
        f"_metadata.file_path = '{place['file_path']}'",
        f"_metadata.file_name IN ('{place['file_name']}', 'x')",
        "_metadata.file_size > 0 AND file_size = -1",
    ):
        assert [row["file_size"] for row in frame.where(condition).collect()] == [-1], condition
    assert files_read(frame.where("file_size = -1")) == 1


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_query_succeeds_when_data_skipping_fails(
    spark: SparkSession, lake: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    written = create(lake, "t", pa.schema([("id", pa.int64())]))
    written.append([{"id": 1}])
    written.append([{"id": 2}])

    def broken(condition: str) -> list[str]:
        raise RuntimeError(f"no way to {condition}")

    snapshot = written.table.snapshot()
    files = LiveFiles(
        snapshot.table.location, snapshot.metadata, snapshot.scan().arrow, lake.config.storage
    )
    with caplog.at_level(logging.INFO, "deltasql.engine.spark.file_index"):
        frame = scan(spark, files, prune=broken)
        assert [row["id"] for row in frame.where("id > 1").collect()] == [2]
        assert files_read(frame.where("id > 1")) == 2
    assert "no way to" in caplog.text


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_COMPILER", "org.elsewhere.SimpleCompiler"),
        ("_CLASS", "deltasql.AnotherClass"),
        # This class exists, but has another constructor.
        ("_RELATION", "org.apache.spark.sql.execution.datasources.LogicalRelation"),
    ],
)
def test_without_a_compiler_files_are_listed_by_name(
    spark: SparkSession,
    lake: Catalog,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    value: str,
) -> None:
    written = create(lake, "t", SCHEMA, partition_by=["part"])
    for row in ROWS:
        written.append([row])
    monkeypatch.setattr(spark_index, name, value)
    monkeypatch.setattr(spark_index, "_classes", WeakKeyDictionary())
    with caplog.at_level(logging.WARNING, "deltasql.engine.spark.file_index"):
        for _ in range(2):
            frame = frame_of(spark, written)
            assert arrow_rows(frame.toArrow()) == written.states[-1]
            assert frame.where("part = 'a' AND id > 0").count() == 1
    assert caplog.text.count("Spark gets the files by name") == 1


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize("is_shared", [True, False])
def test_file_list_is_sent_through_py4j_without_a_shared_folder(
    spark: SparkSession,
    lake: Catalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_shared: bool,
) -> None:
    written = create(lake, "t", SCHEMA, partition_by=["part"])
    for row in ROWS:
        written.append([row])
    monkeypatch.setattr(spark_index, "_GATEWAY_BYTES", 0)
    folder = tmp_path if is_shared else tmp_path / "gone"
    monkeypatch.setattr(spark.sparkContext, "_temp_dir", str(folder))
    with caplog.at_level(logging.WARNING, "deltasql.engine.spark.file_index"):
        assert arrow_rows(frame_of(spark, written).toArrow()) == written.states[-1]
    assert ("is sent through the py4j gateway" in caplog.text) != is_shared


@given(st.lists(st.text("a.0/_~%2eF: ö", max_size=6), min_size=1))
def test_plain_names_are_valid_uris(names: list[str]) -> None:
    paths = pa.array(names, pa.string())
    assert spark_index._are_uris(paths) or not spark_index._need_no_encoding(paths)


@pytest.mark.parametrize(
    "name", [".a", "a/.b", "../a", "/a", "a//b", "a/", "", "a b", "a%20b", "a:b", "ä"]
)
def test_names_that_need_encoding_are_detected(name: str) -> None:
    plain = ["part=1/a-0.parquet", "b_1.parquet"]
    assert spark_index._need_no_encoding(pa.array(plain))
    assert not spark_index._need_no_encoding(pa.array([plain[0], name, plain[1]]))
    assert spark_index._need_no_encoding(pa.array([name, *plain])[1:])


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_encoding_a_thousand_names_reads_the_session_settings_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    get = spark.conf.get

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return get(*arguments)

    monkeypatch.setattr(spark.conf, "get", counted)
    names = pa.chunked_array([[f"a(b)-{number}.parquet" for number in range(1000)]])
    start, uris = spark_index._uris(spark, "s3://bucket/t", names)
    assert (start, uris[7].as_py()) == ("", "s3a://bucket/t/a%28b%29-7.parquet")
    assert calls == 1


@pytest.mark.parametrize("name", ["a.parquet", "a%20b.parquet"])
def test_authority_of_a_url_is_not_encoded(spark: SparkSession, name: str) -> None:
    server = "abfss://lake@account.dfs.core.windows.net"
    start, uris = spark_index._uris(spark, f"{server}/a b/t", pa.chunked_array([[name]]))
    assert f"{start}{uris[0].as_py()}" == f"{server}/a%20b/t/{name}"
