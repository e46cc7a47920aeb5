"""Measure operations on a catalog in a new process: CPU time, SQL statements and memory.

`python -m benchmarks.scale_process` reads a pickled request on stdin and prints JSON. Every round
opens the catalog again, so that nothing is cached; only the operation itself is measured. Its
memory is the peak growth of the process during the operation.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import itertools
import json
import os
import pickle
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
from tests.counting import counting

import deltasql
from benchmarks.fresh_process import memory_mb, run_request
from benchmarks.workload import facts
from deltasql.console.server import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.ours import Deltasql
    from deltasql.api.catalog.catalog import Catalog

NOW: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False}
_new = itertools.count(int(time.time() * 1000) * 1000)
_SCHEMA = pa.schema([("id", pa.int64())])


@dataclass(frozen=True, slots=True)
class Step:
    """An operation and its argument; tables and plots show the name."""

    name: str
    operation: str
    argument: Any = None
    rounds: int = 3


@dataclass(frozen=True, slots=True)
class Request:
    """The operations to run in sequence on a catalog."""

    contender: Deltasql
    steps: Sequence[Step]


@dataclass(frozen=True, slots=True)
class Measurement:
    """The times of all rounds; statements and memory are those of the first round."""

    cpu_ms: list[float]
    wall_ms: list[float]
    statements: int
    start_mb: float
    peak_mb: float
    load: float


def measure(request: Request) -> list[Measurement]:
    """Run the operations in sequence in a new process."""
    return [
        Measurement(**each)
        for each in run_request("benchmarks.scale_process", request)["measurements"]
    ]


def append(catalog: Catalog, tables: int) -> None:
    """Commit one file to each of the first `tables` tables of the catalog."""
    number = next(_new)
    with catalog.begin(one_table=tables == 1) as tx:
        for table in range(tables):
            each = facts(number % 1_000_000, 1_000_000)
            file = deltasql.AddFile(
                path=f"{number}.parquet",
                partition_values={"day": "d0000"},
                size=each.size,
                modification_time=each.modified_ms,
                stats=each.stats,
            )
            tx.stage_table(f"t{table}", [file])


def open_table(catalog: Catalog, version: int | None) -> object:
    """Open the latest version of a table, or an older one."""
    snapshot = catalog.table("t0").snapshot(version)
    return snapshot.schema, snapshot.protocol


OPERATIONS: dict[str, Callable[[Any, Any], object]] = {
    "open": open_table,
    "plan": lambda catalog, predicate: len(catalog.table("t0").scan(predicate).arrow),
    "list all files": lambda catalog, _: len(catalog.table("t0").files()),
    "commit": append,
    "history page": lambda catalog, cursor: catalog.inspect.history("t0", limit=50, cursor=cursor),
    "page of files": lambda catalog, _: catalog.inspect.files("t0", limit=50),
    "list tables": lambda catalog, _: catalog.tables(),
    "page of tables": lambda catalog, _: catalog.inspect.tables(limit=50),
    "create a table": lambda catalog, _: catalog.create_table(f"new{next(_new)}", _SCHEMA),
    "publish": lambda catalog, _: catalog.mirror.publish("t0"),
    "checkpoint": lambda catalog, _: catalog.mirror.checkpoint("t0"),
    "verify": lambda catalog, _: catalog.mirror.verify("t0", with_deltalake=False),
    "vacuum, dry run": lambda catalog, _: catalog.vacuum("t0", **NOW),
    "vacuum": lambda catalog, _: catalog.vacuum("t0", dry_run=False, **NOW),
    "console": lambda client, path: client.get(path).raise_for_status(),
}
# Operations that a program repeats on an open catalog: they run once before the measurement.
WARM = ("commit", "create a table")


def _measure(contender: Deltasql, step: Step) -> dict[str, Any]:
    operate = OPERATIONS[step.operation]
    start_mb = _start_anew()
    peak_mb, statements = 0.0, 0
    cpu_ms, wall_ms = [], []
    root = {"data_root": str(contender.folder / "data")}
    for number in range(step.rounds):
        with ExitStack() as stack:
            on: Any = stack.enter_context(deltasql.connect(contender.uri, table=root))
            if step.operation in WARM:
                operate(on, step.argument)
            if step.operation == "console":
                served = stack.enter_context(serving(on))
                on = stack.enter_context(httpx.Client(base_url=served.address, timeout=600))
                on.get("/login")  # loads what the first page of a console needs
            sent = stack.enter_context(counting())
            wall, cpu = time.perf_counter(), time.process_time()
            operate(on, step.argument)
            cpu_ms.append((time.process_time() - cpu) * 1000)
            wall_ms.append((time.perf_counter() - wall) * 1000)
            if number == 0:
                statements, peak_mb = len(sent), memory_mb("VmHWM")
    return {
        "cpu_ms": cpu_ms,
        "wall_ms": wall_ms,
        "statements": statements,
        "start_mb": start_mb,
        "peak_mb": peak_mb,
        "load": os.getloadavg()[0],
    }


def _start_anew() -> float:
    """Release free memory, reset the recorded peak, and return the memory in use."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return memory_mb("VmRSS")


if __name__ == "__main__":
    # Pickled objects refer to this module by its name, not as `__main__`.
    from benchmarks import scale_process

    given: Request = pickle.load(sys.stdin.buffer)
    for each in given.steps:
        given.contender.prepare_to(each.operation)
    importlib.import_module("pandas")  # pyarrow imports it for the first array
    print(
        json.dumps(
            {
                "measurements": [
                    scale_process._measure(given.contender, each) for each in given.steps
                ]
            }
        )
    )
