"""Commit in a separate process, with a preloaded library that delays and counts flushes.

`python -m benchmarks.durable_process` reads a pickled request on stdin and prints JSON. The
measured time ends when all commits are published.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.power.disk import read_calls

from benchmarks.fresh_process import run_request
from benchmarks.harness import timed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Contender
    from benchmarks.workload import Facts

MARK = "/recorder-mark/"
WARM = 12  # enough for one checkpoint, which imports modules


@dataclass(frozen=True, slots=True)
class Request:
    """Files to commit one by one; the first ones are a warm-up."""

    contender: Contender
    files: Sequence[Facts]


def measure(request: Request, library: Path, wait_ms: float) -> float:
    """Return the seconds of the commits if every flush takes `wait_ms` longer."""
    waiting = {"LD_PRELOAD": str(library), "RECORDER_FLUSH_US": str(round(wait_ms * 1000))}
    return float(run_request("benchmarks.durable_process", request, waiting)["seconds"])


def count_flushes(request: Request, library: Path, folder: Path) -> int:
    """Return how often the commits flushed a file or folder below `folder`."""
    with tempfile.TemporaryDirectory() as temporary:
        log = Path(temporary) / "calls"
        counting = {
            "LD_PRELOAD": str(library),
            "RECORDER_LOG": str(log),
            "RECORDER_ROOT": str(folder),
        }
        run_request("benchmarks.durable_process", request, counting)
        names = [(call.name, call.path) for call in read_calls(log)]
    begin, end = names.index(("mark", "begin")), names.index(("mark", "end"))
    return sum(name == "flush" for name, _ in names[begin:end])


def _measure(request: Request) -> dict[str, Any]:
    contender = request.contender
    contender.prepare()
    contender.connect()
    native = [contender.native([file]) for file in request.files]

    def commit(files: Sequence[Any]) -> None:
        for each in files:
            contender.commit(0, each)
        if not contender.publish():
            raise RuntimeError(f"{contender.name}: the mirror does not catch up")

    commit(native[:WARM])
    _mark("begin")
    seconds = timed(lambda: commit(native[WARM:]))
    _mark("end")
    contender.close()
    return {"seconds": seconds}


def _mark(name: str) -> None:
    """Mark a point in the library's log by opening a file, which does not have to exist."""
    try:
        os.close(os.open(f"{MARK}{name}", os.O_RDONLY))
    except FileNotFoundError:
        return


if __name__ == "__main__":
    # Pickled objects refer to this module by its name, not as `__main__`.
    from benchmarks import durable_process

    print(json.dumps(durable_process._measure(pickle.load(sys.stdin.buffer))))
