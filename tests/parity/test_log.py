"""Checkpoints, compacted logs, log cleanup and the manifest."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest
from deltalake import PostCommitHookProperties
from deltalake.exceptions import DeltaError

from tests.parity.lakes import Lake, sample


def commits(lake: Lake, count: int, **options: Any) -> Any:
    """Return a table with this number of commits."""
    table = lake.make("t", sample(), **options)
    for _ in range(count - 1):
        lake.write_deltalake(table, sample(), mode="append")
    return table


@pytest.mark.two_databases
def test_every_commit_is_a_file_in_the_log(lake: Lake) -> None:
    table = commits(lake, 3)
    assert [name for name in lake.log(table) if name.endswith(".json")] == [
        f"{version:020}.json" for version in range(3)
    ]
    text = (lake.folder(table) / "_delta_log" / f"{1:020}.json").read_text()
    kinds = [next(iter(json.loads(line))) for line in text.splitlines()]
    assert kinds == ["commitInfo", "add"]


@pytest.mark.two_databases
def test_create_checkpoint_writes_checkpoint_and_hint(lake: Lake) -> None:
    table = commits(lake, 3)
    assert table.create_checkpoint() is None
    assert f"{2:020}.checkpoint.parquet" in lake.log(table)
    last = json.loads((lake.folder(table) / "_delta_log" / "_last_checkpoint").read_text())
    assert last["version"] == 2
    assert last["numOfAddFiles"] == 3
    assert lake.DeltaTable(lake.uri("t")).count() == 9


def test_checkpoints_follow_the_interval_property(lake: Lake) -> None:
    table = commits(lake, 6, configuration={"delta.checkpointInterval": "2"})
    found = [name for name in lake.log(table) if name.endswith(".checkpoint.parquet")]
    assert found == [f"{version:020d}.checkpoint.parquet" for version in (1, 3, 5)]
    assert table.count() == 18


def test_default_checkpoint_interval_is_a_hundred(lake: Lake) -> None:
    table = commits(lake, 101)
    found = [name for name in lake.log(table) if name.endswith(".checkpoint.parquet")]
    assert found == [f"{99:020d}.checkpoint.parquet"]


def test_post_commit_option_disables_checkpoints(lake: Lake) -> None:
    table = lake.make("t", sample(), configuration={"delta.checkpointInterval": "2"})
    never = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    for _ in range(4):
        lake.write_deltalake(table, sample(), mode="append", post_commithook_properties=never)
    assert not [name for name in lake.log(table) if "checkpoint" in name]


@pytest.mark.two_databases
def test_compact_logs_writes_a_compacted_file(lake: Lake) -> None:
    table = commits(lake, 4)
    assert table.compact_logs(0, 2) is None
    name = f"{0:020}.{2:020}.compacted.json"
    assert name in lake.log(table)
    lines = (lake.folder(table) / "_delta_log" / name).read_text().splitlines()
    kinds = sorted(next(iter(json.loads(line))) for line in lines)
    assert kinds == ["add", "add", "add", "metaData", "protocol"]
    assert lake.DeltaTable(lake.uri("t")).count() == 12


def test_invalid_compaction_ranges_are_rejected(lake: Lake) -> None:
    table = commits(lake, 4)
    with pytest.raises(DeltaError, match="9"):
        table.compact_logs(2, 9)
    with pytest.raises(DeltaError, match="end_version 1 must be greater than start_version 3"):
        table.compact_logs(3, 1)


def test_cleanup_keeps_recent_log_files(lake: Lake) -> None:
    table = commits(lake, 4)
    table.create_checkpoint()
    before = lake.log(table)
    assert table.cleanup_metadata() is None
    assert lake.log(table) == before


def test_cleanup_removes_expired_log_files(lake: Lake) -> None:
    table = commits(
        lake,
        4,
        configuration={
            "delta.logRetentionDuration": "interval 0 days",
            "delta.enableExpiredLogCleanup": "false",
        },
    )
    table.create_checkpoint()
    table.cleanup_metadata()
    assert f"{0:020}.json" not in lake.log(table)
    assert f"{3:020}.checkpoint.parquet" in lake.log(table)
    assert lake.DeltaTable(lake.uri("t")).count() == 12


@pytest.mark.two_databases
def test_cleanup_uses_the_modification_time_of_files(lake: Lake) -> None:
    table = commits(lake, 3)
    table.create_checkpoint()
    then = time.time() - 100 * 24 * 3600
    for file in (lake.folder(table) / "_delta_log").iterdir():
        os.utime(file, (then, then))
    table.cleanup_metadata()
    assert [name for name in lake.log(table) if name.endswith(".json")] == [f"{2:020}.json"]
    assert lake.DeltaTable(lake.uri("t")).count() == 9


def test_generate_writes_a_manifest_per_partition(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    table.generate()
    folder = lake.folder(table) / "_symlink_format_manifest"
    assert sorted(each.parent.name for each in folder.rglob("manifest")) == ["p=a", "p=b"]
    lines = (folder / "p=a" / "manifest").read_text().splitlines()
    assert lines == table.file_uris(file_pruning_predicate="p = 'a'")
