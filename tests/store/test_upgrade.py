"""Catalogs that deltasql 0.1.0 created, and its processes that run during and after the upgrade.

The wheel of 0.1.0 is compiled from its commit (`make baseline`) and installed in an environment of
its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest
from benchmarks import baseline
from tests.compat.environments import Release, ReleaseError, environment
from tests.store import release_0_1

import deltasql
from deltasql.exceptions import StoreUnavailableError
from deltasql.store.migrations import latest_version
from deltasql.uri import DeltaSqlUri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog

pytestmark = [
    pytest.mark.everything("compiles and installs deltasql 0.1.0"),
    pytest.mark.xdist_group("release_0_1"),  # one process installs it
    pytest.mark.timeout(1800),
]
RUNNING = pytest.mark.parametrize("backend", ["sqlite", "postgres"])  # a DuckDB file has one opener


@pytest.fixture(scope="session")
def old_python() -> Path:
    """The Python of an environment with 0.1.0."""
    baseline.site()
    [wheel] = (baseline.folder() / "wheels").glob("*.whl")
    package = f"deltasql[cli,duckdb,postgres] @ {wheel.as_uri()}"
    # 0.1.0 imports numpy without declaring it.
    return environment(Path("deltasql") / baseline.VERSION, [package, "numpy", "duckdb==1.5.5"])


@contextmanager
def running(
    python: Path, uri: DeltaSqlUri, folder: Path, *, mirror: str = "sync"
) -> Iterator[Release]:
    """Run a process of 0.1.0 that has the catalog open."""
    with Release(python, "tests.store.release_0_1") as old:
        assert old.request("version") == "0.1.0"
        root = str(folder / "lake")
        old.request("connect", uri=uri.to_string(), root=root, mode=mirror)
        yield old


def connect(uri: DeltaSqlUri, folder: Path) -> Catalog:
    return deltasql.connect(uri, table={"data_root": str(folder / "lake")})


def command(python: Path, uri: DeltaSqlUri, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line of 0.1.0."""
    return subprocess.run(
        [str(python), "-m", "deltasql.cli.main", "--uri", uri.to_string(), *arguments],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )


def problems(catalog: Catalog) -> list[tuple[str, str | None]]:
    """Return the failed checks of `doctor`, with the table of each."""
    checks = catalog.inspect.doctor().checks
    return [(each.name, each.table) for each in checks if each.status == "failure"]


def numbers(catalog: Catalog, table: str) -> list[int]:
    return list(catalog.query(f"SELECT n FROM {table} ORDER BY n").read_all()["n"].to_pylist())


def published(catalog: Catalog, table: str) -> list[int]:
    """Return the rows that deltalake reads from the published log."""
    stock = deltalake.DeltaTable(catalog.table(table).location)
    return sorted(stock.to_pyarrow_table()["n"].to_pylist())


