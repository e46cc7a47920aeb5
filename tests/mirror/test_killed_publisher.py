"""After kill -9 between any two writes of publishing, a reconciler completes the same log."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from deltasql.mirror.log.encode import commit_bytes
from deltasql.mirror.publish.status import add_missing_targets
from deltasql.phases import hooked
from tests.commit.support import SCHEMA, file, run
from tests.mirror.support import LOG, commit_name, forget_published, log_bytes, open_mirrored

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.parametrize("backend", ["sqlite", "postgres"])

# Two checkpoints are due, with a log cleanup after each.
PROPERTIES = {"delta.checkpointInterval": "4", "delta.logRetentionDuration": "interval 30 days"}
COMMITS = 9
# A point of the code, and the number of times it is reached before the kill.
POINTS = [
    ("publishing", 1),
    ("published", 1),
    ("publishing", 6),
    ("published", COMMITS + 1),
    ("checkpointing", 1),
    ("checkpointed", 1),
    ("recorded", 1),
]


@pytest.mark.one_database
@pytest.mark.parametrize(("point", "times"), POINTS)
def test_another_reconciler_completes_the_log_of_a_killed_reconciler(
    catalog_uri: DeltaSqlUri, tmp_path: Path, point: str, times: int
) -> None:
    with quiet(catalog_uri, tmp_path) as catalog:
        fill(catalog)
        [outcome] = run(reconcile_and_die, [(catalog_uri, tmp_path, point, times)])
        assert outcome.exitcode == -signal.SIGKILL
        expire_leases(catalog)
        catalog.mirror.run(once=True)
        check(catalog)


@pytest.mark.one_database
@pytest.mark.parametrize(("point", "times"), [("published", 3), ("recorded", 3), *POINTS[4:6]])
def test_reconciler_completes_the_log_of_a_killed_writer(
    catalog_uri: DeltaSqlUri, tmp_path: Path, point: str, times: int
) -> None:
    [outcome] = run(commit_and_die, [(catalog_uri, tmp_path, point, times)])
    assert outcome.exitcode == -signal.SIGKILL
    with quiet(catalog_uri, tmp_path) as catalog:
        catalog.mirror.run(once=True)
        check(catalog)


@pytest.mark.parametrize(("point", "times"), [("copied", 2), ("published", 2), ("recorded", 1)])
def test_killed_copy_to_a_replica_is_completed(
    catalog_uri: DeltaSqlUri, tmp_path: Path, point: str, times: int
) -> None:
    replica = tmp_path / "replica"
    with open_mirrored(catalog_uri, tmp_path / "lake") as catalog:
        fill(catalog)
        catalog.mirror.add_target("t", "second", str(replica))
        [outcome] = run(reconcile_and_die, [(catalog_uri, tmp_path, point, times)])
        assert outcome.exitcode == -signal.SIGKILL
        expire_leases(catalog)
        catalog.mirror.run(once=True)
        assert all(status.pending == 0 for status in catalog.mirror.status("t"))
        here, there = (commits(log_bytes(p)) for p in (catalog.table("t").location, replica))
        assert here == there
        for number in range(COMMITS):
            assert (replica / f"{number}.parquet").read_text() == str(number)


def quiet(uri: DeltaSqlUri, folder: Path) -> Catalog:
    return open_mirrored(uri, folder / "lake", mirror={"mode": "off"})


def fill(catalog: Catalog) -> None:
    place = Path(catalog.create_table("t", SCHEMA, properties=PROPERTIES).location)
    place.mkdir(parents=True, exist_ok=True)
    for number in range(COMMITS):
        (place / f"{number}.parquet").write_text(str(number))
        with catalog.begin() as tx:
            tx.stage_table("t", [file(f"{number}.parquet", size=1)])
    add_missing_targets(catalog.store)


def expire_leases(catalog: Catalog) -> None:
    with catalog.store.relaxed() as session:
        session.script("UPDATE dl_mirror_targets SET claimed_until_ms = 0")


def check(catalog: Catalog) -> None:
    """Assert that the log equals SQL, and the log that an undisturbed run writes."""
    table = catalog.table("t")
    place = Path(table.location)
    found = log_bytes(place)
    with catalog.store.session() as session:
        wanted = [
            commit_bytes(session, table.row.table_id, version)
            for version in range(table.version() + 1)
        ]
    assert list(commits(found).values()) == wanted
    [status] = catalog.mirror.status("t")
    assert (status.state, status.pending, status.claimed_by) == ("ACTIVE", 0, None)
    stock = DeltaTable(str(place))
    assert stock.version() == table.version()
    assert len(stock.file_uris()) == table.version()
    shutil.rmtree(place / LOG)
    forget_published(catalog.store, table.row, from_version=0)
    catalog.mirror.run(once=True)
    undisturbed = log_bytes(place)
    assert undisturbed.keys() <= found.keys(), "a writer makes each checkpoint, a span the last"
    suffixes = (".json", ".crc")
    assert {n: d for n, d in undisturbed.items() if n.endswith(suffixes)} == {
        n: d for n, d in found.items() if n.endswith(suffixes)
    }


def commits(log: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in log.items() if commit_name(name)}


def reconcile_and_die(_: Any, uri: DeltaSqlUri, folder: Path, point: str, times: int) -> None:
    with quiet(uri, folder) as catalog, hooked(killer(point, times)):
        catalog.mirror.run(once=True)


def commit_and_die(_: Any, uri: DeltaSqlUri, folder: Path, point: str, times: int) -> None:
    with open_mirrored(uri, folder / "lake") as catalog, hooked(killer(point, times)):
        fill(catalog)


def killer(point: str, times: int) -> Callable[[str], None]:
    """Return a hook that kills this process when it reaches a point for the nth time."""
    seen: list[str] = []

    def hook(reached: str) -> None:
        seen.append(reached)
        if seen.count(point) == times:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook
