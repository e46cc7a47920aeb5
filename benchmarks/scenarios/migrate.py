"""Measure importing a log, compared with the time in which deltalake opens the same table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import cold, import_process
from benchmarks.contenders import BACKENDS, deltasql
from benchmarks.harness import print_progress, result
from benchmarks.import_logs import many_commits, one_checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Result
    from benchmarks.peers import Deltalake
    from benchmarks.workspace import Workspace

TITLE = "Import a log"
FILES, COMMITS, CHECKPOINT_FILES = 100_000, 5_000, 1_000_000
QUICK_FILES, QUICK_COMMITS, QUICK_CHECKPOINT_FILES = 4_000, 200, 20_000


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Import each log into a new catalog, backends in turns."""
    files, commits = (QUICK_FILES, QUICK_COMMITS) if quick else (FILES, COMMITS)
    large = QUICK_CHECKPOINT_FILES if quick else CHECKPOINT_FILES
    results = _measure(workspace, "commits", many_commits(files, commits), files, 1 if quick else 5)
    results += _measure(workspace, "checkpoint", one_checkpoint(large), large, 1 if quick else 3)
    return results


def _measure(
    workspace: Workspace, case: str, stock: Deltalake, size: int, rounds: int
) -> list[Result]:
    opened: list[cold.Measurement] = []
    loaded: dict[str, list[import_process.Measurement]] = {name: [] for name in BACKENDS}
    for _ in range(rounds):
        opened.append(cold.measure(cold.Request(stock.unconnected(), "open")))
        for backend in BACKENDS:
            loaded[backend].append(_import(workspace, backend, stock, size))
    results = _results(
        "deltalake",
        "path",
        case,
        size,
        [each.open_seconds for each in opened],
        [each.peak_mb for each in opened],
    )
    for backend, measurements in loaded.items():
        seconds = [each.seconds for each in measurements]
        peaks = [each.peak_mb for each in measurements]
        results += _results(f"deltasql-{backend}", backend, case, size, seconds, peaks)
    return results


def _results(
    name: str, backend: str, case: str, size: int, seconds: Sequence[float], peaks: Sequence[float]
) -> list[Result]:
    rates = [size / each for each in seconds]
    times = [each * 1000 for each in seconds]
    return [
        result(name, backend, rates, case=case, size=size, metric="throughput", unit="files/s"),
        result(name, backend, times, case=f"{case} time", size=size, metric="latency", unit="ms"),
        result(name, backend, peaks, case=f"{case} memory", size=size, metric="memory", unit="MB"),
    ]


def _import(
    workspace: Workspace, backend: str, stock: Deltalake, size: int
) -> import_process.Measurement:
    catalog = deltasql(workspace, backend)
    print_progress(f"  {size:,} files into {catalog.name}")
    workspace.settle()
    source = str(stock.folder / "t0")
    measurement = import_process.measure(import_process.Request(source, catalog.uri))
    if measurement.files != size:
        raise RuntimeError(f"{catalog.name}: {size} files in the log, {measurement.files} in SQL")
    return measurement
