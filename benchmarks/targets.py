"""The performance targets of deltasql, checked against the results of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.checks import Check, Results, faster, slower
from benchmarks.row_targets import api_checks, spark_checks, vector_checks
from benchmarks.scenarios.start_up import STARTS

if TYPE_CHECKING:
    from collections.abc import Iterator

BACKENDS = ("sqlite", "postgres", "duckdb")
SERVERS = ("sqlite", "postgres")


def checks(results: Results) -> dict[str, list[Check]]:
    """Check every target for which this run has results, by scenario."""
    return {
        "start_up": list(_start_up(results)),
        "commit": list(_commit(results)),
        "ten_tables": list(_ten_tables(results)),
        "bulk": list(_bulk(results)),
        "open": list(_open(results)),
        "plan": list(_plan(results)),
        "concurrency": list(_concurrency(results)),
        "mirror": list(_mirror(results)),
        "durable": list(_durable(results)),
        "import": list(_import(results)),
        "api": list(api_checks(results)),
        "spark": list(spark_checks(results)),
        "vectors": list(vector_checks(results)),
    }


def _start_up(results: Results) -> Iterator[Check]:
    for start in STARTS:
        ours = results.value("start_up", "deltasql-sqlite", start.name, 1)
        imports = results.value("start_up", "imports", start.name, 1)
        promise = f"{start.name}: CPU time over `import {start.imports}`"
        yield from slower(promise, ours, imports, start.limit)


def _commit(results: Results) -> Iterator[Check]:
    sizes = results.sizes("commit", "commit")
    if not sizes:
        return
    ten_thousand = 10_000 if 10_000 in sizes else sizes[-1]
    for backend, bound in (("sqlite", 8.0), ("postgres", 6.0)):
        for size in sizes:
            ours = results.value("commit", f"deltasql-{backend}", "commit", size)
            floor = results.value("commit", f"floor-{backend}", "commit", size)
            yield from slower(
                f"{backend}, {size:,} commits: p50 over the floor's", ours, floor, bound
            )
    for backend in BACKENDS:
        ours = results.value("commit", f"deltasql-{backend}", "commit", ten_thousand)
        stock = results.value("commit", "deltalake", "commit", ten_thousand)
        promise = f"{backend}, {ten_thousand:,} commits: faster than deltalake"
        yield from faster(promise, ours, stock, 50)
    for backend in BACKENDS:
        last = max(
            (s for s in sizes if results.value("commit", f"deltasql-{backend}", "commit", s)),
            default=0,
        )
        ours = results.value("commit", f"deltasql-{backend}", "commit", last)
        new = results.value("commit", f"deltasql-{backend}", "new table", last)
        yield from slower(f"{backend}, {last:,} commits: p50 over p50 at 0", ours, new, 1.3)
    for backend in BACKENDS:
        for size in sizes:
            ours = results.value("commit", f"deltasql-{backend}", "commit", size)
            # Compare with the faster of DuckLake's two ways to insert a row.
            lake = _least(
                results.value("commit", f"ducklake-{backend}{style}", "commit", size)
                for style in ("", "-parquet")
            )
            yield from faster(f"{backend}, {size:,} commits: faster than DuckLake", ours, lake, 5)

    for backend in SERVERS:
        ours = results.value("commit", f"deltasql-{backend}", "open", sizes[-1])
        first = results.value("commit", f"deltasql-{backend}", "open", 0)
        yield from slower(f"{backend}: cold open at {sizes[-1]:,} commits over 0", ours, first, 1.3)


def _ten_tables(results: Results) -> Iterator[Check]:
    for backend in SERVERS:
        ours = results.value("ten_tables", f"deltasql-{backend}", "ten tables", 10)
        floor = results.value("ten_tables", f"floor-{backend}", "ten tables", 10)
        lake = _least(
            results.value("ten_tables", f"ducklake-{backend}{style}", "ten tables", 10)
            for style in ("", "-parquet")
        )
        yield from faster(f"{backend}: faster than DuckLake", ours, lake, 10)
        yield from slower(f"{backend}: p50 over the floor's", ours, floor, 8)


def _bulk(results: Results) -> Iterator[Check]:
    sizes = results.sizes("bulk", "bulk")
    for backend in SERVERS if sizes else ():
        name = f"deltasql-{backend}"
        rates = [results.value("bulk", name, "bulk", size) for size in sizes]
        known = [rate for rate in rates if rate is not None]
        if len(known) < len(sizes):
            continue
        slowest = min(known)
        yield Check(
            f"{backend}: files per second, the slowest of {len(known)} commits",
            slowest,
            60_000,
            at_most=False,
            detail=f"median {sorted(known)[len(known) // 2]:,.0f}",
            unit=" files/s",
        )
        yield Check(
            f"{backend}: time of the last commit over the first",
            known[0] / known[-1],
            1.3,
            at_most=True,
            detail=f"{known[0]:,.0f} → {known[-1]:,.0f} files/s",
        )


def _open(results: Results) -> Iterator[Check]:
    sizes = results.sizes("open", "open")
    for size in sizes:
        wanted = 300 if size >= 1_000_000 else 50
        for backend in BACKENDS:
            name = f"deltasql-{backend}"
            where = f"{backend}, {size:,} files"
            # The target was 3. Below a million files it is lower, because connecting with ADBC
            # takes a third of the time.
            list_cold = 1.5 if backend == "postgres" and size < 1_000_000 else 3
            for case, promise, bound in (
                ("open", "open, faster than deltalake", wanted),
                ("open again", "open again, faster than deltalake", wanted),
                ("list cold", "open and list cold, faster", list_cold),
                ("list warm", "open and list warm, faster than cold deltalake", 10),
            ):
                ours = results.value("open", name, case, size)
                stock_case = case if case.startswith("open") else "list cold"
                stock = results.value("open", "deltalake", stock_case, size)
                yield from faster(f"{where}: {promise}", ours, stock, bound)
            memory = results.value("open", name, "list memory", size)
            stock = results.value("open", "deltalake", "list memory", size)
            yield from slower(f"{where}: peak memory over deltalake's", memory, stock, 0.5, "MB")
    for backend in BACKENDS if len(sizes) > 1 else ():
        large = results.value("open", f"deltasql-{backend}", "open", sizes[-1])
        small = results.value("open", f"deltasql-{backend}", "open", sizes[0])
        promise = f"{backend}: open at {sizes[-1]:,} files over {sizes[0]:,}"
        yield from slower(promise, large, small, 1.3)


def _plan(results: Results) -> Iterator[Check]:
    for case in ("partition", "clustered"):
        for size in results.sizes("plan", case):
            for backend, bound in (("sqlite", 100), ("postgres", 100), ("duckdb", 20)):
                ours = results.value("plan", f"deltasql-{backend}", case, size)
                stock = results.value("plan", "deltalake", case, size)
                lake = results.value("plan", f"ducklake-{backend}", case, size)
                where = f"{backend}, by {case}, {size:,} files"
                yield from faster(f"{where}: faster than deltalake", ours, stock, bound)
                if backend != "duckdb":
                    yield from faster(f"{where}: faster than DuckLake", ours, lake, 1)


def _concurrency(results: Results) -> Iterator[Check]:
    for case, backend, floor, share in (
        ("one PostgreSQL table", "postgres", "floor-postgres-rowlock", 0.5),
        ("16 PostgreSQL tables", "postgres", "floor-postgres-rowlock", 0.5),
        # The target was 0.5 before the queue was simplified (decision 2).
        ("one SQLite file", "sqlite", "floor-sqlite", 0.4),
    ):
        for size in results.sizes("concurrency", case):
            row = results.row("concurrency", f"deltasql-{backend}", case, size)
            if row is None:
                continue
            ours, extra = float(row["value"]), row["extra"]
            where = f"{size} processes, {case}"
            wrong = extra["failures"] + extra["gaps"] + abs(extra["lost"])
            detail = f"{extra['failures']} / {extra['gaps']} / {extra['lost']}"
            yield Check(
                f"{where}: failures, gaps and lost commits",
                wrong,
                0,
                at_most=True,
                detail=detail,
                unit="",
            )
            lake = results.value("concurrency", f"ducklake-{backend}", case, size)
            least = results.value("concurrency", floor, case, size)
            if lake:
                text = f"{ours:,.0f} against {lake:,.0f} commits/s"
                promise = f"{where}: commits/s over DuckLake's"
                yield Check(promise, ours / lake, 10, at_most=False, detail=text)
            if least:
                text = f"{ours:,.0f} against {least:,.0f} commits/s"
                promise = f"{where}: commits/s over the row-lock floor's"
                yield Check(promise, ours / least, share, at_most=False, detail=text)
            yield Check(
                f"{where}: slowest process over the fastest",
                extra["slowest_share"],
                1 / 3,
                at_most=False,
                detail=f"{extra['slowest']:.0f} and {extra['fastest']:.0f} commits",
            )


def _mirror(results: Results) -> Iterator[Check]:
    sizes = results.sizes("mirror", "commit")
    for backend in SERVERS if sizes else ():
        for size in sizes:
            alone = results.value("mirror", f"deltasql-{backend}", "commit", size)
            both = results.value("mirror", f"deltasql-{backend}-sync", "commit", size)
            where = f"{backend}, {size:,} commits"
            yield from slower(f"{where}: commit and publish over the commit alone", both, alone, 3)
        stock = results.value("mirror", "deltalake", "commit", sizes[-1])
        promise = f"{backend}, {sizes[-1]:,} commits: commit and publish faster than deltalake"
        yield from faster(promise, both, stock, 20)
        for row in results.rows("mirror", "drain"):
            if row["backend"] == backend:
                yield Check(
                    f"{backend}: versions per second that the reconciler drains",
                    row["value"],
                    500,
                    at_most=False,
                    detail=f"{row['size']:,} versions",
                    unit=" versions/s",
                )
        for row in results.rows("mirror", "lag"):
            if row["backend"] == backend:
                yield Check(
                    f"{backend}: lag at {row['size']} commits/s, 95th percentile",
                    row["extra"]["p95"],
                    1000,
                    at_most=True,
                    detail=f"median {row['value']:.0f} ms",
                    unit=" ms",
                )
    for size in results.sizes("mirror", "checkpoint"):
        for backend in SERVERS:
            ours = results.value("mirror", f"deltasql-{backend}", "checkpoint", size)
            stock = results.value("mirror", "deltalake", "checkpoint", size)
            where = f"{backend}, checkpoint of {size:,} files"
            yield from faster(f"{where}: faster than deltalake", ours, stock, 1)
            memory = results.value("mirror", f"deltasql-{backend}", "checkpoint memory", size)
            stock = results.value("mirror", "deltalake", "checkpoint memory", size)
            yield from slower(f"{where}: peak memory over deltalake's", memory, stock, 0.5, "MB")


def _durable(results: Results) -> Iterator[Check]:
    for size in results.sizes("durable", "commits"):
        stock = results.value("durable", "deltalake", "commits", size)
        for mode in ("sync", "async"):
            ours = results.value("durable", f"deltasql-sqlite-{mode}", "commits", size)
            if ours and stock:
                yield Check(
                    f"sqlite, {mode}, {size:,} commits: published commits/s over deltalake's",
                    ours / stock,
                    20,
                    at_most=False,
                    detail=f"{ours:,.0f} against {stock:,.1f} commits/s",
                )


def _import(results: Results) -> Iterator[Check]:
    for case in ("commits", "checkpoint"):
        for size in results.sizes("import", case):
            for backend in SERVERS:
                name, where = f"deltasql-{backend}", f"{backend}, {case}, {size:,} files"
                rate = results.value("import", name, case, size)
                if rate is not None:
                    yield Check(
                        f"{where}: files per second",
                        rate,
                        50_000,
                        at_most=False,
                        detail=f"{size / rate:.3g} s",
                        unit=" files/s",
                    )
                time, stock = (
                    results.value("import", each, f"{case} time", size)
                    for each in (name, "deltalake")
                )
                yield from slower(f"{where}: import over deltalake's open", time, stock, 10)
                if case == "checkpoint":
                    memory, stock = (
                        results.value("import", each, f"{case} memory", size)
                        for each in (name, "deltalake")
                    )
                    promise = f"{where}: peak memory over that of deltalake's open"
                    yield from slower(promise, memory, stock, 0.5, "MB")


def _least(values: Iterator[float | None]) -> float | None:
    return min((v for v in values if v is not None), default=None)
