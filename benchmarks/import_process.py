"""Import a log in a separate process, so that the peak memory is that of the import alone.

`python -m benchmarks.import_process` reads a pickled request on stdin and prints JSON. The measured
time includes connecting and creating the schema, but not importing modules.
"""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.fresh_process import memory_mb, run_request


@dataclass(frozen=True, slots=True)
class Request:
    """A log, and the catalog that it is imported into."""

    source: str
    uri: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds, memory, and the number of live files in SQL."""

    seconds: float
    imports_mb: float
    peak_mb: float
    files: int


def measure(request: Request) -> Measurement:
    """Import in a new process."""
    return Measurement(**run_request("benchmarks.import_process", request))


def _measure(request: Request) -> dict[str, Any]:
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
    # The import is not verified, because the data files do not exist.
    deltasql.import_table(request.source, request.uri, name="t0", verify=False)
    seconds, peak_mb = time.perf_counter() - start, memory_mb("VmHWM")
    with deltasql.connect(request.uri) as catalog:
        files = len(catalog.table("t0").snapshot().files())
    return {"seconds": seconds, "imports_mb": imports_mb, "peak_mb": peak_mb, "files": files}


if __name__ == "__main__":
    # Pickled objects refer to this module by its name, not as `__main__`.
    from benchmarks import import_process

    print(json.dumps(import_process._measure(pickle.load(sys.stdin.buffer))))
