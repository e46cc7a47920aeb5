"""Measure appends to tables on a local S3 server that delays each request by 30 ms."""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
from tests.s3 import new_bucket, options_for, requests_to, running_s3

import deltasql
from benchmarks.harness import print_progress, result, timed

if TYPE_CHECKING:
    from benchmarks.harness import Result
    from benchmarks.workspace import Workspace

TITLE = "Object store with 30 ms per request"
DELAY_MS = 30
ROUNDS = 40
PARTITIONS = 20
RACED = [f"r{number}" for number in range(8)]
WAITING = 50
ROWS = pa.table({"id": [1, 2, 3], "value": [1.0, 2.0, 3.0], "text": ["a", "b", "c"]})
SPREAD = pa.table({"id": range(PARTITIONS), "p": range(PARTITIONS)})


class _System:
    """deltalake, which appends to tables by their path."""

    name = "deltalake"
    backend = "path"

    def __init__(self, lake: str) -> None:
        self._lake = lake

    def append(self, table: str, rows: pa.Table, partition_by: list[str] | None = None) -> None:
        deltalake.write_deltalake(
            f"{self._lake}/{table}", rows, mode="append", partition_by=partition_by
        )

    def append_rows(self) -> None:
        """Append to a table without partitions."""
        self.append("t", ROWS)

    def append_partitions(self) -> None:
        """Append one row to each partition."""
        self.append("p", SPREAD, ["p"])


class _Deltasql(_System):
    """deltasql, which publishes each append before it returns."""

    def __init__(self, lake: str, backend: str, uri: str) -> None:
        super().__init__(lake)
        self.name, self.backend, self.uri = f"deltasql-{backend}", backend, uri
        root = {"data_root": f"{lake}/{self.name}"}
        with deltasql.connect(uri, create=True, table=root) as catalog:
            catalog.create_table("p", SPREAD.schema, partition_by=["p"])
            for name in ("t", *RACED):
                catalog.create_table(name, ROWS.schema)

    def append(self, table: str, rows: pa.Table, partition_by: list[str] | None = None) -> None:
        deltasql.write_deltalake(
            f"{self.uri}?mirror=sync&table={table}", rows, mode="append", partition_by=partition_by
        )

    def publish_waiting(self, table: str, versions: int) -> float:
        """Commit versions without publishing; return the seconds that publishing them takes."""
        with deltasql.connect(f"{self.uri}?mirror=off") as catalog:
            for _ in range(versions):
                with catalog.begin() as tx:
                    tx.write(table, ROWS)
            start = time.perf_counter()
            if catalog.mirror.publish(table) != versions:
                raise RuntimeError(f"{self.name} did not publish all versions")
            return time.perf_counter() - start


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Append with each system in turns, and count the requests."""
    rounds = 5 if quick else ROUNDS
    results: list[Result] = []
    with running_s3(DELAY_MS) as address:
        os.environ.update(options_for(address))
        systems = _systems(workspace, new_bucket(address))

        def add(system: _System, case: str, metric: str, unit: str, samples: list[float]) -> None:
            one = result(
                system.name, system.backend, samples, case=case, size=1, metric=metric, unit=unit
            )
            results.append(one)

        for case, append in (
            ("append of three rows", _System.append_rows),
            (f"append to {PARTITIONS} partitions", _System.append_partitions),
        ):
            print_progress(f"  {case}")
            times: dict[str, list[float]] = {each.name: [] for each in systems}
            sent: dict[str, Counter[str]] = {each.name: Counter() for each in systems}
            for number in range(rounds + 1):
                for system in systems:
                    requests_to(address)
                    seconds = timed(partial(append, system))
                    if number:  # the first append may create the table
                        times[system.name].append(seconds * 1000)
                        counts = requests_to(address)
                        counts.pop("at once")
                        sent[system.name].update(counts)
            for system in systems:
                add(system, case, "latency", "ms", times[system.name])
                count = sum(sent[system.name].values()) / rounds
                add(system, f"{case}, requests", "count", "", [count])
        print_progress(f"  {len(RACED)} threads")
        for system in systems:
            add(system, f"{len(RACED)} threads", "rate", "appends/s", [_rate(system, rounds)])
        for system in systems:
            if isinstance(system, _Deltasql):
                seconds = system.publish_waiting("t", WAITING)
                add(
                    system, "publish a waiting version", "latency", "ms", [seconds * 1000 / WAITING]
                )
    return results


def _systems(workspace: Workspace, bucket: str) -> list[_System]:
    file = workspace.new_folder("object-store") / "meta.db"
    return [
        _System(f"{bucket}/path"),
        _Deltasql(bucket, "sqlite", f"deltasql://sqlite/{file}"),
        _Deltasql(bucket, "postgres", f"deltasql://postgres/{workspace.new_database()}"),
    ]


def _rate(system: _System, rounds: int) -> float:
    """Append to eight tables from eight threads; return the appends per second of all."""
    with ThreadPoolExecutor(len(RACED)) as pool:
        list(pool.map(lambda table: system.append(table, ROWS), RACED))
        seconds = timed(lambda: list(pool.map(lambda table: _repeat(system, table, rounds), RACED)))
    return len(RACED) * rounds / seconds


def _repeat(system: _System, table: str, rounds: int) -> None:
    for _ in range(rounds):
        system.append(table, ROWS)
