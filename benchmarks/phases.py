"""Measure the phases of a commit of one file: the median time between the phase points.

python -m benchmarks.phases [URI]     the default is a SQLite file in a temporary folder
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import uuid
from collections import defaultdict

import pyarrow as pa

import deltasql
from deltasql import AddFile, phases

COMMITS, WARM_UP = 1500, 100
STATS = (
    '{"numRecords":3,"minValues":{"id":1,"x":"a","y":1.0},'
    '"maxValues":{"id":5,"x":"b","y":2.0},"nullCount":{"id":0,"x":0,"y":0}}'
)
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.string()), ("y", pa.float64())])


def main(uri: str, folder: str) -> None:
    """Commit one file at a time and print the median of every phase, in microseconds."""
    stretches: dict[str, list[float]] = defaultdict(list)
    last = (0.0, "")

    def at(phase: str) -> None:
        nonlocal last
        stretches[f"{last[1]} → {phase}"].append((time.perf_counter() - last[0]) * 1e6)
        last = (time.perf_counter(), phase)

    settings = {"mirror": {"mode": "off"}, "table": {"data_root": folder}}
    with deltasql.connect(uri, **settings) as catalog:
        name = f"t{uuid.uuid4().hex[:8]}"
        catalog.create_table(name, SCHEMA)
        with phases.hooked(at):
            for _ in range(COMMITS):
                add = AddFile(f"{uuid.uuid4()}.parquet", {}, 10, 0, stats=STATS)
                last = (time.perf_counter(), "begin")
                with catalog.begin() as tx:
                    tx.stage_table(name, [add])
                at("end")
    for stretch, values in stretches.items():
        print(f"{stretch:26} {statistics.median(values[WARM_UP:]):8.1f} µs")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(sys.argv[1] if len(sys.argv) > 1 else f"deltasql://sqlite/{place}/meta.db", place)
