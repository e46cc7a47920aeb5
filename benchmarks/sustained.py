"""Measure sustained ingestion: small appends to 20 tables on PostgreSQL during `mirror run`.

`python -m benchmarks.sustained --minutes 60` appends at a fixed rate and prints one line per
minute; `--s3` puts data and mirror on a local S3 server. Two processes append, `deltasql mirror
run` publishes and compacts, and two processes read, by path with deltalake and by SQL. The latency
of an append is measured from the time at which the append was due, so it includes the wait for
earlier appends. At the end, the last quarter of the minutes is compared with the first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
import pyarrow as pa
from tests.s3 import new_bucket, options_for, running_s3

import deltasql
from benchmarks.harness import print_progress
from benchmarks.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

TABLES, RATE, WRITERS = 20, 50, 2
ROWS = 3
SAMPLE_S = 5.0
PROPERTIES = {"delta.autoOptimize.autoCompact": "true"}
# How many times as high as in the first quarter a value may be in the last quarter: WORSE for times
# and files, MORE_MEMORY for memory. Differences in time of at most LEAST_MS or LEAST_S are ignored.
WORSE, LEAST_MS, LEAST_S, MORE_MEMORY = 1.5, 20.0, 1.0, 1.15


@dataclass(frozen=True, slots=True)
class Minute:
    """The measurements of one minute."""

    minute: int
    appends: int
    failures: int
    gaps: int
    """Reads by path that failed because a listing lacked a file (see `_read_by_path`)."""
    p50_ms: float
    p99_ms: float
    lag_s: float
    files: int
    path_ms: float
    sql_ms: float
    writer_mb: float
    runner_mb: float
    readers_mb: float
    connections: int


def main() -> None:
    """Run the load and print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sustained", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=RATE, help="appends per second of all tables")
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument(
        "--mirror",
        choices=("off", "async", "sync"),
        default="off",
        help="how the appending processes publish; with off, only `mirror run` publishes",
    )
    parser.add_argument(
        "--s3", action="store_true", help="use a local S3 server for data and mirror"
    )
    parser.add_argument("--out", type=Path, help="also write the minutes as JSON")
    options = parser.parse_args()
    with Workspace() as workspace, _lake(workspace, on_s3=options.s3) as lake:
        minutes = run(workspace, lake, options)
    for line in verdict(minutes):
        print_progress(line)
    if options.out is not None:
        options.out.write_text(json.dumps([asdict(each) for each in minutes], indent=1), "utf-8")


@contextlib.contextmanager
def _lake(workspace: Workspace, *, on_s3: bool) -> Iterator[str]:
    """Yield the location of the tables; for S3, set the credentials for all processes."""
    if not on_s3:
        yield str(workspace.new_folder("lake"))
        return
    with running_s3() as address:
        os.environ.update(options_for(address))
        yield new_bucket(address)


def run(workspace: Workspace, lake: str, options: argparse.Namespace) -> list[Minute]:
    """Create the tables, start all processes, and measure until the time is over."""
    database = workspace.new_database()
    uri = f"deltasql://postgres/{database}"
    names = [f"t{number}" for number in range(options.tables)]
    with deltasql.connect(uri, create=True) as catalog:
        for name in names:
            schema = pa.schema([("id", pa.int64()), ("value", pa.float64()), ("text", pa.string())])
            catalog.create_table(name, schema, location=f"{lake}/{name}", properties=PROPERTIES)
    spawn = multiprocessing.get_context("spawn")
    stop, results = spawn.Event(), spawn.Queue()
    begin_s = time.time() + 10  # after all processes have started
    rate = options.rate / WRITERS
    writers = [
        spawn.Process(
            target=_append,
            args=(
                f"{uri}?mirror={options.mirror}",
                names,
                rate,
                begin_s + number / options.rate,
                stop,
                results,
            ),
        )
        for number in range(WRITERS)
    ]
    readers = [
        spawn.Process(target=_read_by_path, args=(lake, names, stop, results)),
        spawn.Process(target=_read_by_sql, args=(uri, names, stop, results)),
    ]
    everyone = [*writers, *readers]
    runner = subprocess.Popen(
        [sys.executable, "-m", "deltasql.cli.main", "--uri", uri, "mirror", "run"],
        stderr=subprocess.DEVNULL,
    )
    for each in everyone:
        each.start()
    try:
        time.sleep(max(0.0, begin_s - time.time()))
        pids = ([each.pid for each in writers], [runner.pid], [each.pid for each in readers])
        return _measure(uri, database, options.minutes, begin_s, results, pids)
    finally:
        stop.set()
        runner.terminate()
        _drain(results, everyone)
        runner.wait(60)


