"""A log that is ahead of its database is detected before the next commit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import LogAheadError
from tests.mirror.support import commit_path, log_bytes, open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

SCHEMA = pa.schema([("id", pa.int64())])
BACKUP = 2  # the last version in the backup
HEAD = 4


def append(catalog: Catalog, number: int) -> int:
    with catalog.begin() as tx:
        tx.write("t", pa.table({"id": [number]}))
    return tx.versions["t"]


@pytest.fixture
def restored(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog that is two commits behind its published log."""
    lake = tmp_path / "lake"
    with open_mirrored(f"deltasql://sqlite/{tmp_path}/today.db", lake) as today:
        today.create_table("t", SCHEMA)
        for number in range(1, BACKUP + 1):
            append(today, number)
        report = deltasql.rebuild(catalog_uri, str(lake))
        assert report.ok, report.summary()
        for number in range(BACKUP + 1, HEAD + 1):
            append(today, number)
    with open_mirrored(catalog_uri, lake) as catalog:
        yield catalog


def test_commit_fails_while_the_log_is_ahead(restored: Catalog) -> None:
    place = restored.table("t").location
    before = log_bytes(place), sorted(Path(place).glob("*.parquet"))
    for _ in range(2):
        with pytest.raises(LogAheadError) as caught:
            append(restored, 9)
    error = caught.value
    assert (error.version, error.table, error.location) == (BACKUP + 1, "t", place)
    for remedy in ("mirror adopt", "mirror reject", "rebuild"):
        assert remedy in str(error)
    assert restored.table("t").snapshot().version == BACKUP
    assert (log_bytes(place), sorted(Path(place).glob("*.parquet"))) == before


def test_adopt_restores_the_missing_commits(restored: Catalog) -> None:
    with pytest.raises(LogAheadError):
        append(restored, 9)
    assert [*restored.mirror.adopt("t").adopted] == [BACKUP + 1, HEAD]
    assert append(restored, 9) == HEAD + 1
    (report,) = restored.mirror.verify("t")
    assert report.ok, report.summary()
    rows = deltalake.DeltaTable(restored.table("t").location).to_pyarrow_table()
    assert sorted(rows["id"].to_pylist()) == [1, 2, 3, 4, 9]


def test_reject_replaces_the_commits_that_the_database_lacks(restored: Catalog) -> None:
    assert restored.mirror.reject("t").rejected == [BACKUP + 1, HEAD]
    assert append(restored, 9) == BACKUP + 1
    rows = deltalake.DeltaTable(restored.table("t").location).to_pyarrow_table()
    assert sorted(rows["id"].to_pylist()) == [1, 2, 9]


def test_checkpoint_after_the_head_is_detected(restored: Catalog) -> None:
    """Only the checkpoint shows the later versions, because their commit files were deleted."""
    place = restored.table("t").location
    deltalake.DeltaTable(place).create_checkpoint()
    for version in range(HEAD):
        commit_path(place, version).unlink()
    with pytest.raises(LogAheadError) as caught:
        append(restored, 9)
    assert caught.value.version == HEAD


def test_empty_commit_file_does_not_hide_a_later_commit(restored: Catalog) -> None:
    place = restored.table("t").location
    commit_path(place, BACKUP + 1).write_bytes(b"")
    with pytest.raises(LogAheadError) as caught:
        append(restored, 9)
    assert caught.value.version == HEAD
    commit_path(place, HEAD).write_bytes(b"")
    assert append(restored, 9) == BACKUP + 1  # no commit remains in the log that could be lost


@pytest.mark.one_database
def test_checkpoint_hint_without_a_checkpoint_does_not_block_commits(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        catalog.create_table("t", SCHEMA)
        log = Path(catalog.table("t").location) / "_delta_log"
        (log / "_last_checkpoint").write_text('{"version":4096,"size":1}')
        assert append(catalog, 1) == 1


def test_log_is_checked_again_after_a_reconnect(postgres_uri: DeltaSqlUri, tmp_path: Path) -> None:
    """A killed server may have lost commits while this process kept running."""
    with open_mirrored(postgres_uri, tmp_path / "lake") as catalog:
        catalog.create_table("t", SCHEMA)
        assert append(catalog, 1) == 1
        lost = commit_path(catalog.table("t").location, 1).read_bytes()
        later = commit_path(catalog.table("t").location, 2)
        later.write_bytes(lost.replace(b'"txnId":"', b'"txnId":"other-'))
        with catalog.store.session() as session:
            session._connection.close()
        with pytest.raises(LogAheadError):
            append(catalog, 2)
