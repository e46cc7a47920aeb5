"""Measure an expiry of history: its time, the size of the database, and commits before and after.

python -m benchmarks.expire_history [URI] [--commits N]    the default is a new SQLite file

Nine of ten commits append a file. The tenth replaces these files with one, as a compaction does.
The mirror is off, and no data file is written. The clock is set ahead by a minute after each
commit, and by a year before the vacuum and the expiry.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import Self

import deltasql
from benchmarks.phases import SCHEMA, STATS
from deltasql import AddFile, Catalog, RemoveFile

_YEAR_S = 365 * 24 * 3600
_MINUTE_S = 60  # between two commits
_TIMED = 1_000


def main(uri: str, folder: str, commits: int) -> None:
    """Create the table, expire all versions but the last 1,000, and print the figures."""
    settings = {"mirror": {"mode": "off"}, "table": {"data_root": folder}}
    with _Clock() as clock, deltasql.connect(uri, create=True, **settings) as catalog:
        name = f"t{uuid.uuid4().hex[:8]}"
        catalog.create_table(name, SCHEMA)
        times, live = [], []
        for number in range(commits):
            began = time.perf_counter()
            live = _commit(catalog, name, number, live)
            times.append(time.perf_counter() - began)
            clock.ahead_s += _MINUTE_S
        _show("commit before", times[-_TIMED:])
        print(f"database before: {_size(catalog):.1f} MB")
        clock.ahead_s += _YEAR_S
        catalog.vacuum(name, dry_run=False)
        clock.ahead_s += _YEAR_S
        first = catalog.table(name).version() - 1_000
        began = time.perf_counter()
        plan = catalog.expire_history(name, before_version=first)
        print(f"dry run: {time.perf_counter() - began:.2f} s")
        began = time.perf_counter()
        done = catalog.expire_history(name, before_version=first, dry_run=False)
        print(f"expiry: {time.perf_counter() - began:.2f} s, {done.versions:,} versions")
        print("rows:", ", ".join(f"{key} {count:,}" for key, count in done.rows.items()))
        if plan.rows != done.rows:
            raise RuntimeError("the dry run counted other rows")
        print(f"database after: {_size(catalog):.1f} MB")
        times = []
        for number in range(commits, commits + _TIMED):
            began = time.perf_counter()
            live = _commit(catalog, name, number, live)
            times.append(time.perf_counter() - began)
            clock.ahead_s += _MINUTE_S
        _show("commit after", times)
        print(f"database after {_TIMED:,} more commits: {_size(catalog):.1f} MB")
        began = time.perf_counter()
        _compact(catalog)
        print(f"compacted in {time.perf_counter() - began:.1f} s: {_size(catalog):.1f} MB")


def _commit(catalog: Catalog, name: str, number: int, live: list[str]) -> list[str]:
    path = f"{uuid.uuid4()}.parquet"
    add = AddFile(path, {}, 10, 0, stats=STATS)
    with catalog.begin() as tx:
        if number % 10 < 9:
            tx.stage_table(name, [add])
            return [*live, path]
        tx.stage_table(name, [add, *(RemoveFile(each, size=10) for each in live)])
        return [path]


class _Clock:
    """Sets the clock of this process ahead."""

    ahead_s = 0

    def __enter__(self) -> Self:
        self._right = time.time, time.time_ns
        right, right_ns = self._right
        time.time = lambda: right() + self.ahead_s
        time.time_ns = lambda: right_ns() + self.ahead_s * 10**9
        return self

    def __exit__(self, *_: object) -> None:
        time.time, time.time_ns = self._right


def _show(label: str, times: list[float]) -> None:
    ordered = sorted(times)
    p99 = ordered[len(ordered) * 99 // 100]
    print(f"{label}: median {statistics.median(times) * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms")


def _size(catalog: Catalog) -> float:
    path = catalog.store.dialect.path
    if path is not None:
        files = path.parent.glob(f"{path.name}*")
        return sum(each.stat().st_size for each in files) / 1e6
    sizes = (
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n "
        "ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND c.relkind = 'r'"
    )
    return int(_raw(catalog, sizes).fetchone()[0]) / 1e6


def _compact(catalog: Catalog) -> None:
    backend = catalog.uri.backend
    if backend == "postgres":
        for name in ("dl_table_versions", "dl_add_files", "dl_file_stats", "dl_remove_files"):
            _raw(catalog, f"VACUUM FULL {name}")
    else:
        _raw(catalog, "VACUUM" if backend == "sqlite" else "CHECKPOINT")
    if backend == "sqlite":
        _raw(catalog, "PRAGMA wal_checkpoint(TRUNCATE)")


def _raw(catalog: Catalog, text: str):  # type: ignore[no-untyped-def]  # of any driver
    with catalog.store.session() as session:
        return session._connection.execute(text)  # type: ignore[attr-defined]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("uri", nargs="?")
    parser.add_argument("--commits", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        default = f"deltasql://sqlite/{Path(place) / 'meta.db'}"
        main(given.uri or default, place, given.commits)
