"""Measure in a new process, in which only the operating system has cached anything.

`python -m benchmarks.cold` reads a pickled request on stdin and prints JSON. The measured time
includes connecting, opening and reading, but not imports and loading extensions.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.fresh_process import memory_mb, run_request
from benchmarks.workload import facts

if TYPE_CHECKING:
    from benchmarks.harness import Contender


@dataclass(frozen=True, slots=True)
class Request:
    """What the process does: open a table, then `list` its files, `plan`, `commit` or neither.

    With `refresh`, each of the warm rounds lists the files after another process added one.
    """

    contender: Contender
    action: str
    predicate: str = ""
    warm_rounds: int = 0
    # The number of the file that `commit` adds.
    number: int = 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds, memory and the number of files found."""

    open_seconds: float
    total_seconds: float
    # The part of each warm round that opens or refreshes, and the whole round.
    warm_open_seconds: list[float]
    warm_seconds: list[float]
    files: int
    imports_mb: float
    peak_mb: float


def measure(request: Request) -> Measurement:
    """Run a request in a new process."""
    return Measurement(**run_request("benchmarks.cold", request))


def _measure(request: Request) -> dict[str, Any]:
    contender = request.contender
    contender.prepare_to(request.action)
    imports_mb = memory_mb("VmRSS")
    start = time.perf_counter()
    handle = contender.open()
    opened = time.perf_counter()
    files = _act(request, handle)
    done = time.perf_counter()
    peak_mb = memory_mb("VmHWM")
    warm_open, warm = [], []
    refreshing = request.action == "refresh"
    renew = contender.refresh if refreshing else contender.reopen
    for _ in range(request.warm_rounds):
        if refreshing:
            measure(Request(contender.unconnected(), "commit", number=files))
            files += 1
        again = time.perf_counter()
        handle = renew(handle)
        warm_open.append(time.perf_counter() - again)
        found = _act(request, handle)
        warm.append(time.perf_counter() - again)
        if refreshing and found != files:
            raise RuntimeError(f"{contender.name} lists {found} of {files} files after a refresh")
    return {
        "open_seconds": opened - start,
        "total_seconds": done - start,
        "warm_open_seconds": warm_open,
        "warm_seconds": warm,
        "files": files,
        "imports_mb": imports_mb,
        "peak_mb": peak_mb,
    }


def _act(request: Request, handle: object) -> int:
    if request.action == "commit":
        file = facts(request.number, request.number + 1)
        request.contender.commit(0, request.contender.native([file]))
    if request.action in ("list", "refresh"):
        return request.contender.list_files(handle)
    if request.action == "plan":
        return request.contender.plan(handle, request.predicate)
    return 0


if __name__ == "__main__":
    # Pickled objects refer to this module by its name, not as `__main__`.
    from benchmarks import cold

    print(json.dumps(cold._measure(pickle.load(sys.stdin.buffer))))
