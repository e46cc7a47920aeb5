"""Open a table without listing it, open and list it, cold and warm; peak memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cold import Answer, Request, measure
from benchmarks.contenders import BACKENDS, floors
from benchmarks.datasets import deltalake_table, deltasql_table
from benchmarks.floors import PostgresRowLockFloor
from benchmarks.harness import Contender, result, say
from benchmarks.peers import DeltalakeWithoutFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Result
    from benchmarks.workspace import Workspace

TITLE = "Open a table"
SIZES = (100_000, 1_000_000)
QUICK_SIZES = (20_000,)


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Open each table in fresh processes, contenders in turns; the floor only connects."""
    results: list[Result] = []
    bare = [each for each in floors(workspace) if not isinstance(each, PostgresRowLockFloor)]
    for floor in bare:
        floor.create(1)
        floor.close()
    for size in QUICK_SIZES if quick else SIZES:
        stock = deltalake_table(size)
        listing: list[Contender] = [stock]
        for backend in BACKENDS:
            listing.append(deltasql_table(workspace, backend, size))
        opening = [*listing, DeltalakeWithoutFiles(stock.folder), *bare]
        opens: dict[str, list[Answer]] = {}
        lists: dict[str, list[Answer]] = {}
        for _ in range(1 if quick else 3 if size >= 1_000_000 else 5):
            for contender in opening:
                say(f"  {size:,} files: {contender.name}")
                request = Request(contender.unconnected(), "open", warm_rounds=3)
                opens.setdefault(contender.name, []).append(measure(request))
            for contender in listing:
                request = Request(contender.unconnected(), "list", warm_rounds=3)
                answer = measure(request)
                if answer.files != size:
                    raise RuntimeError(f"{contender.name} lists {answer.files} of {size} files")
                lists.setdefault(contender.name, []).append(answer)
        for contender in opening:
            results += _opened(contender, size, opens[contender.name])
        for contender in listing:
            results += _listed(contender, size, lists[contender.name])
    return results


def _opened(contender: Contender, size: int, answers: Sequence[Answer]) -> list[Result]:
    cold = [a.open_seconds * 1000 for a in answers]
    warm = [s * 1000 for a in answers for s in a.warm_seconds]
    name, backend = contender.name, contender.backend
    return [
        result(name, backend, cold, case="open", size=size, metric="latency", unit="ms"),
        result(name, backend, warm, case="open again", size=size, metric="latency", unit="ms"),
    ]


def _listed(contender: Contender, size: int, answers: Sequence[Answer]) -> list[Result]:
    cold = [a.total_seconds * 1000 for a in answers]
    warm = [s * 1000 for a in answers for s in a.warm_seconds]
    peak = [a.peak_mb for a in answers]
    name, backend = contender.name, contender.backend
    imports = max(a.imports_mb for a in answers)
    return [
        result(name, backend, cold, case="list cold", size=size, metric="latency", unit="ms"),
        result(name, backend, warm, case="list warm", size=size, metric="latency", unit="ms"),
        result(
            name,
            backend,
            peak,
            case="list memory",
            size=size,
            metric="memory",
            unit="MB",
            after_imports=round(imports, 1),
        ),
    ]
