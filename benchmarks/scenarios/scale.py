"""Measure the same operations on ten times as many files, commits, tables and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltasql
from benchmarks.contenders import deltasql as ours
from benchmarks.datasets import FILES_PER_COMMIT
from benchmarks.harness import print_progress, result
from benchmarks.scale_process import Request, Step, measure
from benchmarks.workload import ROWS_PER_FILE, SCHEMA, batch, facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.harness import Result
    from benchmarks.ours import Deltasql
    from benchmarks.workspace import Workspace

TITLE = "Growth: files, commits, tables, tables in a transaction, partitions"
BACKENDS = ("sqlite", "postgres", "duckdb")
# Small commits are slowest on DuckDB: creating more data would take too long.
FILES = {"sqlite": 1_000_000, "postgres": 1_000_000, "duckdb": 100_000}
COMMITS = {"sqlite": 100_000, "postgres": 100_000, "duckdb": 1_000}
TABLES = {"sqlite": 10_000, "postgres": 10_000, "duckdb": 1_000}
PARTITIONS = {"sqlite": 1_000, "postgres": 1_000, "duckdb": 100}
QUICK = 100  # the divisor of all sizes in a quick run
TABLES_AT_ONCE = (1, 10, 100)
DAYS = 1000  # partitions of the table of many files
_KEPT = "scale-{}"


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Grow catalogs in every dimension, and measure at each size."""
    results: list[Result] = []
    for backend in BACKENDS:
        share = QUICK if quick else 1
        for grow, most in (
            (_files, FILES),
            (_commits, COMMITS),
            (_tables, TABLES),
            (_partitions, PARTITIONS),
        ):
            results += grow(workspace, backend, max(10, most[backend] // share))
    return results


def _sizes(first: int, last: int) -> list[int]:
    """Return sizes from `first` to `last` in steps of a factor of ten.

    >>> _sizes(1000, 100_000)
    [1000, 10000, 100000]
    """
    found = [last]
    while found[0] > first:
        found.insert(0, found[0] // 10)
    return found


def _files(workspace: Workspace, backend: str, most: int) -> Iterator[Result]:
    """Measure one table with 1,000 partitions, from which 1 % of the files was removed."""
    for size in _sizes(min(1000, most), most):
        contender = new_catalog(workspace, backend, tables=1)
        fill(contender, size)
        middle = size // 2 * ROWS_PER_FILE
        span = max(1, size // 1000) * ROWS_PER_FILE
        day = facts(size // 2, size).day
        steps = [
            Step("open", "open"),
            Step("plan, one partition", "plan", f"day = '{day}'"),
            Step("plan, a range", "plan", f"id BETWEEN {middle} AND {middle + span - 1}"),
            Step("list all files", "list all files"),
            Step("page of files", "page of files"),
            Step("commit of one file", "commit", 1),
            Step("publish all of it", "publish", rounds=1),
            Step("checkpoint", "checkpoint", rounds=1),
            Step("vacuum, dry run", "vacuum, dry run"),
            Step("vacuum of one file in 100", "vacuum", rounds=1),
            Step("console: catalog, first page", "console", "/"),
            Step("console: catalog, added up", "console", "/?part=1"),
            Step("console: table", "console", "/tables/t0"),
            Step("console: figures of the table", "console", "/tables/t0/figures"),
            Step("console: files", "console", "/tables/t0/files"),
        ]
        yield from measured(contender, "files", size, steps)
        workspace.datasets[_KEPT.format(backend), size] = contender


def _commits(workspace: Workspace, backend: str, most: int) -> Iterator[Result]:
    """Measure one table with one file per commit."""
    contender = new_catalog(workspace, backend, tables=1)
    done = 0
    for size in _sizes(min(1000, most), most):
        print_progress(f"  {contender.name}: {size:,} commits")
        contender.connect()
        for number in range(done, size):
            contender.commit(0, contender.native([facts(number, most)]))
        with deltasql.connect(contender.uri) as catalog:
            middle = catalog.inspect.history("t0", limit=min(10_000, size // 2)).next
        contender.close()
        done = size
        steps = [
            Step("open", "open"),
            Step("open the version in the middle", "open", size // 2),
            Step("commit of one file", "commit", 1),
            Step("history, first page", "history page"),
            Step("history, a page far down", "history page", middle),
            Step("vacuum, dry run", "vacuum, dry run"),
            Step("console: history", "console", "/tables/t0/history"),
        ]
        yield from measured(contender, "commits", size, steps)


def _tables(workspace: Workspace, backend: str, most: int) -> Iterator[Result]:
    """Measure a catalog of many tables with one file each."""
    contender = new_catalog(workspace, backend, tables=0)
    done = 0
    for size in _sizes(10, most):
        print_progress(f"  {contender.name}: {size:,} tables")
        with deltasql.connect(contender.uri) as catalog:
            for first in range(done, size, 1000):
                with catalog.begin() as tx:
                    for number in range(first, min(first + 1000, size)):
                        place = str(contender.folder / "data" / f"t{number}")
                        tx.create_table(f"t{number}", SCHEMA, partition_by="day", location=place)
        done = size
        steps = [
            Step("open", "open"),
            Step("commit of one file", "commit", 1),
            Step("create a table", "create a table"),
            Step("list tables", "list tables"),
            Step("page of tables", "page of tables"),
            Step("console: catalog", "console", "/"),
        ]
        yield from measured(contender, "tables", size, steps)
    for tables in [each for each in TABLES_AT_ONCE if each <= most]:
        steps = [Step("one transaction", "commit", tables)]
        yield from measured(contender, "tables in a transaction", tables, steps)


def _partitions(workspace: Workspace, backend: str, most: int) -> Iterator[Result]:
    """Measure one table with as many partitions as there are files in each partition."""
    for size in _sizes(min(10, most), most):
        made = workspace.datasets.get((_KEPT.format(backend), size * size))
        if size == DAYS and made is not None:
            contender: Deltasql = made  # type: ignore[assignment]
        else:
            contender = new_catalog(workspace, backend, tables=1)
            fill(contender, size * size, partitions=size)
        low, high = f"d{size // 2:04d}", f"d{size // 2 + max(1, size // 100) - 1:04d}"
        steps = [
            Step("plan, one partition", "plan", f"day = '{low}'"),
            Step("plan, one in 100 partitions", "plan", f"day BETWEEN '{low}' AND '{high}'"),
            Step("commit of one file", "commit", 1),
            Step("console: figures of the table", "console", "/tables/t0/figures"),
        ]
        yield from measured(contender, "partitions x files", size, steps)


def new_catalog(workspace: Workspace, backend: str, *, tables: int) -> Deltasql:
    """Create a catalog with empty tables."""
    contender: Deltasql = ours(workspace, backend)  # type: ignore[assignment]
    contender.create(tables)
    contender.close()
    return contender


def fill(contender: Deltasql, files: int, partitions: int | None = None) -> None:
    """Commit files, 100,000 at a time, and remove 1 % of them."""
    print_progress(f"  {contender.name}: {files:,} files")
    contender.connect()
    for first in range(0, files, FILES_PER_COMMIT):
        given = batch(first, min(FILES_PER_COMMIT, files - first), files)
        if partitions is not None:
            given = [
                each._replace(day=f"d{number * partitions // files:04d}")
                for number, each in enumerate(given, first)
            ]
        contender.commit(0, contender.native(given))
    contender.close()
    gone = [deltasql.RemoveFile(facts(each, files).path) for each in range(0, files, 100)]
    with deltasql.connect(contender.uri) as catalog, catalog.begin() as tx:
        tx.stage_table("t0", gone, operation="DELETE")


def measured(
    contender: Deltasql, direction: str, size: int, steps: Sequence[Step]
) -> Iterator[Result]:
    """Run the operations in a new process."""
    print_progress(f"  {contender.name}: measuring at {size:,} {direction}")
    measurements = measure(Request(contender.unconnected(), steps))
    for step, measurement in zip(steps, measurements, strict=True):
        yield result(
            contender.name,
            contender.backend,
            measurement.cpu_ms,
            case=f"{direction}: {step.name}",
            size=size,
            metric="cpu",
            unit="ms",
            wall_ms=round(sorted(measurement.wall_ms)[len(measurement.wall_ms) // 2], 3),
            statements=measurement.statements,
            peak_mb=round(measurement.peak_mb, 1),
            start_mb=round(measurement.start_mb, 1),
            load=round(measurement.load, 2),
        )
