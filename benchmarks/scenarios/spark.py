"""Compare Spark's appends and scans with plain Parquet, and everything else with delta-spark.

A full run takes about ten minutes on two cores. The 50,000 files of the planning case are only in
the logs: they are planned, but never opened.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from benchmarks.datasets import deltalake_table, deltasql_table
from benchmarks.harness import print_progress, result, timed
from benchmarks.spark_systems import (
    DeltaSpark,
    DeltasqlCatalog,
    DeltasqlSpark,
    Parquet,
    session,
    spark_rows,
)
from benchmarks.workload import predicates
from deltasql.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.harness import Result
    from benchmarks.spark_systems import SparkSystem
    from benchmarks.workspace import Workspace

TITLE = "Spark, compared with plain Parquet and delta-spark"
APPENDED, QUICK_APPENDED = 20_000_000, 200_000
PLANNED, QUICK_PLANNED = 50_000, 2_000
ROWS, QUICK_ROWS = 5_000_000, 64_000
SOURCE, QUICK_SOURCE = 100_000, 2_000
FILES = 16
SMALL, QUICK_SMALL = 200, 4
SMALL_PER_TURN = 20


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Start one session for all systems, warm it up with the quick sizes, and measure."""
    with session(workspace.new_folder("spark")) as spark:
        if not quick:
            print_progress("  warming up")
            for part in PARTS:
                part(workspace, spark, True)
        results: list[Result] = []
        for part in PARTS:
            results += part(workspace, spark, quick)
    return results


def _appends_and_scans(workspace: Workspace, spark: SparkSession, quick: bool) -> list[Result]:
    """Append the same rows to new tables, then aggregate the last tables."""
    count = QUICK_APPENDED if quick else APPENDED
    frame = spark_rows(spark, 0, count)
    samples: dict[str, list[float]] = {}
    systems: list[SparkSystem] = []
    folders: list[Any] = []
    for number in range(1 if quick else 3):
        print_progress(f"  append of {count:,} rows, round {number + 1}")
        for folder in folders:
            shutil.rmtree(folder)
        folders = [workspace.new_folder("spark-append") for _ in range(4)]
        systems = _systems(spark, folders)
        for system in systems:
            seconds = timed(lambda system=system: system.append(frame))  # type: ignore[misc]
            samples.setdefault(system.name, []).append(seconds)
    aggregates = {system.name: system.aggregate() for system in systems}
    if len(set(aggregates.values())) != 1:
        raise RuntimeError(f"aggregates differ: {aggregates}")
    scans: dict[str, list[float]] = {system.name: [] for system in systems}
    for _ in range(1 if quick else 9):
        for system in systems:
            scans[system.name].append(timed(system.aggregate))
    return [
        *_results(systems, samples, "append", count),
        *_results(systems, scans, "scan", count),
    ]


def _plans(workspace: Workspace, spark: SparkSession, quick: bool) -> list[Result]:
    """Open a table of many files for the first time and plan a query."""
    count = QUICK_PLANNED if quick else PLANNED
    stock = deltalake_table(count)
    ours = deltasql_table(workspace, "sqlite", count)
    uri = parse_uri(ours.uri).with_table("t0").to_string()
    systems = [
        DeltasqlSpark(spark, uri),
        DeltasqlCatalog(spark, uri),
        DeltaSpark(spark, stock.path(0)),
    ]
    # The partition predicate; every system must plan exactly the files that match it.
    wheres = {"plan": None, "plan filtered": predicates(count)[0].sql}
    results = []
    for case, where in wheres.items():
        samples: dict[str, list[float]] = {system.name: [] for system in systems}
        for _ in range(1 if quick else 5):
            for system in systems:
                system.forget()
                samples[system.name].append(timed(lambda s=system, w=where: s.plan(w)))  # type: ignore[misc]
        results += _results(systems, samples, case, count)
    return results


