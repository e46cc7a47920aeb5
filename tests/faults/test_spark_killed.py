"""A Spark driver and its JVM are killed during a write; every leftover file has an intent.

`tests/spark/on_cluster.py` covers killed executors.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

import deltasql
from tests.commit.support import audit
from tests.mirror.support import open_mirrored
from tests.selection import smoke

if TYPE_CHECKING:
    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

ROOT = Path(__file__).parents[2]
CASES = [
    ("append", "writing"),
    ("overwrite", "writing"),
    ("merge", "writing"),
    ("merge", "committing"),
    ("append", "ratified"),
]
FIRST = pa.table({"id": range(900, 1100), "p": [n % 3 for n in range(200)], "v": [0] * 200})
NEW = range(1000, 3000)


@pytest.mark.everything("a JVM is started and killed")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "case", smoke(CASES, CASES[:1], "a JVM is started and killed"), ids="-".join
)
def test_write_of_a_killed_driver_is_atomic_and_its_files_have_intents(
    sqlite_uri: DeltaSqlUri,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[str, str],
) -> None:
    what, point = case
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        for name in ("t", "u"):
            catalog.create_table(name, FIRST.schema, partition_by=["p"])
            with catalog.begin() as tx:
                tx.write(name, FIRST)
        kill_at(sqlite_uri, tmp_path, what, point)
        happened = point == "ratified"
        found = ids(catalog)
        assert found == (expected(what) if happened else {"t": [*FIRST_IDS], "u": [*FIRST_IDS]})
        audit(catalog)
        catalog.mirror.run(once=True)
        for name in ("t", "u"):
            stock = deltalake.DeltaTable(catalog.table(name).location)
            assert sorted(stock.to_pyarrow_table()["id"].to_pylist()) == found[name]
            check_files(catalog, name)
        # A merge reads its source before it writes anything.
        is_announced = not happened and (what, point) != ("merge", "writing")
        assert bool(catalog.store.intents_before(2**60)) == is_announced
        # After eight days, a vacuum deletes exactly the files that the intents name.
        right = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: right() + 8 * 86_400 * 1_000_000_000)
        for name in ("t", "u"):
            table = deltasql.DeltaTable(sqlite_uri.with_table(name).to_string())
            table.vacuum(dry_run=False)
        assert catalog.store.intents_before(2**60) == []
        for name in ("t", "u"):
            live = set(catalog.table(name).snapshot().files()["path"].to_pylist())
            assert data_files(catalog, name) == live
        assert ids(catalog) == found


FIRST_IDS = FIRST["id"].to_pylist()


def expected(what: str) -> dict[str, list[int]]:
    both = sorted([*FIRST_IDS, *NEW])
    t = {"append": both, "overwrite": [*NEW], "merge": sorted({*FIRST_IDS, *NEW})}[what]
    return {"t": t, "u": both}


def kill_at(uri: DeltaSqlUri, folder: Path, what: str, point: str) -> None:
    """Run a driver until it reaches the point, then kill it and all processes that it started."""
    mark, log = folder / "mark", folder / "log"
    with log.open("w") as out:
        driver = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.faults.spark_driver",
                uri.to_string(),
                str(folder / "lake"),
                what,
                point,
                str(mark),
            ],
            cwd=ROOT,
            env={**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while not mark.exists():
            assert driver.poll() is None, log.read_text()[-5000:]
            time.sleep(0.05)
    finally:
        # One signal for the driver, its JVM and its Python workers.
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def ids(catalog: Catalog) -> dict[str, list[int]]:
    with catalog.begin() as tx:
        return {name: sorted(tx.read(name)["id"].to_pylist()) for name in ("t", "u")}


def data_files(catalog: Catalog, name: str) -> set[str]:
    root = Path(catalog.table(name).location)
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in found if path.parts[0] != "_delta_log"}


def check_files(catalog: Catalog, name: str) -> None:
    """Check that every referenced file exists and every other one has an intent."""
    table = catalog.table(name)
    reached = {
        path
        for version in range(table.version() + 1)
        for path in table.snapshot(version).files()["path"].to_pylist()
    }
    there = data_files(catalog, name)
    assert reached <= there
    announced = tuple(path for _, _, path, _ in catalog.store.intents_before(2**60))
    unreferenced = there - reached
    assert all(f"{table.location}/{path}".startswith(announced or ("\0",)) for path in unreferenced)
