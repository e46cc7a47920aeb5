"""A full or read-only disk for the data, the log or the catalog."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

from deltasql.exceptions import TxnLogStorageError, TxnLogStoreError
from deltasql.phases import hooked
from tests.commit.support import audit
from tests.conftest import BACKENDS, new_catalog_uri
from tests.faults.small_disk import SmallDisk, small_disk
from tests.mirror.support import open_mirrored
from tests.selection import smoke

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

EVERYTHING = bool(os.environ.get("DELTASQL_EVERYTHING"))
# Free bytes: with more of them, a writer gets further before it fails.
LEFT = range(0, 192 * 1024, 24 * 1024) if EVERYTHING else (0, 64 * 1024)
MANY = pa.table({"id": range(20_000), "text": [f"{n:x}" * 9 for n in range(20_000)]})
RESERVED = {"sqlite": 0, "duckdb": 8 << 20}
on_stores = pytest.mark.parametrize(
    "backend", [pytest.param(each, marks=pytest.mark.one_database) for each in BACKENDS]
)
FEW = MANY.slice(0, 3)
AT_ONCE = {"mirror": {"mode": "sync", "initial_backoff_s": 0}}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


def append(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", MANY)
        tx.write("u", MANY)


def overwrite(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", MANY, mode="overwrite")


def merge(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        merger = tx.merge("t", MANY, "t.id = s.id", source_alias="s", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()


def optimize(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.optimize("t")


CHANGES = (append, overwrite, merge, optimize)


def fill(catalog: Catalog) -> None:
    """Create two tables with a few rows in two files each."""
    for name in ("t", "u"):
        catalog.create_table(name, MANY.schema)
        for _ in range(2):
            with catalog.begin() as tx:
                tx.write(name, FEW)


def state(catalog: Catalog) -> dict[str, tuple[int, list[int]]]:
    """Return the version and the rows of both tables."""
    with catalog.begin() as tx:
        return {
            name: (catalog.table(name).version(), sorted(tx.read(name)["id"].to_pylist()))
            for name in ("t", "u")
        }


def check(catalog: Catalog) -> None:
    """Check that SQL and published logs are consistent, and that no file is unknown or missing."""
    audit(catalog)
    catalog.mirror.run(once=True)
    intended = {path for _, _, path, _ in catalog.store.intents_before(2**60)}
    for name, (version, ids) in state(catalog).items():
        root = Path(catalog.table(name).location)
        stock = deltalake.DeltaTable(str(root))
        assert stock.version() == version
        assert sorted(stock.to_pyarrow_table()["id"].to_pylist()) == ids
        history = {
            path
            for each in range(version + 1)
            for path in catalog.table(name).snapshot(each).files()["path"].to_pylist()
        }
        there = {path.name for path in root.iterdir() if path.is_file()}
        assert history <= there
        assert {path for path in there - history if str(root / path) not in intended} == set()


# Data


@on_stores
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_full_data_disk_fails_only_the_change(
    catalog_uri: DeltaSqlUri, disk: SmallDisk, change: Callable[[Catalog], None]
) -> None:
    with open_mirrored(catalog_uri, disk.place, **AT_ONCE) as catalog:
        fill(catalog)
        before = state(catalog)
        messages = []
        for left in LEFT:
            disk.fill(leave=left)
            try:
                change(catalog)
            except TxnLogStorageError as error:
                messages.append(str(error))
                assert state(catalog) == before
            else:
                before = state(catalog)
        assert all("No space left" in each for each in messages)
        assert messages
        disk.free()
        change(catalog)
        assert state(catalog) != before or change is optimize
        check(catalog)


@on_stores
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_read_only_data_disk_fails_only_the_change(
    catalog_uri: DeltaSqlUri, disk: SmallDisk, change: Callable[[Catalog], None]
) -> None:
    with open_mirrored(catalog_uri, disk.place, **AT_ONCE) as catalog:
        fill(catalog)
        before = state(catalog)
        disk.read_only()
        with pytest.raises(TxnLogStorageError, match="Read-only"):
            change(catalog)
        assert state(catalog) == before
        disk.writable()
        change(catalog)
        check(catalog)


def test_file_size_limit_fails_only_the_change(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    """This test needs no permission to mount a disk."""
    much = pa.table({"id": range(4096), "text": [os.urandom(1024).hex() for _ in range(4096)]})
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        fill(catalog)
        before = state(catalog)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, usual[1]))
        try:
            with pytest.raises(TxnLogStorageError, match="File too large"), catalog.begin() as tx:
                tx.write("t", much)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        assert state(catalog) == before
        assert catalog.store.intents_before(2**60) == []
        append(catalog)
        check(catalog)


# Log


@on_stores
@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_commit_succeeds_when_the_log_disk_is_full_or_read_only(
    catalog_uri: DeltaSqlUri, disk: SmallDisk, fault: str
) -> None:
    def at(phase: str) -> None:
        if phase == "ratified":
            disk.fill() if fault == "full" else disk.read_only()

    with open_mirrored(catalog_uri, disk.place, **AT_ONCE) as catalog:
        fill(catalog)
        for _ in range(12):  # a checkpoint is due in one of them
            with hooked(at):
                append(catalog)
            disk.writable()
            disk.free()
        assert state(catalog)["t"][0] == 14
        catalog.mirror.run(once=True)
        check(catalog)


@on_stores
@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_replica_catches_up_after_its_disk_was_full(
    catalog_uri: DeltaSqlUri, disk: SmallDisk, tmp_path: Path, fault: str
) -> None:
    with open_mirrored(catalog_uri, tmp_path / "lake", **AT_ONCE) as catalog:
        fill(catalog)
        replica = disk.place / "replica"
        catalog.mirror.add_target("t", "second", str(replica))
        for left in LEFT:
            disk.fill(leave=left)
            if fault == "read-only":
                disk.read_only()
            append(catalog)
            catalog.mirror.run(once=True)
            own, second = sorted(
                catalog.mirror.status("t"), key=lambda each: each.target != "table"
            )
            assert (own.state, own.pending) == ("ACTIVE", 0)
            assert second.pending > 0
            disk.writable()
        disk.free()
        catalog.mirror.run(once=True)
        assert [each.pending for each in catalog.mirror.status("t")] == [0, 0]
        found = deltalake.DeltaTable(str(replica)).to_pyarrow_table()["id"].to_pylist()
        assert sorted(found) == state(catalog)["t"][1]
        check(catalog)


# Catalog


@pytest.mark.parametrize("backend", ["sqlite", "duckdb"])
@pytest.mark.parametrize(
    "change",
    smoke(CHANGES[:3], ("append",), "a full disk under more changes", named=True),
    ids=lambda change: change.__name__,
)
def test_commit_is_atomic_when_the_catalog_disk_is_full(
    backend: str, disk: SmallDisk, tmp_path: Path, change: Callable[[Catalog], None]
) -> None:
    [uri] = new_catalog_uri(backend, disk.place)
    lake = tmp_path / "lake"
    with open_mirrored(uri, lake) as catalog:
        fill(catalog)
    for left in LEFT:
        with open_mirrored(uri, lake, **AT_ONCE) as catalog:
            # DuckDB does not begin a transaction without some free space.
            before, error = until_full(catalog, change, disk, left + RESERVED[backend])
        assert "full" in error
        disk.free()
        with open_mirrored(uri, lake) as catalog:
            assert state(catalog) == before
    with open_mirrored(uri, lake) as catalog:
        change(catalog)
        check(catalog)


def until_full(
    catalog: Catalog, change: Callable[[Catalog], None], disk: SmallDisk, left: int
) -> tuple[dict[str, tuple[int, list[int]]], str]:
    """Return the state before the change that found the disk full, and its error."""
    before = state(catalog)
    disk.fill(leave=left)
    while True:
        try:
            change(catalog)
        except TxnLogStoreError as error:
            return before, str(error)
        before = state(catalog)


@pytest.mark.parametrize("backend", ["sqlite", "duckdb"])
def test_read_only_catalog_disk_is_reported(backend: str, disk: SmallDisk, tmp_path: Path) -> None:
    [uri] = new_catalog_uri(backend, disk.place)
    with open_mirrored(uri, tmp_path / "lake") as catalog:
        fill(catalog)
        before = state(catalog)
    disk.read_only()
    with (
        pytest.raises(TxnLogStoreError, match="Help: "),
        open_mirrored(uri, tmp_path / "lake") as catalog,
    ):
        append(catalog)
    disk.writable()
    with open_mirrored(uri, tmp_path / "lake") as catalog:
        assert state(catalog) == before
        append(catalog)
        check(catalog)