def _measure(
    uri: str, database: str, length: float, begin_s: float, results: Queue[Any], pids: Any
) -> list[Minute]:
    minutes: list[Minute] = []
    print_progress(
        "minute  appends/s  failed  p50 ms  p99 ms  lag s   files  path ms  sql ms"
        "  writers MB  mirror run MB  readers MB  connections"
    )
    with (
        deltasql.connect(f"{uri}?mirror=off") as catalog,
        psycopg.connect(f"dbname={database}", autocommit=True) as connection,
    ):
        while len(minutes) < length:
            seconds = 60 * min(1.0, length - len(minutes))
            until_s = begin_s + 60 * len(minutes) + seconds
            lags, found = [], Counter[str]()
            while time.time() < until_s:
                time.sleep(max(0.0, min(SAMPLE_S, until_s - time.time())))
                lags.append(max(each.lag_s for each in catalog.mirror.status(files=False)))
            values: dict[str, list[float]] = {}
            while not results.empty():
                kind, value = results.get()
                if kind == "failure":
                    found[kind] += 1
                    print_progress(f"  {value}")
                else:
                    values.setdefault(kind, []).append(value)
            appends = sorted(values.get("append", [0.0]))
            files = _number(
                connection, "SELECT count(*) FROM dl_add_files WHERE removed_version IS NULL"
            )
            connections = _number(
                connection,
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()",
            )
            minutes.append(
                Minute(
                    minute=len(minutes) + 1,
                    appends=len(appends),
                    failures=found["failure"],
                    gaps=len(values.get("gap", [])),
                    p50_ms=1000 * appends[len(appends) // 2],
                    p99_ms=1000 * appends[len(appends) * 99 // 100],
                    lag_s=max(lags),
                    files=files,
                    path_ms=1000 * statistics.median(values.get("path", [0.0])),
                    sql_ms=1000 * statistics.median(values.get("sql", [0.0])),
                    writer_mb=sum(map(_memory_mb, pids[0])),
                    runner_mb=sum(map(_memory_mb, pids[1])),
                    readers_mb=sum(map(_memory_mb, pids[2])),
                    connections=connections,
                )
            )
            print_progress(_line(minutes[-1], seconds))
    return minutes


def _number(connection: psycopg.Connection[Any], query: LiteralString) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def _line(m: Minute, seconds: float) -> str:
    return (
        f"{m.minute:6} {m.appends / seconds:10.1f} {m.failures:7} {m.p50_ms:7.1f} {m.p99_ms:7.1f} "
        f"{m.lag_s:6.2f} {m.files:7} {m.path_ms:8.0f} {m.sql_ms:7.0f} {m.writer_mb:11.0f} "
        f"{m.runner_mb:14.0f} {m.readers_mb:11.0f} {m.connections:12}"
    )


def verdict(minutes: Sequence[Minute]) -> list[str]:
    """Compare the last quarter of the minutes with the first one after the warm-up."""
    warm = minutes[1:] if len(minutes) > 4 else minutes
    size = max(1, len(warm) // 4)
    lines = []
    for name, worse, least in (
        ("p50_ms", WORSE, LEAST_MS),
        ("p99_ms", WORSE, LEAST_MS),
        ("lag_s", WORSE, LEAST_S),
        ("files", WORSE, 0.0),
        ("path_ms", WORSE, LEAST_MS),
        ("sql_ms", WORSE, LEAST_MS),
        ("writer_mb", MORE_MEMORY, 20.0),
        ("runner_mb", MORE_MEMORY, 20.0),
        ("readers_mb", MORE_MEMORY, 20.0),
        ("connections", 1.0, 1.0),
    ):
        first = statistics.median(getattr(each, name) for each in warm[:size])
        last = statistics.median(getattr(each, name) for each in warm[-size:])
        flat = last <= max(first * worse, first + least)
        lines.append(f"{name:12} {first:9.2f} -> {last:9.2f}  {'flat' if flat else 'GROWS'}")
    failures = sum(each.failures for each in minutes)
    gaps = sum(each.gaps for each in minutes)
    lines += [f"failures     {failures:9}", f"gaps         {gaps:9}"]
    return lines


def _append(
    uri: str, names: list[str], rate: float, begin_s: float, stop: Event, results: Queue[Any]
) -> None:
    """Append to random tables at a fixed rate; report each append's latency from its due time."""
    choose = random.Random(begin_s)
    with deltasql.connect(uri) as catalog:
        for name in names:  # connects, and imports what an append needs
            catalog.table(name).version()
        number = 0
        while not stop.is_set():
            due_s = begin_s + number / rate
            time.sleep(max(0.0, due_s - time.time()))
            rows = pa.table(
                {
                    "id": [number * ROWS + each for each in range(ROWS)],
                    "value": [choose.random() for _ in range(ROWS)],
                    "text": [f"event {number}"] * ROWS,
                }
            )
            try:
                with catalog.begin(one_table=True) as tx:
                    tx.write(choose.choice(names), rows)
            except Exception as error:
                results.put(("failure", f"append: {error!r}"))
            results.put(("append", time.time() - due_s))
            number += 1


def _read_by_path(lake: str, names: list[str], stop: Event, results: Queue[Any]) -> None:
    import deltalake

    choose = random.Random(1)
    while not stop.wait(1.0):
        start = time.perf_counter()
        try:
            table = deltalake.DeltaTable(f"{lake}/{choose.choice(names)}")
            table.to_pyarrow_dataset().count_rows()
        except deltalake.exceptions.DeltaError as error:
            # A listing of a folder is not atomic: while files are added, it may contain a new file
            # but not an older one. This holds for every writer, and the next read succeeds.
            is_gap = "found gap" in str(error)
            results.put(("gap", 1.0) if is_gap else ("failure", f"read by path: {error!r}"))
        results.put(("path", time.perf_counter() - start))


def _read_by_sql(uri: str, names: list[str], stop: Event, results: Queue[Any]) -> None:
    choose = random.Random(2)
    with deltasql.connect(uri) as catalog:
        while not stop.wait(1.0):
            start = time.perf_counter()
            name = choose.choice(names)
            try:
                catalog.query(f"SELECT count(*), max(id), avg(value) FROM {name}").read_all()
            except Exception as error:
                results.put(("failure", f"read by SQL: {error!r}"))
            results.put(("sql", time.perf_counter() - start))


def _drain(results: Queue[Any], processes: Sequence[Any]) -> None:
    """Wait for the processes, and read their results, because a process ends only after that."""
    until_s = time.monotonic() + 60
    while any(each.is_alive() for each in processes) and time.monotonic() < until_s:
        while not results.empty():
            results.get()
        time.sleep(0.05)
    for each in processes:
        each.kill()
        each.join()


def _memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    main()
