"""Performance targets for reading and changing rows: through the API, and with Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.checks import Check, Results, faster, slower

if TYPE_CHECKING:
    from collections.abc import Iterator

_SMALL_CHANGES = ("small merge", "small update", "small delete")
_CHANGES = ("merge", "delete range", "delete spread", "update range", "update spread")


def api_checks(results: Results) -> Iterator[Check]:
    """Check the deltalake API against deltalake and DuckLake."""
    yield from _tiny_appends(results)
    for size in results.sizes("api", "large append"):
        ours = results.value("api", "deltasql-sqlite-sync", "large append", size)
        stock = results.value("api", "deltalake", "large append", size)
        # The values are rows per second, so higher is better.
        yield from _ratio(f"append of {size:,} rows: throughput over deltalake's", ours, stock, 1)
    for case in _SMALL_CHANGES:
        for size in results.sizes("api", case):
            ours = results.value("api", "deltasql-sqlite-sync", case, size)
            stock = results.value("api", "deltalake", case, size)
            yield from faster(f"{case}, {size:,} rows: faster than deltalake", ours, stock, 1)
    for case in _CHANGES:
        for size in results.sizes("api", case):
            ours = results.value("api", "deltasql-sqlite-sync", case, size)
            stock = results.value("api", "deltalake", case, size)
            # The target was 1.5 while unchanged pieces of files were copied. Now files are
            # rewritten completely.
            yield from faster(f"{case}, {size:,} rows: faster than deltalake", ours, stock, 1)
    for size in results.sizes("api", "merge memory"):
        ours = results.value("api", "deltasql-sqlite-sync", "merge memory", size)
        stock = results.value("api", "deltalake", "merge memory", size)
        # The target was 0.5 while unchanged pieces of files were copied. Now files are rewritten
        # completely.
        yield from slower(
            f"merge, {size:,} rows: peak memory over deltalake's", ours, stock, 0.6, "MB"
        )
    for size in results.sizes("api", "scan"):
        for way in ("", "-query"):
            ours = results.value("api", f"deltasql-sqlite{way}", "scan", size)
            stock = results.value("api", f"deltalake{way}", "scan", size)
            where = f"scan of 1 % of {size:,} files" + (" by QueryBuilder" if way else "")
            yield from faster(f"{where}: faster than deltalake", ours, stock, 2)


def _tiny_appends(results: Results) -> Iterator[Check]:
    for size in results.sizes("api", "tiny append"):
        for backend in ("sqlite", "postgres"):
            ours = results.value("api", f"deltasql-{backend}-sync", "tiny append", size)
            stock = results.value("api", "deltalake", "tiny append", size)
            where = f"{backend}, tiny append at {size:,} commits"
            wanted = 5 if size == 0 else 40
            yield from faster(f"{where}: faster than deltalake", ours, stock, wanted)
            lakes = [
                results.value("api", f"ducklake-{backend}{style}", "tiny append", size)
                for style in ("", "-parquet")
            ]
            known = [lake for lake in lakes if lake is not None]
            lake = min(known) if known else None
            # The target on PostgreSQL was 3. It is lower because psycopg waits for the result of
            # every statement.
            bound = 2.5 if backend == "postgres" else 3
            yield from faster(f"{where}: faster than DuckLake", ours, lake, bound)


def vector_checks(results: Results) -> Iterator[Check]:
    """Check deletion vectors against rewritten files and against delta-spark."""
    for case in _CHANGES:
        for size in results.sizes("vectors", case):
            ours = results.value("vectors", "deltasql-vectors", case, size)
            for other, least in (("deltasql-rewriting", 3), ("delta-spark-vectors", 1)):
                theirs = results.value("vectors", other, case, size)
                promise = f"{case}, {size:,} rows: faster than {other}"
                yield from faster(promise, ours, theirs, least)


def spark_checks(results: Results) -> Iterator[Check]:
    """Check Spark against plain Parquet and delta-spark in the same session."""
    for case, bound in (("scan", 1.05), ("append", 1.15)):
        for size in results.sizes("spark", case):
            ours = results.value("spark", "deltasql-sqlite", case, size)
            plain = results.value("spark", "parquet", case, size)
            yield from slower(f"{case}, {size:,} rows: over plain Parquet", ours, plain, bound)
    wanted = {"plan": 5, "plan filtered": 5, "small appends": 3, **dict.fromkeys(_CHANGES, 1)}
    for case, least in wanted.items():
        for size in results.sizes("spark", case):
            ours = results.value("spark", "deltasql-sqlite", case, size)
            other = results.value("spark", "delta-spark", case, size)
            yield from faster(f"{case}, {size:,}: faster than delta-spark", ours, other, least)
    yield from _catalog_checks(results)


def _catalog_checks(results: Results) -> Iterator[Check]:
    """Check the Spark catalog against deltasql's Python functions and delta-spark."""
    for case in ("scan", "append", "plan", "plan filtered", "small appends", *_CHANGES):
        for size in results.sizes("spark", case):
            ours = results.value("spark", "deltasql-catalog", case, size)
            python = results.value("spark", "deltasql-sqlite", case, size)
            other = results.value("spark", "delta-spark", case, size)
            promise = f"{case}, {size:,}: the catalog over the Python functions"
            yield from slower(promise, ours, python, 1.1)
            if case not in ("scan", "append"):
                promise = f"{case}, {size:,}: the catalog faster than delta-spark"
                yield from faster(promise, ours, other, 1)


def _ratio(promise: str, ours: float | None, other: float | None, bound: float) -> Iterator[Check]:
    if ours and other:
        detail = f"{ours:,.0f} against {other:,.0f}"
        yield Check(promise, ours / other, bound, at_most=False, detail=detail)
