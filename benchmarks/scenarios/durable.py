"""Measure durable publishing: flushes per commit, and commits on a disk with slow flushes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.power.disk import compile_recorder

from benchmarks.contenders import deltalake, deltasql
from benchmarks.durable_process import WARM, Request, count_flushes, measure
from benchmarks.harness import result
from benchmarks.scenarios.commit import Runner

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.harness import Contender, Result
    from benchmarks.workspace import Workspace

TITLE = "Durable publishing: flushes, and a disk that takes 5 ms longer for each"
SIZE, QUICK_SIZE = 10_000, 50
COMMITS = 200
FEW_COMMITS = 20  # for deltalake, whose commits take a third of a second at this size
ROUNDS, QUICK_ROUNDS = 3, 2
WAIT_MS = 5
# PostgreSQL flushes in its own processes, which the preloaded library can neither count nor delay.
MODES = ("off", "async", "sync")


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Commit to tables of one size, contenders in turns, each time in a separate process."""
    library = compile_recorder(workspace.new_folder("recorder"))
    size = QUICK_SIZE if quick else SIZE
    everyone: list[Contender] = [deltalake(workspace)]
    everyone += [deltasql(workspace, "sqlite", mirror=mode) for mode in MODES]
    runners = [Runner(contender) for contender in everyone]
    for runner in runners:
        runner.advance_to(size)
        runner.contender.close()
    workspace.settle()
    rates: dict[tuple[str, str], list[float]] = {}
    for _ in range(QUICK_ROUNDS if quick else ROUNDS):
        for runner in runners:
            commits = _commits(runner.contender, quick=quick)
            for case, wait_ms in (("commits", 0), ("slow flushes", WAIT_MS)):
                seconds = measure(_request(runner, commits), library, wait_ms)
                rates.setdefault((runner.contender.name, case), []).append(commits / seconds)
    results = []
    for runner in runners:
        contender = runner.contender
        commits = _commits(contender, quick=quick)
        for case in ("commits", "slow flushes"):
            results.append(_row(contender, rates[contender.name, case], case, size, "commits/s"))
        flushes = count_flushes(_request(runner, commits), library, _folder(contender))
        results.append(_row(contender, [flushes / commits], "flushes", size, "per commit"))
        contender.connect()
        found = contender.count(0)
        contender.close()
        if found != runner.commits:
            raise RuntimeError(f"{contender.name}: {runner.commits} commits, {found} found")
    return results


def _commits(contender: Contender, *, quick: bool) -> int:
    if quick or contender.name == "deltalake":
        return FEW_COMMITS
    return COMMITS


def _request(runner: Runner, commits: int) -> Request:
    return Request(runner.contender.unconnected(), runner.next_files(WARM + commits))


def _folder(contender: Contender) -> Path:
    folder: Path = contender.folder  # type: ignore[attr-defined]
    return folder


def _row(contender: Contender, values: list[float], case: str, size: int, unit: str) -> Result:
    return result(
        contender.name,
        contender.backend,
        values,
        case=case,
        size=size,
        metric="throughput" if unit == "commits/s" else "count",
        unit=unit,
    )
