"""A commit killed with SIGKILL at any phase happened entirely or not at all."""

from __future__ import annotations

import os
import signal
import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from deltasql.phases import PHASES, hooked
from tests.commit.support import SCHEMA, audit, file, live, open_catalog, run

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri


ROWS = pa.table({"id": [1, 2, 3]})
DURABLE = PHASES.index("ratified")
# A phase and how often it is reached before the kill; some occur once per table. tests/faults
# covers commits to one table and other faults.
TWO_TABLES = [*((phase, 1) for phase in PHASES), ("inserting", 2), ("published", 2)]


@pytest.mark.two_databases
@pytest.mark.parametrize(("phase", "times"), TWO_TABLES)
def test_killed_commit_to_two_tables_is_atomic(
    catalog_uri: DeltaSqlUri, tmp_path: Path, phase: str, times: int
) -> None:
    check_crash(catalog_uri, tmp_path, phase, times, tables=["t", "u"])


@pytest.mark.one_database
@pytest.mark.parametrize("phase", PHASES)
def test_killed_create_table_is_atomic(
    catalog_uri: DeltaSqlUri, tmp_path: Path, phase: str
) -> None:
    [outcome] = run(create_and_die, [(catalog_uri, tmp_path, phase)])
    assert outcome.exitcode == -signal.SIGKILL
    with mirrored(catalog_uri, tmp_path) as catalog:
        audit(catalog)
        happened = PHASES.index(phase) >= DURABLE  # type: ignore[arg-type]
        assert catalog.exists("t") == happened
        catalog.create_table("t", SCHEMA, if_exists="ignore")
        append(catalog, ["t"])
        assert DeltaTable(catalog.table("t").location).version() == 1


def test_acknowledged_commits_survive_a_kill_at_any_time(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    """Acknowledged commits are kept, and at most one commit without an acknowledgement exists."""
    with open_catalog(catalog_uri) as catalog:
        for name in ("t", "u"):
            catalog.create_table(name, SCHEMA)
    committed = 0
    for life in range(4):
        report = tmp_path / f"life{life}"
        patience_s = 0.1 + 0.037 * life
        [outcome] = run(commit_until_killed, [(catalog_uri, life, report, patience_s)])
        assert outcome.exitcode == -signal.SIGKILL
        with open_catalog(catalog_uri) as catalog, catalog.begin() as tx:
            # Waits until the server has finished the transaction of the killed process.
            for name in ("t", "u"):
                tx.stage_table(name, file(f"between{life}"))
        acknowledged = report.read_text().split()
        with open_catalog(catalog_uri) as catalog:
            audit(catalog)
            found = live(catalog)
            assert found == live(catalog, "u")
            assert set(acknowledged) <= set(found)
            assert len(found) - committed - 1 - len(acknowledged) in (0, 1)
            committed = len(found)


def commit_until_killed(
    _: Any, uri: DeltaSqlUri, life: int, report: Path, patience_s: float
) -> None:
    with open_catalog(uri) as catalog, report.open("a", buffering=1) as acknowledged:
        for number in count():
            if number == 1:
                threading.Timer(patience_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
            with catalog.begin() as tx:
                for name in ("t", "u"):
                    tx.stage_table(name, file(f"{life}-{number}"))
            acknowledged.write(f"{life}-{number}\n")


def check_crash(
    uri: DeltaSqlUri, folder: Path, phase: str, times: int, *, tables: list[str]
) -> None:
    with mirrored(uri, folder) as catalog:
        for name in tables:
            catalog.create_table(name, SCHEMA)
        append(catalog, tables)
        before = {name: live(catalog, name) for name in tables}
    [outcome] = run(overwrite_and_die, [(uri, folder, phase, times, tables)])
    assert outcome.exitcode == -signal.SIGKILL
    with mirrored(uri, folder) as catalog:
        audit(catalog)
        happened = PHASES.index(phase) >= DURABLE  # type: ignore[arg-type]
        for name in tables:
            assert catalog.table(name).version() == (2 if happened else 1)
            assert (live(catalog, name) != before[name]) == happened
            assert len(live(catalog, name)) == 1
        # Every file of the killed transaction that is not part of the table has an intent.
        orphans = catalog.store.intents_before(int(time.time() * 1000) + 1)
        assert len(orphans) == (0 if happened else len(tables))
        assert all(os.path.exists(path) for _, _, path, _ in orphans)
        append(catalog, tables)
        audit(catalog)
        for name in tables:
            check_mirror(catalog, name)


def check_mirror(catalog: Catalog, name: str) -> None:
    """Check that the next commit also published the commit of the killed process."""
    table = catalog.table(name)
    stock = DeltaTable(table.location)
    assert stock.version() == table.version()
    assert len(stock.file_uris()) == len(live(catalog, name))


def overwrite_and_die(
    _: Any, uri: DeltaSqlUri, folder: Path, phase: str, times: int, tables: list[str]
) -> None:
    with mirrored(uri, folder) as catalog:
        tx = catalog.begin()
        for name in tables:
            tx.write(name, ROWS, mode="overwrite")
        with hooked(killer(phase, times)):
            tx.commit()


def create_and_die(_: Any, uri: DeltaSqlUri, folder: Path, phase: str) -> None:
    with mirrored(uri, folder) as catalog, hooked(killer(phase, 1)):
        catalog.create_table("t", SCHEMA)


def killer(phase: str, times: int) -> Any:
    """Return a hook that kills this process when a phase is reached for the nth time."""
    seen: list[str] = []

    def hook(reached: str) -> None:
        seen.append(reached)
        if seen.count(phase) == times:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def append(catalog: Catalog, tables: list[str]) -> None:
    with catalog.begin() as tx:
        for name in tables:
            tx.write(name, ROWS)


def mirrored(uri: DeltaSqlUri, folder: Path) -> Catalog:
    """Open a catalog that publishes as part of each commit."""
    settings = {"data_root": str(folder / "lake")}
    return open_catalog(uri, mirror={"mode": "sync"}, table=settings)
