"""Measure one transaction over ten tables, with one staged file in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contenders import BACKENDS, deltalake, deltasql, ducklake, floors
from benchmarks.harness import interleave, result, timed
from benchmarks.workload import stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.harness import Contender, Result
    from benchmarks.workspace import Workspace

TITLE = "One transaction over ten tables"
TABLES = 10


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Measure all contenders in turns; deltalake makes ten separate commits."""
    everyone: list[Contender] = []
    for backend in BACKENDS:
        everyone.append(deltasql(workspace, backend))
    everyone += [*floors(workspace), deltalake(workspace)]
    for backend in BACKENDS:
        everyone += [ducklake(workspace, backend), ducklake(workspace, backend, "parquet")]
    calls: dict[str, Callable[[], float]] = {}
    for contender in everyone:
        contender.create(TABLES)
        calls[contender.name] = _caller(contender)
        for _ in range(2):
            calls[contender.name]()
    workspace.settle()
    samples = interleave(calls, rounds=3 if quick else 10, per_round=2 if quick else 10)
    results = []
    for contender in everyone:
        seconds = samples[contender.name]
        last = contender.count(TABLES - 1)
        if last != len(seconds) + 2:
            raise RuntimeError(f"{contender.name}: {len(seconds) + 2} commits, {last} found")
        contender.close()
        results.append(
            result(
                contender.name,
                contender.backend,
                [s * 1000 for s in seconds],
                case="ten tables",
                size=TABLES,
                metric="latency",
                unit="ms",
                atomic=contender.name != "deltalake",
            )
        )
    return results


def _caller(contender: Contender) -> Callable[[], float]:
    files = stream()

    def call() -> float:
        native = contender.native([next(files) for _ in range(TABLES)])
        return timed(lambda: contender.commit_each(native, TABLES))

    return call
