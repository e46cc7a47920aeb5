"""Measure commits of 100,000 files with statistics, until the table has a million live files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contenders import BACKENDS, deltalake, deltasql
from benchmarks.floors import DuckdbFloor, PostgresFloor, SqliteFloor
from benchmarks.harness import print_progress, result, timed
from benchmarks.workload import batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Contender, Result
    from benchmarks.workload import Facts
    from benchmarks.workspace import Workspace

TITLE = "Commits of many files"
FILES, STEPS = 100_000, 10
QUICK_FILES, QUICK_STEPS = 10_000, 2


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Commit in steps, contenders in turns.

    deltasql runs twice, because its first and last commits are compared.
    """
    files, steps = (QUICK_FILES, QUICK_STEPS) if quick else (FILES, STEPS)
    total = files * steps
    rates: dict[str, list[list[float]]] = {}
    backends: dict[str, str] = {}
    for peers in (True, False):
        everyone = _contenders(workspace, peers=peers)
        for contender in everyone:
            contender.create(1)
            backends[contender.name] = contender.backend
        for step in range(steps):
            print_progress(f"  commit {step + 1} of {steps}")
            facts = batch(step * files, files, total)
            for contender in everyone:
                rate = files / _commit(contender, facts)
                per_step = rates.setdefault(contender.name, [[] for _ in range(steps)])
                per_step[step].append(rate)
            workspace.settle()
        for contender in everyone:
            found = contender.count(0)
            if found != total:
                raise RuntimeError(f"{contender.name}: {total} files committed, {found} found")
            contender.close()
            workspace.datasets[contender.name, total] = contender
        if quick:
            break
    return [
        result(
            name,
            backends[name],
            values,
            case="bulk",
            size=(step + 1) * files,
            metric="throughput",
            unit="files/s",
        )
        for name, per_step in rates.items()
        for step, values in enumerate(per_step)
    ]


def _commit(contender: Contender, facts: Sequence[Facts]) -> float:
    native = contender.native(facts)
    return timed(lambda: contender.commit(0, native))


def _contenders(workspace: Workspace, *, peers: bool) -> list[Contender]:
    everyone: list[Contender] = []
    for backend in BACKENDS:
        everyone.append(deltasql(workspace, backend))
    if peers:
        everyone += [
            SqliteFloor(workspace.new_folder("floor-sqlite")),
            PostgresFloor(workspace.new_database()),
            DuckdbFloor(workspace.new_folder("floor-duckdb")),
            deltalake(workspace),
        ]
    return everyone
