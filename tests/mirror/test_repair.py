"""Repair restores a log from SQL, and deletes no file of another program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from deltasql.mirror.publish.targets import ACTIVE, QUARANTINED, targets_of
from deltasql.phases import hooked
from deltasql.verify.repair import repair
from deltasql.verify.verify_log import verify_table
from tests.mirror.published import (
    CHECKPOINT,
    HEAD,
    append,
    change_commit,
    publish_history,
    storage_of,
)
from tests.mirror.support import LOG, commit_path, forget_commits_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri
    from deltasql.verify.repair import RepairReport

pytestmark = pytest.mark.two_databases


def repair_table(catalog: Catalog, **options: Any) -> RepairReport:
    table = catalog.table("t")
    return repair(catalog.store, table.row, storage_of(table), **options)


def is_verified(catalog: Catalog) -> bool:
    table = catalog.table("t")
    report = verify_table(catalog.store, table.row, storage_of(table), versions="all")
    assert report.ok, report.summary()
    return True


def files(location: str) -> dict[str, bytes]:
    """Return every file of the log, without those that a repair moved away."""
    found = (Path(location) / LOG).iterdir()
    return {file.name: file.read_bytes() for file in found if file.is_file()}


def commits(location: str) -> dict[str, bytes]:
    return {name: data for name, data in files(location).items() if name.endswith(".json")}


def state_of(catalog: Catalog) -> str:
    return targets_of(catalog.store, catalog.table("t").row)[0].state


def test_repair_does_not_change_a_correct_log(published: Catalog) -> None:
    location = published.table("t").location
    before = files(location)
    report = repair_table(published)
    assert report.ok, report.summary()
    assert "nothing to repair" in report.summary()
    assert files(location) == before


@pytest.mark.parametrize("gone", [[3], [0], [HEAD], [1, 4, 7], list(range(HEAD + 1))])
def test_repair_publishes_missing_commits(
    catalog_uri: DeltaSqlUri, tmp_path: Path, gone: list[int]
) -> None:
    with publish_history(catalog_uri, tmp_path / "lake") as catalog:
        location = catalog.table("t").location
        (Path(location) / LOG / f"{CHECKPOINT:020d}.checkpoint.parquet").unlink()
        (Path(location) / LOG / "_last_checkpoint").unlink()
        before = commits(location)
        for version in gone:
            commit_path(location, version).unlink()
        report = repair_table(catalog)
        assert report.ok, report.summary()
        assert report.published == gone
        assert commits(location) == before
        assert is_verified(catalog)


def test_repair_does_not_restore_cleaned_commits(published: Catalog) -> None:
    location = published.table("t").location
    forget_commits_below(Path(location), CHECKPOINT)
    before = commits(location)
    assert repair_table(published).ok
    assert commits(location) == before


@pytest.mark.parametrize("damage", [b"", b"PAR1 no"])
def test_repair_rewrites_a_damaged_checkpoint(published: Catalog, damage: bytes) -> None:
    location = published.table("t").location
    path = Path(location) / LOG / f"{CHECKPOINT:020d}.checkpoint.parquet"
    path.write_bytes(damage)
    report = repair_table(published)
    assert report.ok, report.summary()
    assert report.checkpoints == [CHECKPOINT]
    (kept,) = report.backups
    assert (Path(location) / kept).read_bytes() == damage
    assert is_verified(published)


def test_repair_rewrites_the_checkpoint_that_a_cleaned_log_needs(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with publish_history(sqlite_uri, tmp_path / "lake") as catalog:
        table = catalog.table("t")
        metadata = table.snapshot().metadata
        kept = {**metadata.configuration, "delta.logRetentionDuration": "interval 0 seconds"}
        with catalog.begin() as tx:
            tx.stage_table("t", {"metaData": {**metadata.body(), "configuration": kept}})
        forget_commits_below(Path(table.location), CHECKPOINT)
        for name in (f"{CHECKPOINT:020d}.checkpoint.parquet", "_last_checkpoint"):
            (Path(table.location) / LOG / name).unlink()
        report = repair_table(catalog)
        assert report.ok, report.summary()
        assert (report.checkpoints, report.published) == ([CHECKPOINT], [])
        assert deltalake.DeltaTable(table.location).version() == HEAD + 1


@pytest.mark.parametrize("text", [None, "{", '{"version":3,"size":1}'])
def test_repair_rewrites_a_wrong_hint(published: Catalog, text: str | None) -> None:
    hint = Path(published.table("t").location) / LOG / "_last_checkpoint"
    hint.unlink()
    if text is not None:
        hint.write_text(text)
    assert repair_table(published).ok
    assert json.loads(hint.read_text())["version"] == CHECKPOINT


def test_repair_rewrites_wrong_checksums(published: Catalog) -> None:
    location = Path(published.table("t").location)
    crc = {version: location / LOG / f"{version:020d}.crc" for version in (5, 6, HEAD)}
    before = {version: path.read_bytes() for version, path in crc.items()}
    crc[5].write_bytes(before[5].replace(b'"numFiles":', b'"numFiles":9'))
    crc[6].unlink()
    crc[HEAD].write_text("{")
    report = repair_table(published)
    assert report.ok, report.summary()
    assert report.checksums == [5, 6, HEAD]
    found = {version: json.loads(path.read_bytes()) for version, path in crc.items()}
    assert found == {version: json.loads(data) for version, data in before.items()}


def change_size(action: dict[str, Any]) -> None:
    if "add" in action:
        action["add"]["size"] = 1


def test_repair_without_force_keeps_a_foreign_commit(published: Catalog) -> None:
    location = published.table("t").location
    change_commit(location, 7, change_size)
    before = files(location)
    report = repair_table(published)
    assert not report.ok
    assert report.backups == []
    assert files(location) == before
    assert "diverged" in report.summary()


def test_repair_with_force_keeps_a_copy_of_the_foreign_commit(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with publish_history(catalog_uri, tmp_path / "lake") as catalog:
        location = catalog.table("t").location
        before = commits(location)
        change_commit(location, 2, change_size)
        change_commit(location, 7, change_size)
        theirs = commit_path(location, 7).read_bytes()
        report = repair_table(catalog, force=True)
        assert report.ok, report.summary()
        assert report.replaced == [2, 7]
        assert commits(location) == before
        assert {(Path(location) / name).read_bytes() for name in report.backups} >= {theirs}
        assert is_verified(catalog)


def test_repair_with_force_moves_away_versions_after_the_head(published: Catalog) -> None:
    location = published.table("t").location
    head = commit_path(location, HEAD).read_bytes()
    for version in (HEAD + 1, HEAD + 2):
        commit_path(location, version).write_bytes(head)
    deltalake.DeltaTable(location).create_checkpoint()
    assert not repair_table(published).ok
    report = repair_table(published, force=True)
    assert report.ok, report.summary()
    assert len(report.backups) == 4  # two commits, a checkpoint and its hint
    assert deltalake.DeltaTable(location).version() == HEAD
    assert append(published, 9) == HEAD + 1
    assert is_verified(published)


def test_repair_with_force_keeps_a_concurrent_commit(published: Catalog) -> None:
    location = published.table("t").location
    change_commit(location, 7, change_size)
    landed: list[int] = []

    def commit_once(phase: str) -> None:
        if phase == "published" and not landed:
            landed.append(HEAD + 1)
            assert append(published, 9) == HEAD + 1

    with hooked(commit_once):
        report = repair_table(published, force=True)
    assert landed
    assert report.replaced == [7]
    published.mirror.publish("t")
    assert state_of(published) == ACTIVE
    assert deltalake.DeltaTable(location).version() == HEAD + 1
    assert is_verified(published)


def test_repair_releases_a_quarantined_mirror(published: Catalog) -> None:
    location = published.table("t").location
    commit_path(location, HEAD + 1).write_bytes(commit_path(location, HEAD).read_bytes())
    append(published, 9)
    assert state_of(published) == QUARANTINED
    assert not repair_table(published).released
    report = repair_table(published, force=True)
    assert report.released, report.summary()
    published.mirror.publish("t")
    assert is_verified(published)
    assert deltalake.DeltaTable(location).version() == HEAD + 1


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_readers_ignore_files_that_a_repair_moved_away(
    published: Catalog, spark: SparkSession
) -> None:
    duckdb = pytest.importorskip("duckdb")
    location = Path(published.table("t").location)
    rows = deltalake.DeltaTable(location).to_pyarrow_table().num_rows
    folder = location / LOG / "_aside" / "20260101T000000000000Z"
    folder.mkdir(parents=True)
    later = f"{HEAD + 1:020d}"
    (folder / f"{later}.json").write_bytes(commit_path(location, HEAD).read_bytes())
    checkpoint = location / LOG / f"{CHECKPOINT:020d}.checkpoint.parquet"
    (folder / f"{later}.checkpoint.parquet").write_bytes(checkpoint.read_bytes())
    (location / LOG / "_last_checkpoint").unlink()
    assert deltalake.DeltaTable(location).version() == HEAD
    connection = duckdb.connect()
    connection.execute("LOAD delta")
    counted = connection.execute("SELECT count(*) FROM delta_scan(?)", [str(location)]).fetchall()
    assert counted == [(rows,)]
    assert spark.read.format("delta").load(str(location)).count() == rows
    history = spark.sql(f"DESCRIBE HISTORY delta.`{location}`").collect()
    assert max(row.version for row in history) == HEAD
