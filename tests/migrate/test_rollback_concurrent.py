"""Rollback with concurrent writers, and of logs that differ from SQL."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from deltasql.exceptions import (
    MirrorDivergedError,
    TableChangedError,
    TableExistsError,
    TxnLogMirrorError,
    TxnLogTableNotFoundError,
)
from deltasql.phases import hooked
from tests.migrate.authority_support import (
    IDS,
    NAME,
    cut_over,
    everything_below,
    is_write_blocked,
    once_at,
    open_catalog,
    ours,
    theirs,
)
from tests.migrate.sources import HEAD, SCHEMA, checkpoint_file, read_ids, rows
from tests.mirror.support import LOG, commit_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database


@pytest.fixture
def catalog(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    settings = {"table": {"data_root": str(tmp_path / "lake")}}
    with open_catalog(catalog_uri, **settings) as opened:
        yield opened


# Concurrent writers


def test_concurrent_write_through_sql_is_not_lost(catalog: Catalog, place: Path) -> None:
    cut_over(catalog, place)
    catalog.mirror.mode = "off"
    ours(catalog, 12)
    # Another writer commits while the pending versions are published.
    with hooked(once_at("recorded", lambda: ours(catalog, 13))):
        report = catalog.rollback(NAME)
    assert report.published == 2
    assert read_ids(place) == [*IDS, 11, 12, 13]


@pytest.mark.two_databases
def test_rollback_loses_no_acknowledged_write(catalog: Catalog, place: Path) -> None:
    """Every acknowledged row is in the log, and no write succeeds afterwards."""
    cut_over(catalog, place)
    barrier = threading.Barrier(3)

    def write(number: int) -> list[int]:
        barrier.wait()
        done = []
        for each in range(number * 1000, number * 1000 + 30):
            try:
                ours(catalog, each)
            except (TableChangedError, TxnLogTableNotFoundError):
                break
            done.append(each)
        return done

    def leave(_: int) -> list[int]:
        barrier.wait()
        catalog.rollback(NAME, verify=False)
        return []

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(write, 1), pool.submit(write, 2), pool.submit(leave, 0)]
        acknowledged = [each for future in futures for each in future.result()]
    assert read_ids(place) == sorted([*IDS, 11, *acknowledged])
    theirs(place, 9999)
    assert read_ids(place) == sorted([*IDS, 11, *acknowledged, 9999])


def test_first_commit_of_a_process_raises_table_changed_after_rollback_to_the_log(
    catalog: Catalog, place: Path
) -> None:
    cut_over(catalog, place)
    with open_catalog(catalog.uri) as other, other.begin() as tx:
        tx.write(NAME, rows(12))
        catalog.rollback(NAME)  # the log now has a version that the database lacks
        with pytest.raises(TableChangedError):
            tx.commit()


@pytest.mark.two_databases
def test_rollback_keeps_a_foreign_commit(catalog: Catalog, place: Path) -> None:
    """A writer that supports in-commit timestamps can commit outside SQL after a cutover."""
    cut_over(catalog, place)
    commit_outside_sql(place, HEAD + 3)
    report = catalog.rollback(NAME)
    assert report.version == HEAD + 4
    assert any("are foreign commits" in note for note in report.notes)
    assert deltalake.DeltaTable(str(place)).transaction_version("etl") == 7
    theirs(place, 12)


def commit_outside_sql(place: Path, version: int) -> None:
    """Commit outside SQL as a writer that supports in-commit timestamps."""
    lines = [
        {"commitInfo": {"inCommitTimestamp": 4102444800000, "engineInfo": "other"}},
        {"txn": {"appId": "etl", "version": 7}},
    ]
    commit_path(place, version).write_text("".join(f"{json.dumps(each)}\n" for each in lines))


def test_rollback_keeps_a_concurrent_foreign_commit(catalog: Catalog, place: Path) -> None:
    cut_over(catalog, place)
    with hooked(once_at("giving back", lambda: commit_outside_sql(place, HEAD + 3))):
        report = catalog.rollback(NAME)
    assert (report.version, report.timestamps_dropped) == (HEAD + 4, True)
    assert deltalake.DeltaTable(str(place)).transaction_version("etl") == 7
    theirs(place, 12)


# Reasons for a refusal


def test_rollback_is_rejected_when_the_log_has_diverged(
    catalog_uri: DeltaSqlUri, place: Path
) -> None:
    with open_catalog(catalog_uri, mirror={"mode": "off"}) as catalog:
        cut_over(catalog, place)
        commit_outside_sql(place, HEAD + 2)
        before = everything_below(place)
        with pytest.raises(MirrorDivergedError):
            catalog.rollback(NAME)
        assert everything_below(place) == before
        assert catalog.exists(NAME)
        catalog.mirror.reject(NAME)
        catalog.rollback(NAME)
        assert read_ids(place) == [*IDS, 11]


def test_rollback_is_rejected_until_a_missing_commit_is_repaired(
    catalog: Catalog, place: Path
) -> None:
    cut_over(catalog, place)
    commit_path(place, HEAD + 1).unlink()
    with pytest.raises(TxnLogMirrorError, match="mirror repair"):
        catalog.rollback(NAME)
    assert catalog.exists(NAME)
    catalog.mirror.repair(NAME)
    catalog.rollback(NAME)
    assert read_ids(place) == [*IDS, 11]
    theirs(place, 12)


def test_rollback_is_rejected_until_a_wrong_checkpoint_is_repaired(
    catalog: Catalog, place: Path
) -> None:
    """Other readers start from the checkpoint, and SQL is no longer the authority."""
    cut_over(catalog, place)
    catalog.mirror.checkpoint(NAME)
    written = checkpoint_file(place, HEAD + 2)
    content = pq.read_table(written)
    paths = pc.struct_field(content["add"], "path")
    other_rows = pc.fill_null(pc.not_equal(paths, pc.max(paths)), fill_value=True)
    pq.write_table(content.filter(other_rows), written)
    before = everything_below(place)
    assert not catalog.rollback(NAME, dry_run=True).ok
    with pytest.raises(TxnLogMirrorError, match="mirror repair"):
        catalog.rollback(NAME)
    assert catalog.exists(NAME)
    assert everything_below(place) == before
    catalog.mirror.repair(NAME)
    assert catalog.rollback(NAME).ok
    assert read_ids(place) == [*IDS, 11]


def test_checkpoint_of_another_program_does_not_block_a_rollback(
    catalog: Catalog, place: Path
) -> None:
    cut_over(catalog, place)
    catalog.rollback(NAME)
    theirs(place, 12)
    deltalake.DeltaTable(str(place)).create_checkpoint()
    report = catalog.rollback(NAME)
    assert (report.state, report.ok) == ("was rolled back", True)


def test_rollback_flushes_the_log_to_disk_first(
    catalog: Catalog, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_over(catalog, place)
    catalog.mirror.checkpoint(NAME)
    flushed: set[str] = set()
    flush = os.fsync

    def record_fsync(file: int) -> None:
        flushed.add(os.readlink(f"/proc/self/fd/{file}"))
        flush(file)

    monkeypatch.setattr(os, "fsync", record_fsync)
    seen: list[set[str]] = []
    with hooked(once_at("left", lambda: seen.append(set(flushed)))):
        report = catalog.rollback(NAME)
    log = place / LOG
    files = {str(path) for path in log.iterdir() if path.is_file()}
    assert files - seen[0] == {str(commit_path(place, report.version or 0))}
    # The new commit is flushed before it gets its name (tested in tests/power).
    new = str(commit_path(place, report.version or 0))
    assert {*files, str(log)} - {new} <= flushed


def test_rollback_is_rejected_when_another_table_has_the_location(
    catalog: Catalog, place: Path
) -> None:
    cut_over(catalog, place)
    catalog.rollback(NAME)
    catalog.import_table(str(place), name="again")
    catalog.cutover("again")
    before = everything_below(place)
    with pytest.raises(TableExistsError, match="again"):
        catalog.rollback(NAME)
    assert everything_below(place) == before
    with catalog.begin() as tx:
        tx.write("again", pa.table({"id": [12], "p": ["a"]}, schema=SCHEMA))
    assert is_write_blocked(place)
