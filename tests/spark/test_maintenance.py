"""Table maintenance on Spark follows the same plan as on DuckDB."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlglot import exp

import deltasql
from deltasql.config import Config
from deltasql.engine.duckdb.engine import DuckDbEngine
from deltasql.engine.spark.engine import SparkEngine, SparkRelation
from deltasql.engine.spark.ranks import range_bounds, with_ranks
from deltasql.spark import DeltaTable
from deltasql.spark.session import set_catalog
from tests.oracles import tables
from tests.selection import smoke
from tests.spark.changes import arrow
from tests.spark.support import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.engine.base import Engine
    from deltasql.model.progress import Progress
    from deltasql.uri import DeltaSqlUri

ENGINES = ("duckdb", "spark")


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with deltasql.connect(
        sqlite_uri, mirror={"mode": "off"}, table={"data_root": str(tmp_path / "lake")}
    ) as opened:
        yield opened


def make_engine(name: str, spark: SparkSession) -> Engine:
    return SparkEngine(Config(), spark) if name == "spark" else DuckDbEngine(Config())


def fill(lake: Catalog, files: int = 4, rows: int = 50) -> None:
    for number in range(files):
        ids = [row * files + number for row in range(rows)]
        parts, values = [row % 2 for row in range(rows)], [-each % 17 for each in ids]
        with lake.begin() as tx:
            data = pa.table({"id": ids, "p": parts, "v": values})
            tx.write("t", data, partition_by="p", engine="duckdb")


@pytest.mark.parametrize(
    "engine", smoke(ENGINES, ["duckdb"], "Spark, beyond a smoke test of each API")
)
def test_z_order_clusters_rows(spark: SparkSession, lake: Catalog, engine: str) -> None:
    fill(lake)
    with lake.begin() as tx:
        before = tx.read("t").sort_by("id")
    with lake.begin() as tx:
        metrics = tx.z_order("t", ["id", "v"], engine=engine)
    assert metrics["numFilesRemoved"] == 8
    assert metrics["partitionsOptimized"] == 2
    with lake.begin() as tx:
        assert tx.read("t").sort_by("id").to_pylist() == before.to_pylist()
        assert tx.verify_data("t", engine=engine).ok
    for path in lake.table("t").snapshot().files()["path"].to_pylist():
        ids = pq.read_table(Path(lake.table("t").location) / path)["id"].to_pylist()
        low, high = ids[: len(ids) // 2], ids[len(ids) // 2 :]
        assert sum(low) < sum(high)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize("engine", ENGINES)
def test_ranks_follow_the_order_of_values_of_every_type(spark: SparkSession, engine: str) -> None:
    timestamps = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(600)]
    data = pa.table(
        {
            "number": pa.array([*range(598), None, None]),
            "real": pa.array([float("nan"), -0.5, *[n / 7 for n in range(598)]]),
            "text": pa.array([None, *[f"{n % 300:04}" for n in range(599)]]),
            "exact": pa.array([Decimal(n) / 4 for n in range(600)], pa.decimal128(20, 2)),
            "moment": pa.array(timestamps, pa.timestamp("us", "UTC")),
            "raw": pa.array([bytes([n // 256, n % 256]) for n in range(600)]),
            "flag": pa.array([n % 2 == 0 for n in range(600)]),
            "nothing": pa.array([None] * 600, pa.int64()),
        }
    )
    keys = {f"rank {name}": exp.column(exp.to_identifier(name)) for name in data.column_names}
    with make_engine(engine, spark) as made:
        found = made.collect(made.ranked(made.rows(data), keys, 16))
    for name in data.column_names:
        both = zip(found[name].to_pylist(), found[f"rank {name}"].to_pylist(), strict=True)
        # Nulls come first, NaN is the largest number.
        pairs = sorted(both, key=lambda pair: (pair[0] is not None, pair[0] != pair[0], pair[0]))
        ranks = [rank for _, rank in pairs]
        assert ranks == sorted(ranks), name
        assert (ranks[0], ranks[-1] < 2**16) == (0, True)
        values = {str(value) for value, _ in pairs if value is not None}
        assert len(set(ranks)) >= min(200, len(values)), name
        assert len({(str(value), rank) for value, rank in pairs}) == len(
            {str(value) for value, _ in pairs}
        ), name


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_samples_of_long_values_are_truncated(spark: SparkSession) -> None:
    text = "lpad(CAST(id AS STRING), 5, '0') || repeat('x', 5000)"
    frame = spark.range(0, 500, 1, 2).selectExpr(
        "id", f"{text} AS t", f"CAST({text} AS BINARY) AS b"
    )
    keyed = frame.selectExpr("id", "t AS kt", "b AS kb")
    bounds = range_bounds(keyed, ["kt", "kb"], 4)
    [row] = bounds.collect()
    assert {len(bound) for column in row for bound in column} == {64}
    found = with_ranks(keyed, bounds, ["kt", "kb"], 4).orderBy("id").collect()
    for name in ("kt", "kb"):
        ranks = [row[name] for row in found]
        assert ranks == sorted(ranks)
        assert set(ranks) == set(range(16))


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_z_order_on_spark_distributes_rows_over_tasks(spark: SparkSession, lake: Catalog) -> None:
    with SparkEngine(lake.config, spark) as engine:
        rows = engine.rows(spark.range(0, 100_000, 1, 4).selectExpr("id", "hash(id) AS h"))
        keys = {"a": exp.column("id"), "b": exp.column("h")}
        ranked = engine.ranked(rows, keys, 16)
        assert isinstance(ranked, SparkRelation)
        plan = ranked.frame._jdf.queryExecution().executedPlan().toString()
        assert "Window" not in plan
        assert ranked.frame.rdd.getNumPartitions() == 4
        sizes = ranked.frame.groupBy("a").count().collect()
    assert len(sizes) == 1024
    assert max(row["count"] for row in sizes) < 4 * 100_000 / 1024


@pytest.mark.parametrize("engine", ENGINES)
def test_filtered_compaction_keeps_other_partitions(
    spark: SparkSession, lake: Catalog, engine: str
) -> None:
    fill(lake)
    with lake.begin() as tx:
        metrics = tx.optimize("t", partition_filters=[("p", "=", "1")], engine=engine)
    assert (metrics["numFilesRemoved"], metrics["numFilesAdded"]) == (4, 1)
    assert len(lake.table("t").snapshot().files()) == 5


def test_full_vacuum_finds_unreferenced_files_of_spark(spark: SparkSession, lake: Catalog) -> None:
    fill(lake)
    with lake.begin() as tx:
        tx.optimize("t", engine="spark")
    root = Path(lake.table("t").location)
    spark.range(5).write.parquet(str(root / "somebody"))
    table = deltasql.DeltaTable(lake.uri.with_table("t").to_string())
    found = table.vacuum(retention_hours=0, enforce_retention_duration=False, full=True)
    unreferenced = [name for name in found if name.startswith("somebody/part-")]
    assert len(unreferenced) == len(list((root / "somebody").glob("part-*")))
    assert len(found) - len(unreferenced) == 8


@pytest.fixture
def table_with_many_folders(lake: Catalog) -> Path:
    """The folder of a table with many subfolders, unreferenced files and a nested table."""
    parts = pa.table({"id": range(40), "p": range(40)})
    for mode in ("append", "overwrite"):
        with lake.begin() as tx:
            tx.write("t", parts, partition_by="p", mode=mode, engine="duckdb")
    root = Path(lake.table("t").location)
    for name in ("p=7/stray", "odd/deep/stray", "_hidden/f", "p=9/.f", "_change_data/stray"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / "p=3/inner/_delta_log").mkdir(parents=True)
    (root / "p=3/inner/_delta_log/00000000000000000000.json").touch()
    (root / "p=3/inner/p=1").mkdir()
    (root / "p=3/inner/p=1/f").touch()
    for number in range(30):
        (root / f"p=3/inner/q={number}").mkdir()
    return root


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_full_vacuum_lists_the_same_files_on_executors_and_driver(
    spark: SparkSession, lake: Catalog, table_with_many_folders: Path
) -> None:
    reports: list[Progress] = []
    options = {"retention_hours": 0, "enforce_retention_duration": False, "full": True}
    here = lake.vacuum("t", **options)
    there = lake.vacuum("t", engine="spark", session=spark, on_progress=reports.append, **options)
    assert sorted(there) == sorted(here)
    unreferenced = {"p=7/stray", "odd/deep/stray", "_change_data/stray"}
    removed = lake.table("t").snapshot(0).files()["path"].to_pylist()
    assert set(there) == {*unreferenced, *removed}
    assert {(each.table, each.phase, each.unit) for each in reports} == {("t", "listing", "ranges")}
    assert reports[-1].done == reports[-1].total > 8
    assert [each.done for each in reports] == sorted(each.done for each in reports)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_vacuum_on_executors_deletes_files_and_reports_progress(
    spark: SparkSession, lake: Catalog, table_with_many_folders: Path
) -> None:
    live = set(lake.table("t").snapshot().files()["path"].to_pylist())
    reports: list[Progress] = []
    set_catalog(spark, lake)
    with settings(spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        DeltaTable.forName(spark, "t").vacuum(0, on_progress=reports.append)
    left = {
        str(each.relative_to(table_with_many_folders))
        for each in table_with_many_folders.rglob("*")
        if each.is_file()
    }
    hidden = {"_hidden/f", "p=9/.f"}
    inner = {"p=3/inner/p=1/f", "p=3/inner/_delta_log/00000000000000000000.json"}
    assert left == {*live, *hidden, *inner}
    assert [each.phase for each in reports if each.done == each.total] == ["listing", "deleting"]
    assert reports[-1].done == 43


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_driver_lists_files_when_executors_cannot(
    spark: SparkSession,
    lake: Catalog,
    table_with_many_folders: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {"retention_hours": 0, "enforce_retention_duration": False, "full": True}
    here = lake.vacuum("t", **options)
    # As on workers without Python.
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/such/python")
    with caplog.at_level("WARNING", logger="deltasql"):
        there = lake.vacuum("t", engine="spark", session=spark, **options)
    assert sorted(there) == sorted(here)
    assert "the folder is listed by the driver" in caplog.text


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_optimize_stopped_in_its_progress_callback_leaves_no_files(
    spark: SparkSession, lake: Catalog
) -> None:
    fill(lake)
    root = Path(lake.table("t").location)
    before = {*root.rglob("*.parquet")}

    def stop(progress: Progress) -> None:
        assert progress.total > 1
        if progress.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), lake.begin() as tx:
        tx.optimize("t", engine="spark", on_progress=stop)
    assert {*root.rglob("*.parquet")} == before


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize(
    "kind", smoke(["compaction", "z-order"], ["compaction"], "a z-order on Spark once more")
)
def test_optimize_reports_progress_on_spark(spark: SparkSession, lake: Catalog, kind: str) -> None:
    fill(lake)
    set_catalog(spark, lake)
    reports: list[tuple[int, int]] = []
    builder = DeltaTable.forName(spark, "t").optimize(
        on_progress=lambda each: reports.append((each.done, each.total))
    )
    [row] = (
        builder.executeCompaction() if kind == "compaction" else builder.executeZOrderBy("id")
    ).collect()
    assert row.metrics.partitionsOptimized == 2
    assert reports == [(0, 2), (1, 2), (2, 2)]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "make",
    smoke(
        [
            tables.primitives,
            tables.decimals,
            tables.nested,
            tables.typed_partitions,
            tables.zoneless,
        ],
        ("nested", "typed_partitions"),
        "more kinds of tables",
        named=True,
    ),
    ids=lambda make: make.__name__,
)
def test_verify_data_finds_no_differences_in_written_data(
    spark: SparkSession, lake: Catalog, engine: str, make: object
) -> None:
    [written] = make(lake)  # type: ignore[operator]
    with lake.begin() as tx:
        report = tx.verify_data(written.name, engine=engine)
    assert report.ok, str(report)
    assert report.rows == len(written.states[-1].rows)


@pytest.mark.parametrize("engine", ENGINES)
def test_verify_data_finds_differences_between_log_and_files(
    spark: SparkSession, lake: Catalog, engine: str
) -> None:
    rows = [(number, "a", None, 1.5, None, None, None) for number in range(10)]
    with lake.begin() as tx:
        tx.write("t", arrow(rows), engine="duckdb")
        tx.write("t", arrow(rows), engine="duckdb")
        tx.write("t", arrow(rows), engine="duckdb")
        first, second, third = tx.target("t").staged.adds
        stats = json.loads(second.stats or "")
        stats["minValues"] |= {"id": 3, "g": "b"}
        stats["maxValues"] |= {"id": 8, "x": 1.25}
        stats["nullCount"]["v"] = 4
        adds = tx.target("t").staged.adds
        adds[1] = replace(second, stats=json.dumps(stats))
        adds[2] = replace(third, stats='{"numRecords":11}')
    (Path(lake.table("t").location) / first.path).unlink()
    with lake.begin() as tx:
        report = tx.verify_data("t", engine=engine)
    found = {(each.path, each.kind, each.field) for each in report.differences}
    assert found == {
        (first.path, "missing", None),
        (second.path, "min", "id"),
        (second.path, "min", "g"),
        (second.path, "max", "id"),
        (second.path, "max", "x"),
        (second.path, "nulls", "v"),
        (third.path, "rows", None),
    }
    assert report.files == 3
    assert "the log has 11, the file has 10" in str(report)
