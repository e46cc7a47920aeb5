"""Measure cold opens with planning: partition pruning and skipping down to 0.1 % of the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cold import Request, measure
from benchmarks.contenders import BACKENDS
from benchmarks.datasets import deltalake_table, deltasql_table, ducklake_table
from benchmarks.harness import print_progress, result
from benchmarks.workload import predicates

if TYPE_CHECKING:
    from benchmarks.harness import Contender, Result
    from benchmarks.workspace import Workspace

TITLE = "Cold open and plan"
SIZE = 1_000_000
QUICK_SIZE = 20_000


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Plan each predicate in new processes, contenders in turns."""
    size = QUICK_SIZE if quick else SIZE
    everyone: list[Contender] = [deltalake_table(size)]
    for backend in BACKENDS:
        everyone.append(deltasql_table(workspace, backend, size))
        everyone.append(ducklake_table(workspace, backend, size))
    workspace.settle()
    results: list[Result] = []
    for predicate in predicates(size):
        samples: dict[str, list[float]] = {c.name: [] for c in everyone}
        files: dict[str, int] = {}
        for _ in range(1 if quick else 3):
            for contender in everyone:
                print_progress(f"  {predicate.name}: {contender.name}")
                measurement = measure(Request(contender.unconnected(), "plan", predicate.sql))
                samples[contender.name].append(measurement.total_seconds * 1000)
                files[contender.name] = measurement.files
        for contender in everyone:
            # DuckLake reads one row; its plan was checked when the table was created.
            expected = 1 if contender.name.startswith("ducklake") else len(predicate.files)
            if files[contender.name] != expected:
                raise RuntimeError(
                    f"{contender.name} plans {files[contender.name]} files, not {expected}"
                )
            results.append(
                result(
                    contender.name,
                    contender.backend,
                    samples[contender.name],
                    case=predicate.name,
                    size=size,
                    metric="latency",
                    unit="ms",
                )
            )
    return results
