"""Measure opening, listing and refreshing a table: cold, warm, and peak memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.cold import Measurement, Request, measure
from benchmarks.contenders import BACKENDS, floors
from benchmarks.datasets import deltalake_table, deltasql_table, ducklake_table, writable_copy
from benchmarks.floors import PostgresRowLockFloor
from benchmarks.harness import Contender, print_progress, result
from benchmarks.peers import DeltalakeWithoutFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.datasets import Table
    from benchmarks.harness import Result
    from benchmarks.workspace import Workspace

TITLE = "Open a table"
SIZES = (100_000, 1_000_000)
QUICK_SIZES = (20_000,)


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Open tables in new processes, contenders and sizes in turns; the floor only connects."""
    bare = [each for each in floors(workspace) if not isinstance(each, PostgresRowLockFloor)]
    for floor in bare:
        floor.create(1)
        floor.close()
    tables = [Tables.made(workspace, size, bare) for size in (QUICK_SIZES if quick else SIZES)]
    workspace.settle()
    for number in range(1 if quick else 5):
        for each in tables:
            each.open_all()
            if number < 3 or each.size < 1_000_000:
                each.list_all()
                each.refresh_all()
    return [found for each in tables for found in each.results()]


@dataclass
class Tables:
    """The contenders with tables of one size, and their samples."""

    size: int
    listing: Sequence[Contender]
    opening: Sequence[Contender]
    refreshing: Sequence[Contender]
    opens: dict[str, list[Measurement]] = field(default_factory=dict)
    lists: dict[str, list[Measurement]] = field(default_factory=dict)
    refreshes: dict[str, list[Measurement]] = field(default_factory=dict)

    @classmethod
    def made(cls, workspace: Workspace, size: int, bare: Sequence[Contender]) -> Tables:
        stock = deltalake_table(size)
        listing: list[Table] = [
            stock,
            *(deltasql_table(workspace, backend, size) for backend in BACKENDS),
            *(ducklake_table(workspace, backend, size) for backend in BACKENDS),
        ]
        opening = [*listing, DeltalakeWithoutFiles(stock.folder), *bare]
        # A second process cannot open a DuckDB file.
        shared = [table for table in listing if table.backend != "duckdb"]
        return cls(size, listing, opening, [writable_copy(workspace, table) for table in shared])

    def open_all(self) -> None:
        for contender in self.opening:
            print_progress(f"  {self.size:,} files: {contender.name}")
            request = Request(contender.unconnected(), "open", warm_rounds=3)
            self.opens.setdefault(contender.name, []).append(measure(request))

    def list_all(self) -> None:
        for contender in self.listing:
            request = Request(contender.unconnected(), "list", warm_rounds=3)
            measurement = measure(request)
            if measurement.files != self.size:
                raise RuntimeError(
                    f"{contender.name} lists {measurement.files} of {self.size} files"
                )
            self.lists.setdefault(contender.name, []).append(measurement)

    def refresh_all(self) -> None:
        for contender in self.refreshing:
            print_progress(f"  {self.size:,} files: {contender.name}, refresh")
            request = Request(contender.unconnected(), "refresh", warm_rounds=3)
            self.refreshes.setdefault(contender.name, []).append(measure(request))

    def results(self) -> Iterator[Result]:
        for contender in self.opening:
            yield from _opened(contender, self.size, self.opens[contender.name])
        for contender in self.listing:
            yield from _listed(contender, self.size, self.lists[contender.name])
        for contender in self.refreshing:
            yield from _refreshed(contender, self.size, self.refreshes[contender.name])


def _opened(contender: Contender, size: int, measurements: Sequence[Measurement]) -> list[Result]:
    cold = [a.open_seconds * 1000 for a in measurements]
    warm = [s * 1000 for a in measurements for s in a.warm_seconds]
    name, backend = contender.name, contender.backend
    return [
        result(name, backend, cold, case="open", size=size, metric="latency", unit="ms"),
        result(name, backend, warm, case="open again", size=size, metric="latency", unit="ms"),
    ]


def _listed(contender: Contender, size: int, measurements: Sequence[Measurement]) -> list[Result]:
    cold = [a.total_seconds * 1000 for a in measurements]
    warm = [s * 1000 for a in measurements for s in a.warm_seconds]
    peak = [a.peak_mb for a in measurements]
    name, backend = contender.name, contender.backend
    imports = max(a.imports_mb for a in measurements)
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


def _refreshed(
    contender: Contender, size: int, measurements: Sequence[Measurement]
) -> list[Result]:
    alone = [s * 1000 for a in measurements for s in a.warm_open_seconds]
    listed = [s * 1000 for a in measurements for s in a.warm_seconds]
    name, backend = contender.name, contender.backend
    return [
        result(name, backend, alone, case="refresh", size=size, metric="latency", unit="ms"),
        result(name, backend, listed, case="refresh, list", size=size, metric="latency", unit="ms"),
    ]
