"""Two concurrent reconcilers in separate processes; one is killed while it holds leases."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from deltasql.mirror.log.encode import commit_bytes
from deltasql.mirror.publish.reconcile import Reconciler
from deltasql.phases import hooked
from tests.commit.support import PROCESSES, SCHEMA, audit, file
from tests.mirror.support import commit_path, open_mirrored, published_versions

if TYPE_CHECKING:
    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

EVERYTHING = bool(os.environ.get("DELTASQL_EVERYTHING"))
DEATHS = 8 if EVERYTHING else 2
# More tables than one reconciler claims at a time, so that neither has all of them.
TABLES = [f"t{number}" for number in range(12)]
FAST_POLLING = {"mode": "off", "lease_s": 1, "poll_s": 0.02, "checkpoint_interval": 5}


@dataclass(frozen=True)
class StopFile:
    """An event that another process sets by creating a file."""

    path: Path

    def is_set(self) -> bool:
        return self.path.exists()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


def reconcile(uri: DeltaSqlUri, folder: Path, dies_at: int | None) -> None:
    """Reconcile until the stop file exists, or die before the nth version is published."""
    seen: list[str] = []

    def hook(point: str) -> None:
        seen.append(point)
        if dies_at is not None and seen.count("publishing") >= dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    stop: Any = StopFile(folder / "stop")
    with open_mirrored(uri, folder / "lake", mirror=FAST_POLLING) as catalog, hooked(hook):
        Reconciler(catalog.store, catalog.config).run(stop)


def append(catalog: Catalog, number: int) -> None:
    with catalog.begin() as tx:
        for name in TABLES[number % 3 :: 3]:
            tx.stage_table(name, [file(f"f{number}")])


@pytest.mark.one_database
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_second_reconciler_publishes_the_tables_leased_by_a_killed_reconciler(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with open_mirrored(catalog_uri, tmp_path / "lake", mirror=FAST_POLLING) as catalog:
        for name in TABLES:
            catalog.create_table(name, SCHEMA)
        lasting = PROCESSES.Process(target=reconcile, args=(catalog_uri, tmp_path, None))
        lasting.start()
        number = 0
        try:
            for death in range(DEATHS):
                mortal = PROCESSES.Process(
                    target=reconcile, args=(catalog_uri, tmp_path, 1 + 3 * death)
                )
                mortal.start()
                while mortal.is_alive():
                    append(catalog, number)
                    number += 1
                    mortal.join(0.02)
                assert mortal.exitcode == -signal.SIGKILL
            while any(each.pending for name in TABLES for each in catalog.mirror.status(name)):
                assert lasting.is_alive()
                time.sleep(0.05)
        finally:
            (tmp_path / "stop").touch()
            lasting.join(60)
        assert lasting.exitcode == 0
        audit(catalog)
        published = sum(check(catalog, name) for name in TABLES)
    print(f"{DEATHS} deaths, {number} transactions, {published} versions published")


def check(catalog: Catalog, name: str) -> int:
    """Check that the log equals SQL byte by byte; return the number of its versions."""
    table = catalog.table(name)
    [status] = catalog.mirror.status(name)
    assert (status.state, status.pending, status.claimed_by) == ("ACTIVE", 0, None)
    assert published_versions(table.location) == list(range(table.version() + 1))
    with catalog.store.session() as session:
        for version in range(table.version() + 1):
            wanted = commit_bytes(session, table.row.table_id, version)
            assert commit_path(table.location, version).read_bytes() == wanted
    stock = deltalake.DeltaTable(table.location)
    assert stock.version() == table.version()
    assert len(stock.file_uris()) == table.version()
    return table.version() + 1
