"""Measure commits of 100,000 files with statistics, and registering existing Parquet files."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.contenders import BACKENDS, deltalake, deltasql, ducklake
from benchmarks.datasets import parquet_files
from benchmarks.floors import DuckdbFloor, PostgresFloor, SqliteFloor
from benchmarks.harness import print_progress, result, timed
from benchmarks.peers import Deltalake
from benchmarks.workload import batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Contender, Result
    from benchmarks.workload import Facts
    from benchmarks.workspace import Workspace

TITLE = "Commits of many files"
FILES, STEPS = 100_000, 10
QUICK_FILES, QUICK_STEPS = 10_000, 2
REGISTERED, QUICK_REGISTERED = (1_000, 10_000), (1_000,)


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Commit files in steps, then register existing files."""
    registered = QUICK_REGISTERED if quick else REGISTERED
    return [
        *_commits(workspace, quick=quick),
        *(each for size in registered for each in _registrations(workspace, size, quick=quick)),
    ]


def _commits(workspace: Workspace, *, quick: bool) -> list[Result]:
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


def _registrations(workspace: Workspace, size: int, *, quick: bool) -> list[Result]:
    """Register the same files in new tables, contenders in turns.

    Every system reads the statistics from the footers of the files.
    """
    folder = parquet_files(size)
    rates: dict[tuple[str, str], list[float]] = {}
    for _ in range(1 if quick else 3):
        # deltasql refuses a folder that has a log, which deltalake writes.
        shutil.rmtree(folder / "_delta_log", ignore_errors=True)
        everyone: list[Contender] = [
            *(deltasql(workspace, backend) for backend in BACKENDS),
            *(ducklake(workspace, backend) for backend in BACKENDS),
            Deltalake(folder.parent),
        ]
        for contender in everyone:
            print_progress(f"  register {size:,} files: {contender.name}")
            contender.create(0)
            rate = size / timed(partial(contender.register, folder))
            rates.setdefault((contender.name, contender.backend), []).append(rate)
            found = contender.list_files(contender.reopen(None))
            contender.close()
            if found != size:
                raise RuntimeError(f"{contender.name} registered {found} of {size} files")
    return [
        result(
            name, backend, values, case="register", size=size, metric="throughput", unit="files/s"
        )
        for (name, backend), values in rates.items()
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
