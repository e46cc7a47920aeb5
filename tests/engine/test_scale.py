"""Many rows and many files: memory is bounded, and planning is fast."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from deltasql.config import Config
from deltasql.engine.base import FILE
from deltasql.engine.duckdb.engine import DuckDbEngine
from deltasql.engine.files.live_files import LiveFiles
from deltasql.engine.parquet.writer import write_batches
from deltasql.model.actions import Metadata
from deltasql.model.schema.convert import schema_from_any
from tests.engine.support import plan_for

ROOT = Path(__file__).parents[2]
STREAM = """
import json, resource, sys
import numpy as np
import pyarrow as pa
from deltasql.config import Config
from deltasql.engine.duckdb.engine import DuckDbEngine
from deltasql.engine.parquet import writer
from deltasql.engine.parquet.writer import write_batches
from tests.engine.support import listed, plan_for

# All limits are a tenth of the real ones, so that fewer rows reach them.
writer._CHUNK_BYTES //= 10
writer._CHUNK_OF_PARTITIONS_BYTES //= 10
writer._SORT_MEMORY = "100MB"
folder, batches, partitions, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("p", pa.int32())])

def rows():
    for number in range(batches):
        rng = np.random.default_rng(number)
        ids = rng.integers(0, 2**60, 50_000)
        text = pa.array(ids).cast(pa.string())
        yield pa.record_batch(
            [ids, rng.random(50_000), text, pa.array(ids % partitions, pa.int32())], schema=schema
        )

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

reader = pa.RecordBatchReader.from_batches(schema, rows())
plan = plan_for(folder, schema, partition_by=["p"] if partitions > 1 else [])
with DuckDbEngine(Config(engine={"memory_limit": "100MB", "threads": 2})) as engine:
    before = peak()
    if how == "kept":
        adds = engine.write(engine.rows(reader), plan)
    else:
        adds = write_batches(reader, plan)
    written = peak()
    scan = engine.scan(listed(plan, adds))
    total = sum(batch.num_rows for batch in engine.stream(scan))
print(json.dumps({"before": before, "written": written, "read": peak(), "rows": total,
                  "files": len(adds), "bytes": sum(add.size for add in adds)}))
"""


@pytest.mark.parametrize(
    ("partitions", "how", "most"),
    [
        pytest.param(1, "stream", 250, marks=pytest.mark.everything("half a minute of writing")),
        pytest.param(20, "stream", 280, marks=pytest.mark.everything("half a minute of writing")),
        pytest.param(1, "kept", 460, marks=pytest.mark.everything("half a minute of writing")),
    ],
)
def test_writing_uses_less_memory_than_the_rows(
    tmp_path: Path, partitions: int, how: str, most: int
) -> None:
    command = [sys.executable, "-c", STREAM, str(tmp_path), "240", str(partitions), how]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(result.stdout)
    assert found["rows"] == 12_000_000
    assert found["files"] >= partitions
    assert found["bytes"] > 300 * 2**20  # 510 MB in memory
    assert found["read"] - found["before"] < most, found


@pytest.mark.everything("ten thousand partitions")
def test_ten_thousand_partitions_are_planned_and_read_fast(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.int64())])
    plan = plan_for(tmp_path, schema, partition_by=["p"])
    rows = pa.table({"id": pa.array(range(10), pa.int64()), "p": pa.array(range(10), pa.int64())})
    adds = write_batches(rows.to_reader(), plan)
    metadata = Metadata("0", schema_from_any(schema).to_json(), ("p",))
    # Hard links: the same ten files under ten thousand names, each with its own partition value.
    for number in range(10, 10_000):
        add = adds[number % 10]
        (tmp_path / f"{number}.parquet").hardlink_to(tmp_path / plan.storage.data_name(add.path))
    paths = [add.path for add in adds] + [f"{n}.parquet" for n in range(10, 10_000)]
    table = pa.table(
        {
            "path": paths,
            "partition": [json.dumps({"p": str(n)}) for n in range(10_000)],
            "deletion_vector": pa.array([None] * 10_000, pa.string()),
        }
    )
    files = LiveFiles(str(tmp_path), metadata, table, Config().storage)
    with DuckDbEngine(Config()) as engine:
        began = time.process_time()
        scan = engine.scan(files, positions=True)
        planned = time.process_time() - began
        found = engine.collect(scan)
    assert planned < 2
    assert found.num_rows == 10_000
    assert sorted(found["p"].to_pylist()) == list(range(10_000))
    assert found["p"].to_pylist() == found[FILE].to_pylist()