def test_every_version_of_a_0_1_0_catalog_is_unchanged_after_the_upgrade(
    old_python: Path, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with running(old_python, catalog_uri, tmp_path) as old:
        old.request("make")
        expected = old.request("states")
    with connect(catalog_uri, tmp_path) as catalog:
        assert catalog.health().schema_version == latest_version()
        found = {each.full_name: release_0_1.versions_of(each) for each in catalog.tables()}
        assert found == expected
        assert problems(catalog) == []
        assert all(report.ok for report in catalog.mirror.verify(versions="all", data=True))
        with catalog.begin() as tx:
            more = pa.table({"id": [6], "day": ["wed"], "price": [6.0]})
            tx.write("orders", more)
            tx.delete("stock", "sku = 'ink'")
        assert catalog.undrop("gone").version() == 0
        assert all(report.ok for report in catalog.mirror.verify(versions="all", data=True))


def test_versions_left_unpublished_by_0_1_0_are_published_after_the_upgrade(
    old_python: Path, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with running(old_python, catalog_uri, tmp_path) as old:
        old.request("append", table="events", numbers=[1])
    with running(old_python, catalog_uri, tmp_path, mirror="off") as old:
        for number in (2, 3):
            old.request("append", table="events", numbers=[number])
        old.request("append", table="silent", numbers=[4])
    with connect(catalog_uri, tmp_path) as catalog:
        pending = {each.table: each.pending for each in catalog.mirror.status()}
        assert pending == {"events": 2, "silent": 1}
        assert catalog.mirror.publish() == 3
        assert (published(catalog, "events"), published(catalog, "silent")) == ([1, 2, 3], [4])
        assert all(report.ok for report in catalog.mirror.verify(versions="all"))


def test_vacuum_deletes_the_uncommitted_file_of_a_killed_0_1_0_writer(
    old_python: Path, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with running(old_python, catalog_uri, tmp_path) as old:
        old.request("append", table="events", numbers=[1])
        old.request("stage", table="events", numbers=[2])
        old.kill()
    with connect(catalog_uri, tmp_path) as catalog:
        place = Path(catalog.table("events").location)
        [(_, _, path, _)] = catalog.store.intents_before(2**60)
        assert len(list(place.rglob("*.parquet"))) == 2
        with catalog.store.change() as (session, _):
            session.script("UPDATE dl_staged_files SET staged_at_ms = 0")
        deleted = catalog.vacuum("events", dry_run=False)
        assert [str(place / each) for each in deleted] == [path], deleted
        assert len(list(place.rglob("*.parquet"))) == 1
        assert catalog.store.intents_before(2**60) == []
        assert numbers(catalog, "events") == [1]


@RUNNING
def test_running_0_1_0_writer_commits_its_open_transaction_after_the_upgrade(
    old_python: Path, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with running(old_python, catalog_uri, tmp_path) as old:
        old.request("append", table="events", numbers=[1])
        old.request("stage", table="events", numbers=[2])
        with connect(catalog_uri, tmp_path) as catalog:
            assert catalog.health().schema_version == latest_version()
            with catalog.begin() as tx:
                tx.write("events", pa.table({"n": [3]}))
            old.request("commit")
            old.request("append", table="events", numbers=[4])
            assert numbers(catalog, "events") == [1, 2, 3, 4]
            assert published(catalog, "events") == [1, 2, 3, 4]
            assert problems(catalog) == []


@RUNNING
def test_running_0_1_0_process_publishes_commits_of_this_release(
    old_python: Path, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with running(old_python, catalog_uri, tmp_path) as old:
        old.request("append", table="events", numbers=[1])
        settings = {"mirror": {"mode": "off"}, "table": {"data_root": str(tmp_path / "lake")}}
        with deltasql.connect(catalog_uri, **settings) as catalog:
            with catalog.begin() as tx:
                tx.write("events", pa.table({"n": [2]}))
                tx.write("new", pa.table({"n": [3]}))
            with catalog.begin() as tx:
                tx.delete("events", "n = 1")
            assert old.request("publish") == 3
            assert (published(catalog, "events"), published(catalog, "new")) == ([2], [3])
            assert all(report.ok for report in catalog.mirror.verify(versions="all"))


@RUNNING
def test_upgrade_during_commits_of_0_1_0_loses_no_commit(
    old_python: Path, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with running(old_python, catalog_uri, tmp_path) as old:
        old.request("append", table="events", numbers=[0])
        answers: list[int] = []

        def append() -> None:
            for number in range(1, 40):
                answers.append(old.request("append", table="events", numbers=[number]))

        writer = threading.Thread(target=append)
        writer.start()
        with connect(catalog_uri, tmp_path) as catalog:
            assert catalog.health().schema_version == latest_version()
            is_concurrent = writer.is_alive()
            writer.join()
            assert is_concurrent
            assert answers == list(range(1, 40))
            assert numbers(catalog, "events") == list(range(40))
            assert all(report.ok for report in catalog.mirror.verify(versions="all"))


@RUNNING
def test_doctor_reports_tables_of_a_running_0_1_0_process_until_they_are_recorded(
    old_python: Path, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with running(old_python, catalog_uri, tmp_path) as old:
        old.request("append", table="events", numbers=[1])
        with connect(catalog_uri, tmp_path) as catalog:
            inside = f"{catalog.table('events').location}/inside"
            old.request("create_at", table="inside", location=inside)
            old.request("append", table="dropped", numbers=[1])
            old.request("drop", table="dropped")
            assert problems(catalog) == [("locations", "inside")]
            # The vacuum records the folder first, so it keeps the files of the table inside.
            catalog.vacuum(
                "events",
                dry_run=False,
                full=True,
                retention_hours=0,
                enforce_retention_duration=False,
            )
            assert numbers(catalog, "inside") == [1]
            assert problems(catalog) == []
            assert catalog.undrop("dropped").version() == 0
            old.request("drop", table="events")
            assert catalog.store.record_locations() == 1
            assert catalog.migrate() == []


def test_duckdb_file_that_0_1_0_has_open_is_not_upgraded(old_python: Path, tmp_path: Path) -> None:
    uri = DeltaSqlUri(backend="duckdb", database=str(tmp_path / "meta.duckdb"))
    with running(old_python, uri, tmp_path) as old:
        old.request("append", table="events", numbers=[1])
        with pytest.raises(StoreUnavailableError, match="Only one process"):
            connect(uri, tmp_path)
        old.request("append", table="events", numbers=[2])
    with connect(uri, tmp_path) as catalog:
        assert numbers(catalog, "events") == [1, 2]


def test_0_1_0_refuses_to_open_an_upgraded_catalog(
    old_python: Path, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with connect(catalog_uri, tmp_path) as catalog, catalog.begin() as tx:
        tx.write("events", pa.table({"n": [1]}))
    message = f"the catalog has schema version {latest_version()}, this release knows 3"
    with (
        pytest.raises(
            ReleaseError, match=rf"SchemaVersionError: {message}\nHelp: Upgrade deltasql"
        ),
        running(old_python, catalog_uri, tmp_path),
    ):
        pass
    listed = command(old_python, catalog_uri, "table", "list")
    assert (listed.returncode, listed.stdout) == (3, "")
    assert message in listed.stderr


@pytest.mark.parametrize("backend", ["sqlite", "duckdb"])
def test_backup_and_rebuild_return_a_catalog_to_0_1_0(
    old_python: Path, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    database, copy = Path(catalog_uri.database), tmp_path / "backup"
    with running(old_python, catalog_uri, tmp_path) as old:
        old.request("append", table="events", numbers=[1])
    shutil.copy(database, copy)
    with connect(catalog_uri, tmp_path) as catalog:
        with catalog.begin() as tx:
            tx.write("events", pa.table({"n": [2]}))
        with catalog.begin() as tx:
            tx.write("later", pa.table({"n": [3]}))
    for path in tmp_path.glob(f"{database.name}*"):
        path.unlink()
    shutil.copy(copy, database)
    rebuilt = command(old_python, catalog_uri, "rebuild", str(tmp_path / "lake"))
    assert rebuilt.returncode == 0, rebuilt.stderr
    with running(old_python, catalog_uri, tmp_path) as old:
        rows = {table: states[max(states)][1] for table, states in old.request("states").items()}
        assert rows == {"events": [{"n": 1}, {"n": 2}], "later": [{"n": 3}]}
        assert old.request("append", table="events", numbers=[4]) == 2
