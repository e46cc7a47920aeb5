"""Log maintenance after a published version: when it runs, and what a failure may not break."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.api.catalog.connect import close_all
from deltasql.mirror.log import cleanup
from deltasql.mirror.log.encode import CommitFile
from deltasql.mirror.log.last_checkpoint import last_checkpoint_version
from deltasql.mirror.publish.reconcile import Reconciler
from deltasql.mirror.publish.write_commit import maintain
from deltasql.phases import hooked
from deltasql.storage import open_storage
from tests.conftest import add_file
from tests.mirror.checkpoint_support import table_row, table_storage
from tests.mirror.support import checkpoint_versions, log_names, open_mirrored, published_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

INTERVAL = {"delta.checkpointInterval": "2"}


@pytest.fixture
def mirrored(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog that publishes every commit."""
    with open_mirrored(catalog_uri, tmp_path / "lake") as catalog:
        yield catalog


def append(catalog: Catalog, times: int = 1, table: str = "t") -> None:
    """Append a row several times."""
    for _ in range(times):
        with catalog.begin() as tx:
            tx.write(table, pa.table({"id": [1]}))


def create(catalog: Catalog, **properties: str) -> str:
    """Create a table with one column; return its location."""
    named = {**INTERVAL, **{f"delta.{name}": value for name, value in properties.items()}}
    catalog.create_table("t", pa.schema([("id", pa.int64())]), properties=named)
    return table_row(catalog).location


def test_checkpoint_interval_of_the_table_applies(mirrored: Catalog) -> None:
    location = create(mirrored)
    append(mirrored, 7)
    assert checkpoint_versions(location) == [2, 4, 6]
    assert last_checkpoint_version(table_storage(mirrored)) == 6
    assert len([name for name in log_names(location) if name.endswith(".crc")]) == 8


