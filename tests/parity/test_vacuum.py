"""`vacuum`: which files are deleted and when, and the reported result."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import CommitProperties
from deltalake.exceptions import DeltaError

from tests.parity.lakes import Lake, column, numbers

NOW = {"retention_hours": 0, "enforce_retention_duration": False}


def compacted(lake: Lake) -> tuple[Any, set[str]]:
    """Return a compacted table at version 3, and the names of its three old files."""
    for start in (0, 10, 20):
        lake.append("t", numbers(start, start + 10))
    table = lake.DeltaTable(lake.uri("t"))
    old = {each.rsplit("/", 1)[-1] for each in table.file_uris()}
    table.optimize.compact()
    return table, old


def on_disk(lake: Lake, table: Any) -> set[str]:
    return {each.name for each in lake.folder(table).glob("*.parquet")}


@pytest.mark.two_databases
def test_dry_run_deletes_nothing(lake: Lake) -> None:
    table, old = compacted(lake)
    assert set(table.vacuum(**NOW)) == old
    assert set(table.vacuum(0, True, False)) == old
    assert table.version() == 3
    assert old < on_disk(lake, table)


@pytest.mark.two_databases
def test_vacuum_deletes_files_of_older_versions(lake: Lake) -> None:
    table, old = compacted(lake)
    assert set(table.vacuum(**NOW, dry_run=False)) == old
    assert len(on_disk(lake, table)) == 1
    assert table.version() == 5
    assert column(table, "id") == list(range(30))
    assert lake.DeltaTable(lake.uri("t")).version() == 5


def test_vacuum_keeps_files_within_retention(lake: Lake) -> None:
    table, _ = compacted(lake)
    assert table.vacuum() == []
    assert table.vacuum(169) == []
    assert table.vacuum(dry_run=False) == []


def test_retention_below_the_minimum_is_rejected(lake: Lake) -> None:
    table, _ = compacted(lake)
    with pytest.raises(
        DeltaError,
        match=r"minimum retention for vacuum .* greater than 168 hours, got 1 hours",
    ):
        table.vacuum(1)
    with pytest.raises(ValueError, match="retention periods should be positive"):
        table.vacuum(-1)


def test_table_property_sets_the_minimum_retention(lake: Lake) -> None:
    table, _ = compacted(lake)
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 2 hours"})
    with pytest.raises(DeltaError, match="greater than 2 hours, got 1 hours"):
        table.vacuum(1)
    assert table.vacuum(3) == []


def test_history_records_start_and_end(lake: Lake) -> None:
    table, old = compacted(lake)
    properties = CommitProperties(custom_metadata={"who": "me"})
    table.vacuum(**NOW, dry_run=False, commit_properties=properties)
    end, start = table.history(2)
    assert (start["operation"], end["operation"]) == ("VACUUM START", "VACUUM END")
    assert start["operationParameters"] == {
        "retentionCheckEnabled": "false",
        "defaultRetentionMillis": "604800000",
        "specifiedRetentionMillis": "0",
    }
    assert start["operationMetrics"]["numFilesToDelete"] == len(old)
    assert start["operationMetrics"]["sizeOfDataToDelete"] > 0
    assert end["operationParameters"] == {"status": "COMPLETED"}
    assert end["operationMetrics"] == {"numDeletedFiles": 3, "numVacuumedDirectories": 0}
    assert (start["who"], end["who"]) == ("me", "me")


@pytest.mark.two_databases
def test_full_vacuum_deletes_files_that_were_never_committed(lake: Lake) -> None:
    table, old = compacted(lake)
    (lake.folder(table) / "stray.parquet").write_bytes(b"x")
    assert set(table.vacuum(**NOW)) == old
    assert {each.rsplit("/", 1)[-1] for each in table.vacuum(**NOW, full=True)} == {
        *old,
        "stray.parquet",
    }
    table.vacuum(**NOW, dry_run=False, full=True)
    assert len(on_disk(lake, table)) == 1


def test_full_vacuum_keeps_hidden_folders_and_the_log(lake: Lake) -> None:
    table, _ = compacted(lake)
    hidden = lake.folder(table) / "_hidden"
    hidden.mkdir()
    (hidden / "x.parquet").write_bytes(b"x")
    before = set(lake.log(table))
    table.vacuum(**NOW, dry_run=False, full=True)
    assert (hidden / "x.parquet").exists()
    assert before < set(lake.log(table))


def test_keep_versions_keeps_their_files(lake: Lake) -> None:
    for start in (0, 10, 20):
        lake.append("t", numbers(start, start + 10))
    table = lake.make("t", numbers(0, 1), mode="overwrite")
    assert len(table.vacuum(**NOW)) == 3
    assert len(table.vacuum(**NOW, keep_versions=[1])) == 1
    assert table.vacuum(**NOW, keep_versions=[2]) == []
    table.vacuum(**NOW, dry_run=False, keep_versions=[0])
    assert column(lake.DeltaTable(lake.uri("t"), version=0), "id") == list(range(10))
    with pytest.raises(DeltaError):
        table.vacuum(**NOW, keep_versions=[99])


def test_vacuum_deletes_files_in_partition_folders(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 3), partition_by=["id"])
    table.delete("id = 1")
    (gone,) = table.vacuum(**NOW, dry_run=False)
    assert gone.startswith("id=1/")
    assert not list((lake.folder(table) / "id=1").glob("*.parquet"))
    assert column(table, "id") == [0, 2]
