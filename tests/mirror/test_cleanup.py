"""Log cleanup deletes expired files, and no file that a retained version needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.mirror.checkpoint.checksum import checksum_file
from deltasql.mirror.log import cleanup
from deltasql.mirror.log.cleanup import clean_log
from deltasql.mirror.log.encode import commit_file
from deltasql.mirror.log.last_checkpoint import checkpoint_file
from deltasql.mirror.log.listing import LAST_CHECKPOINT
from tests.mirror.checkpoint_support import checkpoint, table_row, table_storage
from tests.mirror.support import checkpoint_versions, log_names, published_versions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

DAY_MS = 86_400_000
VERSIONS = 12


@pytest.fixture
def table(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A published table with twelve appends of one row, and checkpoints of versions 4 and 8."""
    with deltasql.connect(sqlite_uri, table={"data_root": str(tmp_path / "lake")}) as catalog:
        never = {"delta.checkpointInterval": "1000"}
        catalog.create_table("t", pa.schema([("id", pa.int64())]), properties=never)
        for number in range(1, VERSIONS + 1):
            with catalog.begin() as tx:
                tx.write("t", pa.table({"id": [number]}))
        checkpoint(catalog, version=4)
        checkpoint(catalog, version=8)
        yield catalog


def clean(
    catalog: Catalog,
    monkeypatch: pytest.MonkeyPatch,
    *,
    needed: int,
    late_ms: int = 0,
    **properties: str,
) -> int:
    """Clean up at the time when this version is exactly as old as the retention."""
    at = catalog.table("t").snapshot(needed).committed_at_ms
    monkeypatch.setattr(cleanup, "now_ms", lambda: at + 30 * DAY_MS + late_ms)
    return clean_log(catalog.store, table_row(catalog), table_storage(catalog), properties)


def location(catalog: Catalog) -> str:
    """Return the location of the table."""
    return table_row(catalog).location


@pytest.mark.parametrize(("needed", "kept"), [(3, 0), (4, 4), (7, 4), (8, 8), (VERSIONS, 8)])
def test_cleanup_keeps_the_log_from_the_checkpoint_before_the_retention(
    table: Catalog, monkeypatch: pytest.MonkeyPatch, needed: int, kept: int
) -> None:
    deleted = clean(table, monkeypatch, needed=needed)
    place = location(table)
    assert published_versions(place) == list(range(kept, VERSIONS + 1))
    assert checkpoint_versions(place) == [each for each in (4, 8) if each >= kept]
    assert next(name for name in log_names(place) if name.endswith(".crc")) == f"{kept:020d}.crc"
    assert deleted == 2 * kept + (1 if kept == 8 else 0)
    for version in range(max(needed, kept), VERSIONS + 1):
        assert deltalake.DeltaTable(place, version=version).to_pyarrow_table().num_rows == version


def test_version_just_within_retention_stays_readable(
    table: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean(table, monkeypatch, needed=4, late_ms=-1)
    assert published_versions(location(table))[0] == 0
    clean(table, monkeypatch, needed=4)
    assert published_versions(location(table))[0] == 4


def test_cleanup_respects_the_table_properties(
    table: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = {"delta.enableExpiredLogCleanup": "false"}
    assert clean(table, monkeypatch, needed=VERSIONS, **off) == 0
    longer = {"delta.logRetentionDuration": "interval 365 days"}
    assert clean(table, monkeypatch, needed=VERSIONS, **longer) == 0


def test_table_younger_than_the_retention_is_not_listed(table: Catalog) -> None:
    class Unlisted:
        def list(self, *_: object) -> None:
            raise AssertionError("listed")

    storage: Any = Unlisted()
    assert clean_log(table.store, table_row(table), storage, {}) == 0


def test_latest_checkpoint_is_never_deleted(
    table: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean(table, monkeypatch, needed=VERSIONS, late_ms=1000 * DAY_MS)
    storage = table_storage(table)
    assert storage.exists(checkpoint_file(8))
    assert storage.exists(commit_file(8))
    assert storage.exists(LAST_CHECKPOINT)
    assert deltalake.DeltaTable(location(table)).to_pyarrow_table().num_rows == VERSIONS


def test_cleanup_keeps_the_history_in_sql(table: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    clean(table, monkeypatch, needed=VERSIONS)
    history = list(table.table("t").snapshot().history())
    assert [row.version for row in history] == list(range(VERSIONS, -1, -1))
    assert table.table("t").snapshot(2).totals().num_files == 2


def test_cleanup_deletes_a_long_log_in_parts_oldest_first(
    table: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "MAX_DELETED_FILES", 5)
    assert clean(table, monkeypatch, needed=VERSIONS) == 5
    assert not table_storage(table).exists(checksum_file(2))
    assert table_storage(table).exists(commit_file(2))
    counts = [clean(table, monkeypatch, needed=VERSIONS) for _ in range(4)]
    assert counts == [5, 5, 2, 0]


def test_other_log_files_expire_with_their_versions_and_unknown_files_stay(
    table: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = table_storage(table)
    expired = [
        f"{3:020d}.checkpoint.{1:010d}.{2:010d}.parquet",
        f"{3:020d}.checkpoint.0b9f5d4e-0000-4000-8000-000000000000.json",
        f"{1:020d}.{7:020d}.compacted.json",
    ]
    kept = [
        f"{6:020d}.{9:020d}.compacted.json",
        "_sidecars/some.parquet",
        "_staged_commits/00000000000000000001.x.json",
        "00000000000000000001.json.kept",
        "notes.txt",
    ]
    for name in expired + kept:
        storage.put(f"_delta_log/{name}", b"x")
    clean(table, monkeypatch, needed=VERSIONS)
    assert not [name for name in expired if storage.exists(f"_delta_log/{name}")]
    assert not [name for name in kept if not storage.exists(f"_delta_log/{name}")]


def test_incomplete_multipart_checkpoint_does_not_count(
    table: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = f"_delta_log/{10:020d}.checkpoint.{1:010d}.{2:010d}.parquet"
    table_storage(table).put(part, b"x")
    clean(table, monkeypatch, needed=VERSIONS)
    assert published_versions(location(table))[0] == 8