def test_checkpoint_interval_of_the_configuration_is_the_default(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    mirror = {"mode": "sync", "checkpoint_interval": 3}
    with open_mirrored(catalog_uri, tmp_path / "lake", mirror=mirror) as catalog:
        catalog.create_table("t", pa.schema([("id", pa.int64())]))
        append(catalog, 7)
        assert checkpoint_versions(table_row(catalog).location) == [3, 6]


def test_every_table_of_a_transaction_gets_its_checkpoint(mirrored: Catalog) -> None:
    create(mirrored)
    mirrored.create_table("u", pa.schema([("id", pa.int64())]), properties=INTERVAL)
    for _ in range(2):
        with mirrored.begin() as tx:
            tx.write("t", pa.table({"id": [1]}))
            tx.write("u", pa.table({"id": [1]}))
    for name in ("t", "u"):
        assert checkpoint_versions(table_row(mirrored, name).location) == [2]


def test_log_is_cleaned_after_a_checkpoint(
    mirrored: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = create(mirrored)
    append(mirrored, 5)
    later = mirrored.table("t").snapshot().committed_at_ms + 30 * 86_400_000
    monkeypatch.setattr(cleanup, "now_ms", lambda: later)
    append(mirrored)
    assert published_versions(location) == [4, 5, 6]
    assert checkpoint_versions(location) == [4, 6]
    assert deltalake.DeltaTable(location).to_pyarrow_table().num_rows == 6


class Stopped(BaseException):
    """Raised in place of a process that ends."""


@pytest.mark.parametrize("phase", ["published", "checkpointing", "checkpointed", "cleaning"])
def test_table_is_readable_after_maintenance_is_interrupted(
    mirrored: Catalog, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    location = create(mirrored)
    append(mirrored, 3)
    later = mirrored.table("t").snapshot().committed_at_ms + 30 * 86_400_000
    monkeypatch.setattr(cleanup, "now_ms", lambda: later)
    seen = []

    def stop(reached: str) -> None:
        seen.append(reached)
        if reached == phase:
            raise Stopped

    with pytest.raises(Stopped), hooked(stop):
        append(mirrored)
    assert seen[-1] == phase
    assert deltalake.DeltaTable(location).to_pyarrow_table().num_rows == 4
    assert not [name for name in log_names(location) if name.endswith(".tmp")]
    # The next commit continues from the files that exist.
    append(mirrored, 2)
    assert deltalake.DeltaTable(location).to_pyarrow_table().num_rows == 6
    assert checkpoint_versions(location)[-1] == 6


def test_maintenance_failure_is_logged_and_does_not_fail_the_commit(
    mirrored: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    location = create(mirrored)
    append(mirrored)
    # A folder has the name of the checkpoint.
    (Path(location) / "_delta_log" / f"{2:020d}.checkpoint.parquet" / "x").mkdir(parents=True)
    with caplog.at_level(logging.WARNING, "deltasql"):
        append(mirrored)
    assert "log maintenance failed" in caplog.text
    assert published_versions(location) == [0, 1, 2]
    append(mirrored, 2)
    assert last_checkpoint_version(table_storage(mirrored)) == 4


@contextmanager
def without_the_hint() -> Iterator[None]:
    """Fail once after a checkpoint is written and before its hint is."""
    failed: list[str] = []

    def fail(point: str) -> None:
        if point == "checkpointed" and not failed:
            failed.append(point)
            raise OSError("no disk")

    with hooked(fail):
        yield
    assert failed


def test_next_published_version_writes_a_missing_hint(mirrored: Catalog) -> None:
    location = create(mirrored)
    append(mirrored)
    with without_the_hint():
        append(mirrored)
    assert checkpoint_versions(location) == [2]
    assert last_checkpoint_version(table_storage(mirrored)) is None
    append(mirrored)
    assert last_checkpoint_version(table_storage(mirrored)) == 2
    assert mirrored.mirror.verify("t")[0].ok


@pytest.mark.parametrize("who", ["process", "reconciler"])
def test_other_processes_write_a_missing_hint(
    catalog_uri: DeltaSqlUri, tmp_path: Path, who: str
) -> None:
    with open_mirrored(catalog_uri, tmp_path / "lake") as first:
        create(first)
        append(first, 3)
        with without_the_hint():
            append(first)
        assert last_checkpoint_version(table_storage(first)) == 2
    mirror = {"mode": "off" if who == "reconciler" else "sync"}
    with open_mirrored(catalog_uri, tmp_path / "lake", mirror=mirror) as second:
        append(second)
        if who == "reconciler":
            assert Reconciler(second.store, second.config).run_once() == 1
        assert last_checkpoint_version(table_storage(second)) == 4
        assert second.mirror.verify("t")[0].ok


def test_checkpoint_skipped_by_a_commit_is_not_written_later(mirrored: Catalog) -> None:
    location = create(mirrored)
    append(mirrored)
    uri = mirrored.uri.with_table("t").to_string()
    properties = deltasql.PostCommitHookProperties(create_checkpoint=False)
    rows = pa.table({"id": [1]})
    deltasql.write_deltalake(uri, rows, mode="append", post_commithook_properties=properties)
    close_all()
    append(mirrored)
    assert checkpoint_versions(location) == []


def test_maintenance_is_idempotent(mirrored: Catalog) -> None:
    location = create(mirrored)
    append(mirrored, 2)
    folder = Path(location) / "_delta_log"
    before = {name: (folder / name).read_bytes() for name in log_names(location)}
    config: Any = mirrored.config
    for version in range(3):
        data = (folder / f"{version:020d}.json").read_bytes()
        file = CommitFile(version, data, replaces_nothing=False)
        maintain(mirrored.store, table_row(mirrored), open_storage(location), file, config=config)
    assert {name: (folder / name).read_bytes() for name in log_names(location)} == before


def test_log_of_staged_files_is_readable(mirrored: Catalog) -> None:
    location = create(mirrored)
    for number in range(4):
        with deltasql.begin(mirrored) as tx:
            tx.stage_table("t", [add_file(f"{number}.parquet")])
    assert len(deltalake.DeltaTable(location).file_uris()) == 4
