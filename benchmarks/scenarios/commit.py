"""Measure a commit of one staged file, and a cold open, after 0 to 100,000 commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cold import Request, measure
from benchmarks.contenders import BACKENDS, deltalake, deltasql, ducklake, floors
from benchmarks.harness import interleave, print_progress, result, timed
from benchmarks.workload import stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.harness import Contender, Result
    from benchmarks.workload import Facts
    from benchmarks.workspace import Workspace

TITLE = "Commit of one staged file"
SIZES = (0, 1_000, 10_000, 100_000)
QUICK_SIZES = (0, 50)
# Measured in turns with the tables that have many commits, under the same conditions.
NEW = "new table"
OPENERS = ("deltasql-sqlite", "deltasql-postgres", "deltalake")


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Measure all contenders in turns at each size, then commit up to the next size."""
    runners = [Runner(c) for c in _contenders(workspace, quick=quick)]
    results: list[Result] = []
    for size in QUICK_SIZES if quick else SIZES:
        taking_part = [r for r in runners if r.contender.max_commits >= size]
        for runner in taking_part:
            runner.advance_to(size)
        new = [Runner(deltasql(workspace, b)) for b in BACKENDS if _has_part(b, taking_part, size)]
        workspace.settle()
        calls: dict[str, Callable[[], float]] = {r.contender.name: r.one for r in taking_part}
        calls |= {f"{r.contender.name} {NEW}": r.one for r in new}
        samples = interleave(calls, rounds=2 if quick else 6, per_round=8 if quick else 25)
        for runner in taking_part:
            millis = [s * 1000 for s in samples[runner.contender.name]]
            results.append(_latency(runner.contender, millis, "commit", size))
        for runner in new:
            millis = [s * 1000 for s in samples[f"{runner.contender.name} {NEW}"]]
            results.append(_latency(runner.contender, millis, NEW, size))
            runner.contender.close()
        # A second process cannot open the DuckDB file of a process that commits to it.
        openers = [r for r in taking_part if r.contender.name in OPENERS]
        opens: dict[str, list[float]] = {r.contender.name: [] for r in openers}
        for _ in range(1 if quick else 5):
            for runner in openers:
                measurement = measure(Request(runner.contender.unconnected(), "open"))
                opens[runner.contender.name].append(measurement.open_seconds * 1000)
        for runner in openers:
            millis = opens[runner.contender.name]
            results.append(_latency(runner.contender, millis, "open", size))
    for runner in runners:
        found = runner.contender.count(0)
        if found != runner.commits:
            raise RuntimeError(f"{runner.contender.name}: {runner.commits} commits, {found} found")
        runner.contender.close()
    return results


def _has_part(backend: str, runners: list[Runner], size: int) -> bool:
    """Return whether deltasql on this backend is measured at this size; False at size 0."""
    return size > 0 and f"deltasql-{backend}" in {r.contender.name for r in runners}


def _latency(contender: Contender, millis: list[float], case: str, size: int) -> Result:
    return result(
        contender.name,
        contender.backend,
        millis,
        case=case,
        size=size,
        metric="latency",
        unit="ms",
    )


class Runner:
    """A contender and the number of its commits."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self.commits = 0
        self._files: Iterator[Facts] = stream()
        contender.create(1)
        for _ in range(3):  # the first commits import modules and warm up caches
            self.one()

    def one(self) -> float:
        """Commit the next file and return the seconds."""
        native = self.contender.native([next(self._files)])
        self.commits += 1
        return timed(lambda: self.contender.commit(0, native))

    def next_files(self, commits: int) -> list[Facts]:
        """Return the files of the next commits, which another process runs."""
        files = [next(self._files) for _ in range(commits)]
        self.commits += len(files)
        return files

    def advance_to(self, size: int) -> None:
        """Commit until there are `size` commits; not timed."""
        missing = size - self.commits
        if missing > 0:
            print_progress(f"  {self.contender.name}: on to {size:,} commits")
            self.contender.advance(0, [next(self._files) for _ in range(missing)])
            self.commits += missing


def _contenders(workspace: Workspace, *, quick: bool) -> list[Contender]:
    everyone: list[Contender] = []
    for backend in BACKENDS:
        everyone.append(deltasql(workspace, backend))
    everyone += floors(workspace)
    everyone.append(deltalake(workspace))
    for backend in BACKENDS:
        everyone.append(ducklake(workspace, backend))
        everyone.append(ducklake(workspace, backend, "parquet"))
        if not quick:
            everyone.append(ducklake(workspace, backend, "addfile"))
    return everyone