def _changes(workspace: Workspace, spark: SparkSession, quick: bool) -> list[Result]:
    """Merge into, delete from and update the same table, and restore it after each operation."""
    count, source = (QUICK_ROWS, QUICK_SOURCE) if quick else (ROWS, SOURCE)
    _, *systems = _systems(spark, [workspace.new_folder("spark-rows") for _ in range(4)])
    for system in systems:
        print_progress(f"  {system.name}: {count:,} rows in {FILES} files")
        # One write with one file per range of ids.
        system.append(spark_rows(spark, 0, count, parts=FILES))
    merged = _merge_source(spark, count, source)
    low, high = count // 2, count // 2 + count // 100 - 1
    side_by_side, spread = f"id BETWEEN {low} AND {high}", "id % 100 = 7"
    steps: dict[str, Callable[[Any], None]] = {
        "merge": lambda system: system.merge(merged),
        "delete range": lambda system: system.delete(side_by_side),
        "delete spread": lambda system: system.delete(spread),
        "update range": lambda system: system.update(side_by_side),
        "update spread": lambda system: system.update(spread),
    }
    results = []
    for case, step in steps.items():
        print_progress(f"  {case}")
        samples: dict[str, list[float]] = {system.name: [] for system in systems}
        for _ in range(1 if quick else 3):
            sums = set()
            for system in systems:
                samples[system.name].append(timed(lambda s=system, f=step: f(s)))  # type: ignore[misc]
                count_after, amount = system.sum()
                sums.add((count_after, round(amount, 1)))
                system.restore(0)  # type: ignore[attr-defined]
            if len(sums) != 1:
                raise RuntimeError(f"{case}: rows differ: {sums}")
        results += _results(systems, samples, case, count)
    return results


def _small_appends(workspace: Workspace, spark: SparkSession, quick: bool) -> list[Result]:
    """Append a few rows repeatedly."""
    count = QUICK_SMALL if quick else SMALL
    _, *systems = _systems(spark, [workspace.new_folder("spark-small") for _ in range(4)])
    frame = spark_rows(spark, 0, 100, parts=1)
    samples: dict[str, list[float]] = {system.name: [] for system in systems}
    print_progress(f"  {count} small appends")
    for done in range(0, count, SMALL_PER_TURN):
        for system in systems:
            for _ in range(min(SMALL_PER_TURN, count - done)):
                seconds = timed(lambda s=system: s.append(frame))  # type: ignore[misc]
                samples[system.name].append(seconds)
    for system in systems:
        found = system.sum()[0]
        if found != count * 100:
            raise RuntimeError(f"{system.name}: {count * 100} rows appended, {found} found")
    return _results(systems, samples, "small appends", count)


PARTS = (_appends_and_scans, _plans, _changes, _small_appends)


def _systems(spark: SparkSession, folders: Sequence[Any]) -> list[SparkSystem]:
    plain, ours, catalog, stock = folders
    return [
        Parquet(spark, f"{plain}/t0"),
        DeltasqlSpark(spark, f"deltasql://sqlite/{ours}/meta.db?table=t0&mirror=sync"),
        DeltasqlCatalog(spark, f"deltasql://sqlite/{catalog}/meta.db?table=t0&mirror=sync"),
        DeltaSpark(spark, f"{stock}/t0"),
    ]


def _merge_source(spark: SparkSession, total: int, count: int) -> DataFrame:
    """Return rows for a merge: 90 % update ids of the last quarter, the others are new."""
    old = count * 9 // 10
    stride = total // 4 // old
    first = total - total // 4
    changed = spark_rows(spark, first, old * stride).where(f"(id - {first}) % {stride} = 0")
    added = spark_rows(spark, total, count - old)
    made = changed.unionAll(added).selectExpr(
        "id", "key", "amount * 4 AS amount", "label", "at", "flag"
    )
    return made.localCheckpoint()


def _results(
    systems: Sequence[SparkSystem], samples: dict[str, list[float]], case: str, size: int
) -> list[Result]:
    return [
        result(
            system.name,
            system.backend,
            [seconds * 1000 for seconds in samples[system.name]],
            case=case,
            size=size,
            metric="latency",
            unit="ms",
        )
        for system in systems
    ]
