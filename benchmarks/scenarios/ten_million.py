"""Measure operations on tables of up to ten million files; they create no data files."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from benchmarks.scale_process import Step
from benchmarks.scenarios.scale import fill, measured, new_catalog
from benchmarks.workload import ROWS_PER_FILE, predicates

if TYPE_CHECKING:
    from benchmarks.harness import Result
    from benchmarks.workspace import Workspace

TITLE = "Growth to ten million files"
BACKENDS = ("sqlite", "postgres")
SIZES = (100_000, 1_000_000, 10_000_000)
MOST_TO_VERIFY = 1_000_000  # it needs the list of all files in memory, several times
QUICK_SIZES = (1_000, 10_000)
DIRECTION = "files, up to ten million"


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Measure the same operations at each size, and remove each catalog after its measurement."""
    results: list[Result] = []
    for backend in BACKENDS:
        for size in QUICK_SIZES if quick else SIZES:
            contender = new_catalog(workspace, backend, tables=10)
            fill(contender, size)
            results += measured(contender, DIRECTION, size, _steps(size))
            if backend == "postgres":
                workspace.drop_database(contender.database)
            shutil.rmtree(contender.folder)
    return results


def _steps(size: int) -> list[Step]:
    by_name = {predicate.name: predicate.sql for predicate in predicates(size)}
    point = f"id = {size // 2 * ROWS_PER_FILE + 7}"
    steps = [
        Step("open", "open"),
        Step("plan, one file", "plan", point),
        Step("plan, one partition of 1,000", "plan", by_name["partition"]),
        Step("plan, one file in 1,000, clustered", "plan", by_name["clustered"]),
        Step("plan, one file in 1,000, unclustered", "plan", by_name["scattered"]),
        Step("commit of one file", "commit", 1),
        Step("transaction over ten tables", "commit", 10),
        Step("page of tables", "page of tables"),
        Step("page of files", "page of files"),
        Step("console: catalog, first page", "console", "/"),
        Step("list all files", "list all files", rounds=1),
        Step("publish all of it", "publish", rounds=1),
        Step("checkpoint", "checkpoint", rounds=1),
        Step("vacuum, dry run", "vacuum, dry run", rounds=1),
    ]
    if size <= MOST_TO_VERIFY:
        steps.append(Step("verify the log", "verify", rounds=1))
    return steps
