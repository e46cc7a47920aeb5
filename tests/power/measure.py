"""Count the flushes of a commit, and measure commits when every flush takes 5 ms longer.

`python -m tests.power.measure [commits] [milliseconds]` prints a table for the docs. Each commit
adds one data file of one row; SQLite uses `synchronous = full`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa

import deltasql
from tests.power.disk import compile_recorder, read_calls

MODES = ("off", "async", "sync")
ROOT = Path(__file__).parents[2]
WARM = 5


def work(folder: Path, mode: str, commits: int) -> None:
    """Commit repeatedly; marks among the recorded calls delimit the counted commits."""
    row = pa.table({"id": [1]})
    with deltasql.connect(
        f"deltasql://sqlite/{folder}/meta.db",
        mirror={"mode": mode},
        table={"data_root": str(folder / "lake")},
    ) as catalog:
        catalog.create_table("t", row.schema)
        for number in range(WARM + commits):
            if number == WARM:
                catalog.mirror.flush()
                mark("begin")
                start = time.perf_counter()
            with catalog.begin() as tx:
                tx.write("t", row)
        committed = time.perf_counter() - start
        catalog.mirror.flush()
        published = time.perf_counter() - start
        mark("end")
    print(commits / committed, commits / published)


def mark(name: str) -> None:
    try:
        os.open(f"/recorder-mark/{name}", os.O_RDONLY)
    except FileNotFoundError:
        return


def kind_of(path: str, size: int) -> str:
    if "meta.db" in path:
        return "database"
    if "_delta_log" in path:
        return "log folder" if size < 0 else "log file"
    return "data folder" if size < 0 else "data file"


def main(commits: int, milliseconds: float) -> None:
    print(
        "| mode | database | data file | data folder | log file | log folder | all | "
        f"commits/s, +0 ms | commits/s, +{milliseconds:g} ms | published/s, +{milliseconds:g} ms |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as temporary:
        library = compile_recorder(Path(temporary))
        for mode in MODES:
            rates = []
            counts: Counter[str] = Counter()
            for wait in (0.0, milliseconds):
                folder = Path(tempfile.mkdtemp(dir=temporary))
                environment = {
                    **os.environ,
                    "LD_PRELOAD": str(library),
                    "RECORDER_LOG": str(folder / "calls"),
                    "RECORDER_ROOT": f"{folder}/",
                    "RECORDER_FLUSH_US": str(int(wait * 1000)),
                }
                command = [sys.executable, "-m", __spec__.name, str(folder), mode, str(commits)]
                done = subprocess.run(
                    command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
                )
                rates.append([float(each) for each in done.stdout.split()])
                calls = read_calls(folder / "calls")
                begin, end = ([c.path for c in calls].index(name) for name in ("begin", "end"))
                counts = Counter(
                    kind_of(call.path, call.size)
                    for call in calls[begin:end]
                    if call.name == "flush"
                )
            each = [
                counts[kind] / commits
                for kind in ("database", "data file", "data folder", "log file", "log folder")
            ]
            cells = [f"{value:.2f}" for value in (*each, sum(each))]
            cells += [f"{rate:.0f}" for rate in (rates[0][0], *rates[1])]
            print(f"| `{mode}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    else:
        main(int((sys.argv[1:] or ["200"])[0]), float((sys.argv[2:] or ["5"])[0]))
