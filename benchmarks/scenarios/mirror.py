"""Measure the mirror: commits with publishing, and publishing older commits from the database."""

from __future__ import annotations

import threading
import time
from multiprocessing import get_context
from typing import TYPE_CHECKING

import deltasql
from benchmarks.contenders import deltalake
from benchmarks.contenders import deltasql as ours
from benchmarks.harness import interleave, print_progress, result, timed
from benchmarks.mirror_checkpoint import checkpoints
from benchmarks.scenarios.commit import Runner
from benchmarks.workload import stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Event

    from benchmarks.harness import Contender, Result
    from benchmarks.ours import Deltasql
    from benchmarks.workspace import Workspace

TITLE = "Commit and publish; catching up"
BACKENDS = ("sqlite", "postgres")
SIZES = (0, 1_000, 10_000)
QUICK_SIZES = (0, 50)
DRAINED, QUICK_DRAINED = 5_000, 200
COMMITS_PER_S, LAG_SECONDS, QUICK_LAG_SECONDS = 50, 20, 3


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Measure commits with and without the mirror, then the reconciler alone and under load."""
    results = _commits(workspace, quick=quick)
    for backend in BACKENDS:
        results.append(_drain(workspace, backend, QUICK_DRAINED if quick else DRAINED))
        results.append(_lag(workspace, backend, QUICK_LAG_SECONDS if quick else LAG_SECONDS))
    return results + checkpoints(workspace, quick=quick)


def _commits(workspace: Workspace, *, quick: bool) -> list[Result]:
    everyone: list[Contender] = [deltalake(workspace)]
    for backend in BACKENDS:
        everyone += [ours(workspace, backend), ours(workspace, backend, mirror="sync")]
    runners = [Runner(contender) for contender in everyone]
    results = []
    for size in QUICK_SIZES if quick else SIZES:
        for runner in runners:
            runner.advance_to(size)
        workspace.settle()
        calls: dict[str, Callable[[], float]] = {r.contender.name: r.one for r in runners}
        samples = interleave(calls, rounds=2 if quick else 8, per_round=8 if quick else 25)
        results += [
            result(
                runner.contender.name,
                runner.contender.backend,
                [s * 1000 for s in samples[runner.contender.name]],
                case="commit",
                size=size,
                metric="latency",
                unit="ms",
            )
            for runner in runners
        ]
    for runner in runners:
        found = runner.contender.count(0)
        if found != runner.commits:
            raise RuntimeError(f"{runner.contender.name}: {runner.commits} commits, {found} found")
        runner.contender.close()
    return results


def _drain(workspace: Workspace, backend: str, versions: int) -> Result:
    """Commit without a mirror, then measure how fast one reconciler publishes all versions."""
    contender = ours(workspace, backend)
    runner = Runner(contender)
    runner.advance_to(versions)
    contender.close()
    workspace.settle()
    with deltasql.connect(contender.uri) as catalog:
        published = 0

        def drain() -> None:
            nonlocal published
            while step := catalog.mirror.run(once=True):
                published += step

        seconds = timed(drain)
        behind = catalog.mirror.status("t0")[0].pending
    if behind or published != versions + 1:
        raise RuntimeError(f"{contender.name}: {published} published, {behind} left")
    return result(
        contender.name,
        backend,
        [published / seconds],
        case="drain",
        size=versions,
        metric="throughput",
        unit="versions/s",
    )


def _lag(workspace: Workspace, backend: str, seconds: float) -> Result:
    """Commit at a steady rate while a reconciler in another process publishes."""
    contender = ours(workspace, backend)
    contender.create(1)
    context = get_context("spawn")
    stop = context.Event()
    reconciler = context.Process(target=_reconcile, args=(contender.uri, stop))
    reconciler.start()
    _wait_for_mirror(contender)
    print_progress(f"  {contender.name}: {COMMITS_PER_S} commits/s for {seconds:.0f} s")
    files = stream()
    start = time.perf_counter()
    for number in range(round(COMMITS_PER_S * seconds)):
        contender.commit(0, contender.native([next(files)]))
        time.sleep(max(0.0, start + (number + 1) / COMMITS_PER_S - time.perf_counter()))
    _wait_for_mirror(contender)
    stop.set()
    reconciler.join(30)
    lags = _lags(contender)
    contender.close()
    return result(
        contender.name,
        backend,
        lags,
        case="lag",
        size=COMMITS_PER_S,
        metric="latency",
        unit="ms",
        p95=sorted(lags)[len(lags) * 95 // 100],
    )


def _wait_for_mirror(contender: Deltasql) -> None:
    deadline = time.monotonic() + 60
    with deltasql.connect(contender.uri) as catalog:
        while any(each.pending for each in catalog.mirror.status("t0")):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{contender.name}: the mirror does not catch up")
            time.sleep(0.05)


def _lags(contender: Deltasql) -> list[float]:
    """Return for every version the milliseconds from its commit until its file was written."""
    log = contender.folder / "data" / "t0" / "_delta_log"
    lags = []
    with deltasql.connect(contender.uri) as catalog:
        for row in catalog.table("t0").history():
            if row.version:  # not version 0, which is from before the start of the reconciler
                written_ms = (log / f"{row.version:020d}.json").stat().st_mtime_ns / 1e6
                lags.append(max(0.0, written_ms - row.committed_at_ms))
    return lags


def _reconcile(uri: str, stop: Event) -> None:
    done = threading.Event()
    threading.Thread(target=lambda: (stop.wait(), done.set()), daemon=True).start()
    with deltasql.connect(uri) as catalog:
        catalog.mirror.run(done)
