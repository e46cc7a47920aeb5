"""Measure the deltalake API: small and large appends, merges, deletes, updates and scans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa

import deltasql
from benchmarks import contenders
from benchmarks.harness import interleave, print_progress, result, timed
from benchmarks.many_files import scanners
from benchmarks.rows import DeltaRows, DuckLakeRows, merge_source, rows
from benchmarks.rows_process import Work, measure
from benchmarks.scenarios.commit import Runner
from benchmarks.workload import SCHEMA
from deltasql.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.harness import Contender, Result
    from benchmarks.ours import Deltasql
    from benchmarks.peers import Deltalake
    from benchmarks.workspace import Workspace

TITLE = "The API: rows in, rows changed, rows out"
COMMITS, QUICK_COMMITS = (0, 10_000), (0, 20)
APPENDED, QUICK_APPENDED = 10_000_000, 100_000
ROWS, QUICK_ROWS = 5_000_000, 64_000
SOURCE, QUICK_SOURCE = 100_000, 2_000
FILES = 16
SMALL_ROWS, QUICK_SMALL_ROWS = (1_000, 10_000, 64_000, 100_000), (1_000,)
SMALL_SOURCE = 1_000
SCANNED_FILES, QUICK_SCANNED_FILES = 10_000, 200
TINY = pa.table({"day": ["d0000"] * 3, "id": [1, 2, 3], "code": [4, 5, 6], "amount": [0.5] * 3})


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Measure small appends and scans in this process, and large operations in separate ones."""
    results = _tiny_appends(workspace, quick=quick)
    results += _large_appends(workspace, quick=quick)
    results += _changes(workspace, quick=quick)
    results += _small_changes(workspace, quick=quick)
    return results + _scans(workspace, quick=quick)


def _close_catalogs() -> None:
    # Import it here, because `benchmarks.before_after` runs parts of this module with 0.1.0, in
    # which `connect` has another module name.
    from deltasql.api.catalog.connect import close_all

    close_all()


