"""Measure concurrent commits of 8 and 16 processes: rate, fairness, failures and version gaps."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass
from queue import Empty
from typing import TYPE_CHECKING

from benchmarks.contenders import deltalake, deltasql, ducklake
from benchmarks.floors import PostgresFloor, PostgresRowLockFloor, SqliteFloor
from benchmarks.harness import print_progress, result
from benchmarks.workload import facts

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

    from benchmarks.harness import Contender, Result
    from benchmarks.workspace import Workspace

TITLE = "Processes committing at once"
FILES_PER_PROCESS = 60_000


@dataclass(frozen=True, slots=True)
class Share:
    """The result of one process."""

    commits: int
    failures: int
    first_failure: str
    seconds: float


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Run each case several times on new catalogs, contenders in turns."""
    results: list[Result] = []
    for processes in (8,) if quick else (8, 16):
        for case, tables, makers in _cases(workspace):
            runs: dict[str, list[dict[str, float]]] = {}
            backends: dict[str, str] = {}
            first_failures: dict[str, str] = {}
            for _ in range(1 if quick else 3):
                for make in makers:
                    contender = make()
                    print_progress(f"  {processes} processes, {case}: {contender.name}")
                    seconds = 1.0 if quick else 3.0
                    outcome, first_failure = _race(contender, tables, processes, seconds)
                    runs.setdefault(contender.name, []).append(outcome)
                    backends[contender.name] = contender.backend
                    first_failures[contender.name] = (
                        first_failures.get(contender.name) or first_failure
                    )
            for name, outcomes in runs.items():
                worst = {key: max(o[key] for o in outcomes) for key in ("failures", "gaps", "lost")}
                results.append(
                    result(
                        name,
                        backends[name],
                        [o["rate"] for o in outcomes],
                        case=case,
                        size=processes,
                        metric="throughput",
                        unit="commits/s",
                        slowest_share=min(o["slowest_share"] for o in outcomes),
                        slowest=min(o["slowest"] for o in outcomes),
                        fastest=max(o["fastest"] for o in outcomes),
                        first_failure=first_failures[name],
                        **worst,
                    )
                )
    return results


def _cases(
    workspace: Workspace,
) -> list[tuple[str, int, list[Callable[[], Contender]]]]:
    def on_postgres() -> list[Callable[[], Contender]]:
        return [
            lambda: deltasql(workspace, "postgres"),
            lambda: PostgresRowLockFloor(workspace.new_database()),
            lambda: PostgresFloor(workspace.new_database()),
            lambda: ducklake(workspace, "postgres"),
        ]

    on_sqlite: list[Callable[[], Contender]] = [
        lambda: deltasql(workspace, "sqlite"),
        lambda: SqliteFloor(workspace.new_folder("floor-sqlite")),
        lambda: ducklake(workspace, "sqlite"),
        lambda: deltalake(workspace),
    ]
    return [
        ("one PostgreSQL table", 1, on_postgres()),
        ("16 PostgreSQL tables", 16, on_postgres()),
        ("one SQLite file", 1, on_sqlite),
    ]


def _race(
    contender: Contender, tables: int, processes: int, seconds: float
) -> tuple[dict[str, float], str]:
    contender.create(tables)
    contender.close()
    # The fork server imports everything once and opens nothing, so its forks are fast and safe.
    context = multiprocessing.get_context("forkserver")
    # DuckDB imports pandas when it binds its first parameter, which takes about a second.
    context.set_forkserver_preload(["benchmarks.scenarios.concurrency", "pandas"])
    barrier = context.Barrier(processes)
    queue: Queue[Share] = context.Queue()
    blank = contender.unconnected()
    workers = [
        context.Process(target=_commit, args=(blank, i, tables, seconds, barrier, queue))
        for i in range(processes)
    ]
    for worker in workers:
        worker.start()
    shares: list[Share] = []
    while len(shares) < processes:
        try:
            shares.append(queue.get(timeout=1))
        except Empty:
            if any(worker.exitcode for worker in workers):
                barrier.abort()
                raise RuntimeError(f"a process of {contender.name} died; see above") from None
    for worker in workers:
        worker.join()
    contender.connect()
    found = sum(contender.count(table) for table in range(tables))
    gaps = sum(contender.gaps(table) for table in range(tables))
    contender.close()
    counts = [share.commits for share in shares]
    outcome = {
        "rate": sum(share.commits / share.seconds for share in shares),
        "failures": sum(share.failures for share in shares),
        "gaps": gaps,
        # Each process also made one commit before the measurement.
        "lost": sum(counts) + processes - found,
        "slowest": min(counts),
        "fastest": max(counts),
        "slowest_share": min(counts) / max(1, max(counts)),
    }
    first_failure = next((share.first_failure for share in shares if share.first_failure), "")
    return outcome, first_failure


def _commit(
    contender: Contender,
    index: int,
    tables: int,
    seconds: float,
    barrier: Barrier,
    queue: Queue[Share],
) -> None:
    """Commit as often as possible for a time; a failed commit is counted, not retried."""
    contender.connect()
    number = index * FILES_PER_PROCESS + index
    total = 16 * FILES_PER_PROCESS
    failures, commits, first_failure = 0, 0, ""
    _warm(contender, index % tables, number, total)
    barrier.wait(timeout=120)
    start = time.perf_counter()
    while (now := time.perf_counter()) - start < seconds:
        number += 1
        native = contender.native([facts(number, total)])
        try:
            # Each process starts with another table and then uses all tables in turn.
            contender.commit(number % tables, native)
        except contender.errors as error:
            failures += 1
            first_failure = first_failure or f"{type(error).__name__}: {str(error)[:200]}"
        else:
            commits += 1
    now = time.perf_counter()
    contender.close()
    queue.put(Share(commits, failures, first_failure, now - start))


def _warm(contender: Contender, table: int, number: int, total: int) -> None:
    native = contender.native([facts(number, total)])
    while True:
        try:
            return contender.commit(table, native)
        except contender.errors:
            time.sleep(0.05)
