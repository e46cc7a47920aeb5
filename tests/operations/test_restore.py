"""RESTORE, UNDO and FSCK bring back an older state with an ordinary commit."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest
from deltalake.schema import Field, PrimitiveType

from deltasql.exceptions import (
    CommitConflictError,
    ConcurrentDeleteReadError,
    TxnLogError,
    VersionNotFoundError,
)
from tests.operations.maintenance import agree, numbers, open_lake, opened, own_rows, stock_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with a table `t`: created, two appends, an overwrite."""
    with open_lake(catalog_uri, tmp_path) as catalog:
        catalog.create_table("t", numbers(0, 0).schema)
        for first, mode in ((0, "append"), (10, "append"), (20, "overwrite")):
            with catalog.begin() as tx:
                tx.write("t", numbers(first, first + 2), mode=mode)
        yield catalog


def test_restore_metrics_and_history_match_deltalake(lake: Catalog, tmp_path: Path) -> None:
    place = tmp_path / "stock"
    deltalake.DeltaTable.create(place, deltalake.Schema.from_arrow(numbers(0, 0).schema))
    for first, mode in ((0, "append"), (10, "append"), (20, "overwrite")):
        deltalake.write_deltalake(place, numbers(first, first + 2), mode=mode)
    stock, ours = deltalake.DeltaTable(place), opened(lake)
    for version in (2, 1, 0, 3):
        assert ours.restore(version) == stock.restore(version)
        theirs, mine = stock.history(1)[0], ours.history(1)[0]
        for key in ("operation", "operationParameters", "operationMetrics", "readVersion"):
            assert mine[key] == theirs[key]
        assert agree(lake) == own_rows(lake, version=version)


def test_timestamp_restores_the_version_at_that_time(lake: Catalog) -> None:
    table = opened(lake)
    timestamp = lake.table("t").snapshot(2).committed_at
    table.restore(timestamp)
    assert agree(lake) == own_rows(lake, version=2)
    table.restore((timestamp - timedelta(days=900)).isoformat())
    assert agree(lake) == []  # a timestamp before the first commit selects the first version


def test_restore_brings_back_schema_and_properties_but_not_protocol(lake: Catalog) -> None:
    table = opened(lake)
    before = table.version()
    table.alter.add_columns([Field("late", PrimitiveType("timestamp_ntz"))])
    table.alter.set_table_properties(
        {"delta.enableChangeDataFeed": "true", "delta.appendOnly": "false"}
    )
    features = table.protocol().writer_features
    table.restore(before)
    assert table.schema().to_json() == opened_at(lake, before).schema().to_json()
    assert "delta.enableChangeDataFeed" not in table.metadata().configuration
    assert table._table.snapshot.metadata.configuration["delta.enableInCommitTimestamps"] == "true"
    assert table.protocol().writer_features == features
    agree(lake)


def opened_at(lake: Catalog, version: int) -> deltalake.DeltaTable:
    table = opened(lake)
    table.load_as_version(version)
    return table


def test_restore_downgrades_protocol_when_allowed(lake: Catalog) -> None:
    table = opened(lake)
    before, protocol = table.version(), table.protocol()
    table.alter.add_feature(
        deltalake.TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )
    table.restore(before, protocol_downgrade_allowed=True)
    assert table.protocol() == protocol
    agree(lake)


def test_restore_brings_back_old_column_names(lake: Catalog) -> None:
    table = opened(lake)
    before = table.version()
    table.alter.rename_column("text", "words")
    table.restore(before)
    assert [row["text"] for row in agree(lake)] == ["t20", "t21"]
    with lake.begin() as tx:
        tx.write("t", numbers(30, 31))
    assert [row["text"] for row in agree(lake)] == ["t20", "t21", "t30"]


def test_restore_to_an_invalid_version_is_rejected(lake: Catalog) -> None:
    table = opened(lake)
    with pytest.raises(VersionNotFoundError):
        table.restore(99)
    with pytest.raises(TxnLogError, match="should be less then last available version 3"):
        table.restore(3)
    with pytest.raises(ValueError, match="Failed to parse datetime string"):
        table.restore("yesterday")
    assert table.version() == 3