def _tiny_appends(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Append three rows: write, commit and publish them."""
    everyone: list[Contender] = [contenders.deltalake(workspace)]
    for backend in ("sqlite", "postgres"):
        everyone.append(contenders.deltasql(workspace, backend, mirror="sync"))
        everyone.append(contenders.ducklake(workspace, backend))
        everyone.append(contenders.ducklake(workspace, backend, "parquet"))
    runners = [Runner(contender) for contender in everyone]
    appends = {r.contender.name: _tiny_append(r.contender) for r in runners}
    results = []
    for size in QUICK_COMMITS if quick else COMMITS:
        taking_part = [r for r in runners if r.contender.max_commits >= size]
        for runner in taking_part:
            runner.advance_to(size)
        calls = {r.contender.name: appends[r.contender.name] for r in taking_part}
        backends = {r.contender.name: r.contender.backend for r in taking_part}
        calls["deltalake-handle"] = _append_to_open_table(runners[0].contender)
        backends["deltalake-handle"] = "path"
        for call in calls.values():
            call()  # imports the modules that the first write needs
        workspace.settle()
        samples = interleave(calls, rounds=2 if quick else 8, per_round=4 if quick else 15)
        results += [
            _latency(name, backends[name], "tiny append", size, seconds)
            for name, seconds in samples.items()
        ]
    for runner in runners:
        runner.contender.close()
    _close_catalogs()
    return results


def _tiny_append(contender: Contender) -> Callable[[], float]:
    small = TINY.cast(SCHEMA)
    if contender.name.startswith("ducklake"):
        connection: Any = contender.connection  # type: ignore[attr-defined]
        connection.register("tiny", small)
        return lambda: timed(lambda: connection.execute("INSERT INTO lake.t0 SELECT * FROM tiny"))
    if contender.name == "deltalake":
        stock: Deltalake = contender  # type: ignore[assignment]
        path = stock.path(0)
        return lambda: timed(lambda: deltalake.write_deltalake(path, small, mode="append"))
    ours: Deltasql = contender  # type: ignore[assignment]
    uri = table_uri(ours.uri)
    return lambda: timed(lambda: deltasql.write_deltalake(uri, small, mode="append"))


def _append_to_open_table(contender: Contender) -> Callable[[], float]:
    """Return an append of deltalake to an open table, which does not need a replay of the log."""
    stock: Deltalake = contender  # type: ignore[assignment]
    table = deltalake.DeltaTable(stock.path(0))
    small = TINY.cast(SCHEMA)

    def append() -> float:
        table.update_incremental()  # there are newer commits; not timed
        return timed(lambda: deltalake.write_deltalake(table, small, mode="append"))

    return append


def table_uri(catalog: str, name: str = "t0") -> str:
    """Return the URI of a table of a catalog."""
    return parse_uri(catalog).with_table(name).to_string()


def _large_appends(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Append many rows at once to a new table, each time in a separate process."""
    count = QUICK_APPENDED if quick else APPENDED
    rates: dict[str, list[float]] = {}
    backends: dict[str, str] = {}
    for number in range(1 if quick else 3):
        print_progress(f"  append of {count:,} rows, round {number + 1}")
        for system in (_ours(workspace), _stock(workspace), _lake(workspace)):
            measurement = measure(Work(system, {"append": (count,)}))
            _check(system.name, measurement.sums["append"][0], count)
            rates.setdefault(system.name, []).append(count / measurement.seconds["append"])
            backends[system.name] = system.backend
    return [
        result(
            name,
            backends[name],
            values,
            case="large append",
            size=count,
            metric="throughput",
            unit="rows/s",
        )
        for name, values in rates.items()
    ]


def _changes(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Merge into, delete from and update the same table, and restore it after each operation."""
    count = QUICK_ROWS if quick else ROWS
    systems = [_ours(workspace), _stock(workspace)]
    for system in systems:
        print_progress(f"  {system.name}: {count:,} rows in {FILES} files")
        for number in range(FILES):
            system.append(rows(number * (count // FILES), count // FILES))
    _close_catalogs()
    samples: dict[tuple[str, str], list[float]] = {}
    peaks: dict[str, list[float]] = {system.name: [] for system in systems}
    for system in systems:
        measure(Work(system, {}))  # compiles the modules that are imported
    for number in range(1 if quick else 7):
        print_progress(f"  merge, delete, update, round {number + 1}")
        found: dict[str, dict[str, list[float]]] = {}
        for system in systems:
            merged = measure(
                Work(system, {"merge": (count, QUICK_SOURCE if quick else SOURCE)}, FILES - 1)
            )
            others = measure(Work(system, _dml_steps(count), FILES - 1))
            for measurement in (merged, others):
                for case, seconds in measurement.seconds.items():
                    samples.setdefault((system.name, case), []).append(seconds)
            peaks[system.name].append(merged.peak_mb)
            found[system.name] = merged.sums | others.sums
        _agree(found)
    backends = {system.name: system.backend for system in systems}
    results = [
        _latency(name, backends[name], case, count, seconds)
        for (name, case), seconds in samples.items()
    ]
    return results + [
        result(
            name,
            backends[name],
            values,
            case="merge memory",
            size=count,
            metric="memory",
            unit="MB",
        )
        for name, values in peaks.items()
    ]


def _small_changes(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Merge, update and delete a few rows of small tables, in a running process."""
    results: list[Result] = []
    for size in QUICK_SMALL_ROWS if quick else SMALL_ROWS:
        print_progress(f"  small merge, update, delete, {size:,} rows")
        systems = [_ours(workspace), _stock(workspace)]
        for system in systems:
            system.append(rows(0, size))
        source = merge_source(size, min(SMALL_SOURCE, size // 5))
        for case in ("small merge", "small update", "small delete"):
            calls = {system.name: _small_change(system, case, size, source) for system in systems}
            for call in calls.values():
                call()  # imports the modules that the first change needs
            samples = interleave(calls, rounds=2 if quick else 9, per_round=1)
            results += [
                _latency(system.name, system.backend, case, size, samples[system.name])
                for system in systems
            ]
        _agree({system.name: {"small": list(system.sum())} for system in systems})
    _close_catalogs()
    return results


def _small_change(system: DeltaRows, case: str, size: int, source: pa.Table) -> Callable[[], float]:
    """Return a change that can be repeated; every call changes another row."""
    ids = iter(range(size // 2, size))
    changes: dict[str, Callable[[], object]] = {
        "small merge": lambda: system.merge(source),
        "small update": lambda: system.update(f"id = {next(ids)}"),
        "small delete": lambda: system.delete(f"id = {next(ids)}"),
    }
    return lambda: timed(changes[case])


def _dml_steps(count: int) -> dict[str, tuple[Any, ...]]:
    """Return deletes and updates of 1 % of the rows: of a range, and spread over the table."""
    low, high = count // 2, count // 2 + count // 100 - 1
    side_by_side, spread = f"id >= {low} AND id <= {high}", "id % 100 = 7"
    return {
        "delete range": (side_by_side,),
        "delete spread": (spread,),
        "update range": (side_by_side,),
        "update spread": (spread,),
    }


def _scans(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Open a table of many files and read the rows of 1 % of the files."""
    files = QUICK_SCANNED_FILES if quick else SCANNED_FILES
    everyone = scanners(workspace, files)
    calls = {scanner.name: scanner.one for scanner in everyone}
    for call in calls.values():
        call()
    samples = interleave(calls, rounds=2 if quick else 5, per_round=1)
    for scanner in everyone:
        scanner.close()
    _close_catalogs()
    return [
        _latency(each.name, each.backend, "scan", files, samples[each.name]) for each in everyone
    ]


def _latency(name: str, backend: str, case: str, size: int, seconds: list[float]) -> Result:
    millis = [s * 1000 for s in seconds]
    return result(name, backend, millis, case=case, size=size, metric="latency", unit="ms")


def _agree(found: dict[str, dict[str, list[float]]]) -> None:
    """Fail unless all systems have the same rows at the end."""
    (name, sums), *others = found.items()
    for other, its in others:
        for case, (count, amount) in sums.items():
            if its[case][0] != count or abs(its[case][1] - amount) > 1e-6 * abs(amount):
                raise RuntimeError(f"{case}: {name} has {sums[case]}, {other} {its[case]}")


def _check(name: str, found: float, wanted: float) -> None:
    if found != wanted:
        raise RuntimeError(f"{name}: {wanted} rows written, {found} found")


def _ours(workspace: Workspace) -> DeltaRows:
    folder = workspace.new_folder("rows-sqlite")
    return DeltaRows(
        "deltasql-sqlite-sync", "sqlite", f"deltasql://sqlite/{folder}/meta.db?table=t0&mirror=sync"
    )


def _stock(workspace: Workspace) -> DeltaRows:
    return DeltaRows("deltalake", "path", str(workspace.new_folder("rows-deltalake") / "t0"))


def _lake(workspace: Workspace) -> DuckLakeRows:
    return DuckLakeRows(workspace.new_folder("rows-ducklake"))
