"""Write checkpoints of large tables: seconds and peak memory, each in a separate process.

`python -m benchmarks.mirror_checkpoint` reads a pickled contender on stdin and prints JSON. The
measured time includes opening the table, but not imports.
"""

from __future__ import annotations

import importlib
import json
import pickle
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import deltasql
from benchmarks.datasets import deltalake_table, deltasql_table
from benchmarks.fresh_process import memory_mb
from benchmarks.harness import print_progress, result
from benchmarks.peers import Deltalake
from benchmarks.workspace import ROOT

if TYPE_CHECKING:
    from benchmarks.harness import Contender, Result
    from benchmarks.ours import Deltasql
    from benchmarks.workspace import Workspace

BACKENDS = ("sqlite", "postgres")
SIZES = (100_000, 1_000_000)
QUICK_SIZES = (20_000,)


def checkpoints(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Write a checkpoint of the same files with every system; deltalake's table has one already."""
    results: list[Result] = []
    for size in QUICK_SIZES if quick else SIZES:
        everyone: list[Contender] = [deltalake_table(size)]
        for backend in BACKENDS:
            everyone.append(_published(deltasql_table(workspace, backend, size)))
        for contender in everyone:
            print_progress(f"  {size:,} files: checkpoint by {contender.name}")
            rounds = 1 if quick or size >= 1_000_000 else 3
            measurements = [_measure(contender) for _ in range(rounds)]
            results.append(_result(contender, size, "latency", [s * 1000 for s, _ in measurements]))
            if quick or size >= 1_000_000:  # for fewer files, most of the memory is libraries
                results.append(
                    _result(contender, size, "memory", [peak for _, peak in measurements])
                )
    return results


def _result(contender: Contender, size: int, metric: str, values: list[float]) -> Result:
    case, unit = ("checkpoint", "ms") if metric == "latency" else ("checkpoint memory", "MB")
    return result(
        contender.name,
        contender.backend,
        values,
        case=case,
        size=size,
        metric=metric,
        unit=unit,
    )


def _published(contender: Contender) -> Contender:
    """Publish the log that the checkpoint is written to."""
    ours: Deltasql = contender  # type: ignore[assignment]
    with deltasql.connect(ours.uri) as catalog:
        catalog.mirror.publish("t0")
    return contender


def _measure(contender: Contender) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.mirror_checkpoint"],
        input=pickle.dumps(contender.unconnected()),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        check=True,
    )
    seconds, peak_mb = json.loads(done.stdout.splitlines()[-1])
    return seconds, peak_mb


def _write_checkpoint(contender: Contender) -> tuple[float, float]:
    contender.prepare_to("checkpoint")
    importlib.import_module("pandas")  # pyarrow imports it for the first array
    start = time.perf_counter()
    if isinstance(contender, Deltalake):
        contender.checkpoint(0)
    else:
        ours: Deltasql = contender  # type: ignore[assignment]
        with deltasql.connect(ours.uri) as catalog:
            catalog.mirror.checkpoint("t0")
    return time.perf_counter() - start, memory_mb("VmHWM")


if __name__ == "__main__":
    # Pickled objects refer to this module by its name, not as `__main__`.
    from benchmarks import mirror_checkpoint

    print(json.dumps(mirror_checkpoint._write_checkpoint(pickle.load(sys.stdin.buffer))))
