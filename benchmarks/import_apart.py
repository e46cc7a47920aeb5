"""An import in a process of its own, so that peak memory is that of the import alone.

`python -m benchmarks.import_apart` reads a pickled request on stdin and prints JSON. Imports of
modules come before the clock starts; connecting and making the schema are on it.
"""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.fresh_process import ask, memory_mb


@dataclass(frozen=True, slots=True)
class Request:
    """A log, and the catalog it goes to."""

    source: str
    uri: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Seconds, megabytes, and how many files are live in SQL."""

    seconds: float
    imports_mb: float
    peak_mb: float
    files: int


def measure(request: Request) -> Answer:
    """Import in a fresh process."""
    return Answer(**ask("benchmarks.import_apart", request))


def _answer(request: Request) -> dict[str, Any]:
    import deltasql

    for name in (
        "pandas",
        "pyarrow.parquet",
        "deltalake",
        "deltasql.migrate.importing.import_table",
    ):
        importlib.import_module(name)
    imports_mb = memory_mb("VmRSS")
    start = time.perf_counter()
    # No data file is there, so what is loaded is not verified.
    deltasql.import_table(request.source, request.uri, name="t0", verify=False)
    seconds, peak_mb = time.perf_counter() - start, memory_mb("VmHWM")
    with deltasql.connect(request.uri) as catalog:
        files = len(catalog.table("t0").snapshot().files())
    return {"seconds": seconds, "imports_mb": imports_mb, "peak_mb": peak_mb, "files": files}


if __name__ == "__main__":
    # Under its real name, since that is the name pickles carry.
    from benchmarks import import_apart

    print(json.dumps(import_apart._answer(pickle.load(sys.stdin.buffer))))
