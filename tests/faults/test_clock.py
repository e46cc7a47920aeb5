"""Clocks that jump back or far ahead: commit timestamps increase, and no wait takes a year."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.mirror.publish.reconcile import Reconciler
from deltasql.phases import hooked
from tests.clock import Clock
from tests.commit.support import audit, file
from tests.mirror.support import open_mirrored, published_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

EVERYTHING = bool(os.environ.get("DELTASQL_EVERYTHING"))
COMMITS = 200 if EVERYTHING else 25
YEAR_S = 366 * 24 * 3600
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(catalog_uri, tmp_path / "lake") as catalog:
        catalog.create_table("t", ROWS.schema)
        catalog.create_table("u", ROWS.schema)
        yield catalog


def test_commit_timestamps_increase_with_any_clock(lake: Catalog, clock: Clock) -> None:
    rng = random.Random(7)
    for number in range(COMMITS):
        clock.ahead_s = rng.choice((0, -YEAR_S, -3600, -1, 60, 3600, 86400, YEAR_S)) * rng.random()
        with lake.begin() as tx:
            # A commit of one file to one table takes the fast path, the others the general one.
            tx.stage_table("t", [file(f"t{number}")])
            if number % 3 == 0:
                tx.stage_table("u", [file(f"u{number}")])
    clock.ahead_s = 0
    audit(lake)  # timestamps increase within a table
    for name in ("t", "u"):
        table = lake.table(name)
        history = table.history()
        timestamps = [row.committed_at_ms for row in reversed(history)]
        assert all(a < b for a, b in pairwise(timestamps))
        stock = deltalake.DeltaTable(table.location)
        assert stock.version() == table.version()
        in_history = [row["timestamp"] for row in reversed(stock.history())]
        # Log cleanup may have deleted versions that seem a year old; SQL has all of them.
        assert in_history == timestamps[-len(in_history) :]
        for version in rng.sample(range(table.version() + 1), 5):
            timestamp = datetime.fromtimestamp(timestamps[version] / 1000, UTC)
            assert table.snapshot(timestamp=timestamp).version == version
    groups: dict[str, set[int]] = {}
    for name in ("t", "u"):
        for row in lake.table(name).history():
            groups.setdefault(row.txn_id, set()).add(row.committed_at_ms)
    assert all(
        len(timestamps) == 1 for timestamps in groups.values()
    )  # a transaction has one timestamp


def reconcile(catalog: Catalog) -> int:
    return Reconciler(catalog.store, catalog.config).run_once()


@pytest.fixture
def quiet(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with a table that only a reconciler publishes."""
    with open_mirrored(catalog_uri, tmp_path / "lake", mirror={"mode": "off"}) as catalog:
        catalog.create_table("t", ROWS.schema)
        yield catalog


def commit(catalog: Catalog, name: str) -> None:
    with catalog.begin() as tx:
        tx.stage_table("t", [file(name)])


def test_reconciler_publishes_after_an_earlier_run_had_its_clock_ahead(
    quiet: Catalog, clock: Clock
) -> None:
    clock.ahead_s = YEAR_S
    assert reconcile(quiet) == 1
    clock.ahead_s = 0
    commit(quiet, "a")
    assert reconcile(quiet) == 1
    assert published_versions(quiet.table("t").location) == [0, 1]


def test_lease_from_a_clock_that_was_ahead_is_ignored(quiet: Catalog, clock: Clock) -> None:
    reconcile(quiet)
    commit(quiet, "a")
    clock.ahead_s = YEAR_S
    assert len(Reconciler(quiet.store, quiet.config)._claim()) == 1  # and then it dies
    clock.ahead_s = 0
    assert reconcile(quiet) == 1
    # A lease with a correct time is respected.
    commit(quiet, "b")
    assert len(Reconciler(quiet.store, quiet.config)._claim()) == 1
    assert reconcile(quiet) == 0


def test_backoff_ends_after_the_clock_was_ahead(quiet: Catalog, clock: Clock) -> None:
    def broken(point: str) -> None:
        if point == "publishing":
            raise OSError("no disk")

    clock.ahead_s = YEAR_S
    with hooked(broken):
        assert reconcile(quiet) == 0
    assert quiet.mirror.status("t")[0].state == "FAILED"
    clock.ahead_s = 0
    assert reconcile(quiet) == 1


def test_lease_is_released_after_the_clock_jumps_back(quiet: Catalog, clock: Clock) -> None:
    """The holder measures the lease with a monotonic clock and releases it at the end."""
    reconcile(quiet)
    commit(quiet, "a")

    def back(point: str) -> None:
        if point == "publishing":
            clock.ahead_s = -YEAR_S

    with hooked(back):
        assert reconcile(quiet) == 1
    clock.ahead_s = 0
    commit(quiet, "b")
    assert reconcile(quiet) == 1


def data_files(catalog: Catalog) -> set[str]:
    return {path.name for path in Path(catalog.table("t").location).glob("*.parquet")}


def vacuum(catalog: Catalog) -> list[str]:
    table = deltasql.DeltaTable(catalog.uri.with_table("t").to_string())
    return table.vacuum(dry_run=False)


def test_vacuum_keeps_reachable_files_with_any_clock(lake: Catalog, clock: Clock) -> None:
    for ahead_s in (0, YEAR_S, -YEAR_S, 0):
        clock.ahead_s = ahead_s
        with lake.begin() as tx:
            tx.write("t", ROWS, mode="overwrite")
    tx = lake.begin()  # an open transaction
    tx.write("t", ROWS, mode="append")
    before = data_files(lake)
    assert len(before) == 5
    for ahead_s in (0, -YEAR_S, 6 * 86400):
        clock.ahead_s = ahead_s
        vacuum(lake)
        # Recently removed files are kept, also those of commits from a clock that was a year ahead.
        assert data_files(lake) == before
    clock.ahead_s = 0
    tx.commit()
    location, last = lake.table("t").location, lake.table("t").version()
    for version in range(1, last + 1):
        found = deltalake.DeltaTable(location, version=version).to_pyarrow_table()
        assert found.num_rows == (6 if version == last else 3)
    clock.ahead_s = 3 * YEAR_S
    vacuum(lake)
    live = set(lake.table("t").snapshot().files()["path"].to_pylist())
    assert live <= data_files(lake)
    clock.ahead_s = 0
    assert deltalake.DeltaTable(location).to_pyarrow_table().num_rows == 6


def test_log_is_readable_after_cleanup_with_any_clock(
    catalog_uri: DeltaSqlUri, tmp_path: Path, clock: Clock
) -> None:
    with open_mirrored(catalog_uri, tmp_path / "lake") as lake:
        lake.create_table("t", ROWS.schema, properties={"delta.checkpointInterval": "3"})
        for number in range(14):
            clock.ahead_s = (0, YEAR_S, -YEAR_S, 40 * 86400)[number % 4]
            with lake.begin() as tx:
                tx.stage_table("t", [file(f"f{number}")])
        clock.ahead_s = 0
        stock = deltalake.DeltaTable(lake.table("t").location)
        assert stock.version() == 14
        assert len(stock.file_uris()) == 14
        lake.mirror.verify("t")


def test_lag_and_time_travel_use_the_current_clock(lake: Catalog, clock: Clock) -> None:
    clock.ahead_s = YEAR_S
    with lake.begin() as tx:
        tx.write("t", ROWS)
    clock.ahead_s = 0
    [status] = lake.mirror.status("t")
    assert status.lag_s == 0
    assert lake.table("t").snapshot(timestamp=datetime.now(UTC)).version == 0
