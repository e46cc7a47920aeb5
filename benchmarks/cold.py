"""A measure in a process of its own: nothing is cached but the files' pages.

`python -m benchmarks.cold` reads a pickled request on stdin and prints JSON. Imports and
extensions load before the clock starts; connecting, opening and reading are on it.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.fresh_process import ask, memory_mb

if TYPE_CHECKING:
    from benchmarks.harness import Contender


@dataclass(frozen=True, slots=True)
class Request:
    """What the process is to do: open, then list (no predicate) or plan, or neither."""

    contender: Contender
    action: str
    predicate: str = ""
    warm_rounds: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """Seconds, megabytes and the number of files seen."""

    open_seconds: float
    total_seconds: float
    warm_seconds: list[float]
    files: int
    imports_mb: float
    peak_mb: float


def measure(request: Request) -> Answer:
    """Run a request in a fresh process."""
    return Answer(**ask("benchmarks.cold", request))


def _answer(request: Request) -> dict[str, Any]:
    contender = request.contender
    contender.prepare_to(request.action)
    imports_mb = memory_mb("VmRSS")
    start = time.perf_counter()
    handle = contender.open()
    opened = time.perf_counter()
    files = _act(request, handle)
    done = time.perf_counter()
    peak_mb = memory_mb("VmHWM")
    warm = []
    for _ in range(request.warm_rounds):
        again = time.perf_counter()
        handle = contender.reopen(handle)
        _act(request, handle)
        warm.append(time.perf_counter() - again)
    return {
        "open_seconds": opened - start,
        "total_seconds": done - start,
        "warm_seconds": warm,
        "files": files,
        "imports_mb": imports_mb,
        "peak_mb": peak_mb,
    }


def _act(request: Request, handle: object) -> int:
    if request.action == "list":
        return request.contender.list_files(handle)
    if request.action == "plan":
        return request.contender.plan(handle, request.predicate)
    return 0


if __name__ == "__main__":
    # Under its real name, since that is the name pickles carry.
    from benchmarks import cold

    print(json.dumps(cold._answer(pickle.load(sys.stdin.buffer))))
