"""Run requests in a new process, in which only the operating system has cached anything."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# `benchmarks.workspace` has this path, too, but importing it loads a driver, whose memory would
# then be measured.
ROOT = Path(__file__).resolve().parent.parent


def run_request(
    module: str, request: object, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run a module that reads a pickled request on stdin and prints its answer as JSON.

    `environment` is added to the environment of this process.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module],
        input=pickle.dumps(request),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def memory_mb(key: str) -> float:
    """Return the memory of this process: VmRSS is the current value, VmHWM the peak."""
    # Do not use getrusage: its maximum may be inherited from the parent through fork and exec.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {key} in /proc/self/status")
