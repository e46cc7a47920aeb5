"""Change rows in a separate process, so that the peak memory is that of the operation alone.

`python -m benchmarks.rows_process` reads a pickled request on stdin and prints JSON. The measured
time includes opening the table, but not imports and the generation of rows.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.fresh_process import memory_mb, run_request
from benchmarks.rows import merge_source, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.rows import DeltaRows, DuckLakeRows


@dataclass(frozen=True, slots=True)
class Work:
    """Operations to run in sequence, by name; the table is restored after each."""

    system: DeltaRows | DuckLakeRows
    steps: dict[str, tuple[Any, ...]]
    """The arguments of each step: `append` (rows), `merge` (rows, source rows), `delete` and
    `update` (SQL condition)."""
    base: int | None = None
    """The version that the table is restored to after each step."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds and sums of each step, and the memory of the process at the start and at its peak."""

    seconds: dict[str, float]
    imports_mb: float
    peak_mb: float
    sums: dict[str, list[float]] = field(default_factory=dict)


def measure(work: Work) -> Measurement:
    """Run the operations in a new process."""
    return Measurement(**run_request("benchmarks.rows_process", work))


def _measure(work: Work) -> dict[str, Any]:
    system: Any = work.system
    system.prepare()
    calls = {name: _call(system, name, given) for name, given in work.steps.items()}
    imports_mb = memory_mb("VmRSS")
    seconds, sums, peak_mb = {}, {}, 0.0
    for name, call in calls.items():
        start = time.perf_counter()
        call()
        seconds[name] = time.perf_counter() - start
        peak_mb = max(peak_mb, memory_mb("VmHWM"))
        sums[name] = list(system.sum())
        if work.base is not None:
            system.restore(work.base)
    system.close()
    return {"seconds": seconds, "imports_mb": imports_mb, "peak_mb": peak_mb, "sums": sums}


def _call(system: Any, name: str, given: tuple[Any, ...]) -> Callable[[], object]:
    verb = name.split(" ")[0]
    if verb == "append":
        data = rows(0, *given)
        return lambda: system.append(data)
    if verb == "merge":
        source = merge_source(*given)
        return lambda: system.merge(source)
    return lambda: getattr(system, verb)(*given)


if __name__ == "__main__":
    # Pickled objects refer to this module by its name, not as `__main__`.
    from benchmarks import rows_process

    print(json.dumps(rows_process._measure(pickle.load(sys.stdin.buffer))))