def test_missing_files_are_reported_or_ignored_and_repaired(lake: Catalog) -> None:
    table = opened(lake)
    old = opened_at(lake, 1)
    (lost,) = old.file_uris()
    Path(lost).unlink()
    with pytest.raises(TxnLogError, match=f"Find missing file {Path(lost).name}"):
        table.restore(2)
    assert table.restore(2, ignore_missing_files=True)["numRestoredFile"] == 2
    dry = table.repair(dry_run=True)
    assert dry == {"dry_run": True, "files_removed": [Path(lost).name]}
    assert table.repair() == {**dry, "dry_run": False}
    assert [row["id"] for row in agree(lake)] == [10, 11]
    assert table.history(1)[0]["operation"] == "FSCK"
    version = table.version()
    assert table.repair()["files_removed"] == []
    assert table.version() == version


def test_change_data_of_delete_and_restore_gives_the_resulting_rows(lake: Catalog) -> None:
    opened(lake).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    with lake.begin() as tx:
        tx.delete("t", "id = 20")
        tx.restore("t", 1)
    rows = lake.changes("t", tx.versions["t"]).read_all().to_pylist()
    net: Counter[int] = Counter()
    for row in rows:
        net[row["id"]] += 1 if row["_change_type"] == "insert" else -1
    assert {number: count for number, count in net.items() if count} == {0: 1, 1: 1, 20: -1, 21: -1}


def test_restore_reverts_earlier_changes_of_its_transaction(lake: Catalog) -> None:
    with lake.begin() as tx:
        tx.write("t", numbers(30, 32))
    with lake.begin() as tx:
        tx.delete("t", "id = 20")
        tx.restore("t", 3)
    assert [row["id"] for row in agree(lake)] == [20, 21]


def test_restore_conflicts_with_concurrent_change(lake: Catalog) -> None:
    table = opened(lake)
    with lake.begin() as tx:
        tx.write("t", numbers(40, 41), mode="append")
    with lake.begin() as tx:  # this commit is not a blind append
        tx.delete("t", "id = 20")
    with pytest.raises(CommitConflictError):
        table.restore(1)
    assert [row["id"] for row in agree(lake)] == [21, 40]


def test_restore_conflicts_with_concurrent_vacuum(lake: Catalog) -> None:
    """A vacuum may delete files that a restore found, before the restore commits."""
    with pytest.raises(ConcurrentDeleteReadError, match="vacuum"), lake.begin() as tx:
        tx.restore("t", 1)
        lake.vacuum("t", retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert [row["id"] for row in agree(lake)] == [20, 21]


def test_undo_reverts_the_last_commit_including_an_undo(lake: Catalog) -> None:
    table = opened(lake)
    assert table.undo() == {"numRemovedFile": 1, "numRestoredFile": 2}
    assert [row["id"] for row in agree(lake)] == [0, 1, 10, 11]
    last_commit = table.history(1)[0]
    assert (last_commit["operation"], last_commit["operationParameters"]) == (
        "UNDO",
        {"version": "3", "restored": "2"},
    )
    table.undo()
    assert [row["id"] for row in agree(lake)] == [20, 21]


def test_first_commit_cannot_be_undone(lake: Catalog) -> None:
    lake.create_table("new", pa.schema([("id", pa.int64())]))
    with pytest.raises(VersionNotFoundError, match="no version before 0"):
        opened(lake, "new").undo()


def test_several_tables_are_restored_in_one_transaction(lake: Catalog) -> None:
    lake.create_table("u", numbers(0, 0).schema)
    with lake.begin() as tx:
        tx.write("u", numbers(0, 3))
    with lake.begin() as tx:
        tx.restore("t", 1)
        tx.undo("u")
        tx.write("u", numbers(7, 8))
    assert tx.versions == {"t": 4, "u": 2}
    assert [row["id"] for row in agree(lake)] == [0, 1]
    assert [row["id"] for row in agree(lake, "u")] == [7]
    assert stock_rows(lake, "u", version=1) == own_rows(lake, "u", version=1)
