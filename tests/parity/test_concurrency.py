"""Writing with a handle at an old version: which operations commit and which conflict."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError

from tests.parity.lakes import Lake, sample

pytestmark = pytest.mark.two_databases

ADDED = "a concurrent transactions? added new data"
DELETED = "a concurrent transaction deleted data this operation read"


def two(lake: Lake, **options: Any) -> tuple[Any, Any]:
    """Return two handles at version 0."""
    lake.make("t", sample(), **options)
    return lake.DeltaTable(lake.uri("t")), lake.DeltaTable(lake.uri("t"))


@pytest.mark.two_databases
def test_concurrent_appends_both_commit(lake: Lake) -> None:
    first, second = two(lake)
    lake.write_deltalake(first, sample(), mode="append")
    lake.write_deltalake(second, sample(), mode="append")
    assert (second.version(), second.count()) == (2, 9)


@pytest.mark.two_databases
def test_overwrite_keeps_rows_of_a_concurrent_append(lake: Lake) -> None:
    first, second = two(lake)
    lake.write_deltalake(first, sample(), mode="append")
    lake.write_deltalake(second, sample(), mode="overwrite")
    assert (second.version(), second.count()) == (2, 6)


@pytest.mark.two_databases
def test_concurrent_overwrites_conflict(lake: Lake) -> None:
    first, second = two(lake)
    lake.write_deltalake(first, sample(), mode="overwrite")
    with pytest.raises(CommitFailedError, match=DELETED):
        lake.write_deltalake(second, sample(), mode="overwrite")


@pytest.mark.two_databases
def test_concurrent_deletes_in_one_file_conflict(lake: Lake) -> None:
    first, second = two(lake)
    first.delete("id = 1")
    with pytest.raises(CommitFailedError, match=f"{ADDED}|{DELETED}"):
        second.delete("id = 2")
    assert second.version() == 0
    second.update_incremental()
    second.delete("id = 2")
    assert second.count() == 1


def test_deletes_in_different_partitions_both_commit(lake: Lake) -> None:
    first, second = two(lake, partition_by=["p"])
    first.delete("p = 'a'")
    second.delete("p = 'b'")
    assert (second.version(), second.count()) == (2, 0)


def test_delete_commits_after_append_to_another_partition(lake: Lake) -> None:
    first, second = two(lake, partition_by=["p"])
    lake.write_deltalake(first, sample(p=["a", "a", "a"]), mode="append")
    second.delete("p = 'b'")
    assert second.count() == 5


def test_concurrent_updates_in_one_file_conflict(lake: Lake) -> None:
    first, second = two(lake)
    first.update({"v": "1"}, predicate="id = 1")
    with pytest.raises(CommitFailedError, match=f"{ADDED}|{DELETED}"):
        second.update({"v": "2"}, predicate="id = 2")


def test_merge_after_a_concurrent_update_conflicts(lake: Lake) -> None:
    first, second = two(lake)
    first.update({"v": "1"}, predicate="id = 1")
    merger = second.merge(sample(), "s.id = t.id", "s", "t").when_matched_update_all()
    with pytest.raises(CommitFailedError, match=f"{ADDED}|{DELETED}"):
        merger.execute()


@pytest.mark.two_databases
def test_append_and_delete_after_a_metadata_change_conflict(lake: Lake) -> None:
    first, second = two(lake)
    first.alter.set_table_properties({"delta.logRetentionDuration": "interval 2 days"})
    with pytest.raises(CommitFailedError, match="Metadata changed since last commit"):
        lake.write_deltalake(second, sample(), mode="append")
    with pytest.raises(CommitFailedError, match="Metadata changed since last commit"):
        second.delete("id = 1")


def test_append_conflicts_with_a_concurrent_commit_that_adds_a_column(lake: Lake) -> None:
    first, second = two(lake)
    wider = sample(w=[1, 2, 3])
    lake.write_deltalake(first, wider, mode="append", schema_mode="merge")
    with pytest.raises(CommitFailedError, match="Metadata changed since last commit"):
        lake.write_deltalake(second, sample(), mode="append")


@pytest.mark.two_databases
def test_concurrent_same_application_transaction_conflicts(lake: Lake) -> None:
    first, second = two(lake)
    properties = CommitProperties(app_transactions=[Transaction("app", 1)])
    lake.write_deltalake(first, sample(), mode="append", commit_properties=properties)
    with pytest.raises(CommitFailedError, match="Concurrent transaction failed"):
        lake.write_deltalake(second, sample(), mode="append", commit_properties=properties)


def test_max_commit_retries_limits_retries(lake: Lake) -> None:
    first, second = two(lake)
    lake.write_deltalake(first, sample(), mode="append")
    once = CommitProperties(max_commit_retries=0)
    with pytest.raises(CommitFailedError, match="Failed to commit transaction: 0"):
        lake.write_deltalake(second, sample(), mode="append", commit_properties=once)
    more = CommitProperties(max_commit_retries=1)
    lake.write_deltalake(second, sample(), mode="append", commit_properties=more)
    assert second.count() == 9


def test_compaction_commits_after_a_concurrent_append(lake: Lake) -> None:
    lake.make("t", sample())
    lake.append("t", sample())
    first, second = lake.DeltaTable(lake.uri("t")), lake.DeltaTable(lake.uri("t"))
    lake.write_deltalake(first, sample(), mode="append")
    result = second.optimize.compact()
    assert result["numFilesRemoved"] == 2
    assert lake.DeltaTable(lake.uri("t")).count() == 9


def test_handle_keeps_its_version_after_a_conflict(lake: Lake) -> None:
    first, second = two(lake)
    first.delete()
    assert second.to_pyarrow_table().num_rows == 3
    with pytest.raises(CommitFailedError):
        second.update({"v": "0"})
    assert second.to_pyarrow_table().num_rows == 3


def test_create_with_ignore_keeps_the_existing_table(lake: Lake) -> None:
    lake.DeltaTable.create(lake.uri("t"), sample().schema)
    table = lake.DeltaTable.create(lake.uri("t"), sample().schema, mode="ignore")
    lake.write_deltalake(table, pa.Table.from_batches(sample().to_batches()), mode="append")
    assert table.count() == 3


@pytest.mark.two_databases
def test_appends_of_many_threads_all_commit(lake: Lake) -> None:
    lake.make("t", sample())

    def write(_: int) -> None:
        for _ in range(3):
            lake.write_deltalake(lake.uri("t"), sample(), mode="append")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    table = lake.DeltaTable(lake.uri("t"))
    assert (table.version(), table.count()) == (12, 39)
    assert [each["version"] for each in table.history()] == list(range(12, -1, -1))
