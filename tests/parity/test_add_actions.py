"""`create_write_transaction` commits files that the user wrote."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from tests.parity.lakes import Lake, column, rows, sample


def put(lake: Lake, table: Any, path: str, data: pa.Table, **partition: str) -> AddAction:
    """Write a Parquet file into a table's folder and return its add action."""
    file = lake.folder(table) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data, file)
    stats = json.dumps({"numRecords": data.num_rows})
    return AddAction(path, file.stat().st_size, partition, 1_700_000_000_000, True, stats)


@pytest.mark.two_databases
def test_append_adds_files(lake: Lake) -> None:
    table = lake.make("t", sample())
    action = put(lake, table, "mine.parquet", sample(id=[7, 8, 9]))
    assert table.create_write_transaction([action], "append", table.schema()) is None
    table.update_incremental()
    assert table.version() == 1
    assert column(table, "id") == [1, 2, 3, 7, 8, 9]
    commit = table.history(1)[0]
    assert commit["operation"] == "WRITE"
    assert commit["operationParameters"]["mode"] == "Append"
    assert "mine.parquet" in {each.rsplit("/", 1)[-1] for each in table.file_uris()}


@pytest.mark.two_databases
def test_overwrite_removes_all_other_files(lake: Lake) -> None:
    table = lake.make("t", sample())
    action = put(lake, table, "mine.parquet", sample(id=[7, 8, 9]))
    table.create_write_transaction([action], "overwrite", table.schema())
    table.update_incremental()
    assert column(table, "id") == [7, 8, 9]
    table.create_write_transaction([], "overwrite", table.schema())
    table.update_incremental()
    assert table.count() == 0


def test_overwrite_replaces_only_filtered_partitions(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    data = sample(id=[7, 8, 9]).drop_columns(["p"])
    action = put(lake, table, "p=a/mine.parquet", data, p="a")
    table.create_write_transaction(
        [action],
        "overwrite",
        table.schema(),
        partition_by=["p"],
        partition_filters=[("p", "=", "a")],
    )
    table.update_incremental()
    assert [(row["id"], row["p"]) for row in rows(table)] == [
        (2, "b"),
        (7, "a"),
        (8, "a"),
        (9, "a"),
    ]


def test_remove_actions_remove_files(lake: Lake) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(table, sample(id=[7, 8, 9]), mode="append")
    newest = table.file_uris()[0].rsplit("/", 1)[-1]
    remove = RemoveAction(newest, True, 1_700_000_000_000)
    table.create_write_transaction([remove], "append", table.schema())
    table.update_incremental()
    assert column(table, "id") == [1, 2, 3]


def test_commit_properties_are_in_the_history(lake: Lake) -> None:
    table = lake.make("t", sample())
    action = put(lake, table, "mine.parquet", sample())
    who = CommitProperties(custom_metadata={"who": "me"})
    table.create_write_transaction([action], "append", table.schema(), commit_properties=who)
    table.update_incremental()
    assert table.history(1)[0]["who"] == "me"


def test_unknown_mode_is_rejected(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match="Invalid save mode provided: bogus"):
        table.create_write_transaction([], "bogus", table.schema())


def test_invalid_actions_raise_the_error_types_of_deltalake(lake: Lake) -> None:
    table = lake.make("t", sample())
    [name] = [uri.rsplit("/", 1)[-1] for uri in table.file_uris()]
    add = put(lake, table, "mine.parquet", sample(id=[7, 8, 9]))
    remove, same = RemoveAction(name, True, 0), RemoveAction("mine.parquet", True, 0)
    for actions, mode, kind, message in (
        ([add, same], "append", ValueError, "Cannot add and remove the same file path"),
        ([same, add], "append", ValueError, "Cannot add and remove the same file path"),
        ([remove], "overwrite", ValueError, "RemoveAction is not supported with mode='overwrite'"),
        ([add, remove], "overwrite", ValueError, "RemoveAction is not supported with"),
        ([{"path": "mine.parquet"}], "append", TypeError, "failed to extract enum PyFileAction"),
        ([None], "append", TypeError, "failed to extract enum PyFileAction"),
        (["mine.parquet"], "append", TypeError, "failed to extract enum PyFileAction"),
        (add, "append", TypeError, "'AddAction' object is not an instance of 'Sequence'"),
    ):
        with pytest.raises(kind, match=message) as caught:
            table.create_write_transaction(actions, mode, table.schema())
        assert not isinstance(caught.value, DeltaError), message
    assert lake.DeltaTable(lake.uri("t")).version() == 0


def test_path_with_a_leading_slash_is_relative_to_the_table(lake: Lake) -> None:
    table = lake.make("t", sample())
    action = put(lake, table, "mine.parquet", sample(id=[7, 8, 9]))
    action.path = "/mine.parquet"
    table.create_write_transaction([action], "append", table.schema())
    table.update_incremental()
    assert table.file_uris()[0] == str(lake.folder(table) / "mine.parquet")
    assert column(table, "id") == [1, 2, 3, 7, 8, 9]
    # Other readers of the published log take such a path as absolute.
    if lake.system != "stock":
        log = (lake.folder(table) / "_delta_log" / f"{1:020}.json").read_text()
        assert '"path":"mine.parquet"' in log


def test_absolute_path_below_the_table_becomes_relative(lake: Lake) -> None:
    table = lake.make("t", sample())
    action = put(lake, table, "mine.parquet", sample(id=[7, 8, 9]))
    action.path = str(lake.folder(table) / "mine.parquet")
    table.create_write_transaction([action], "append", table.schema())
    table.update_incremental()
    if lake.system != "stock":  # stock looks for the absolute path below the table and fails
        assert column(table, "id") == [1, 2, 3, 7, 8, 9]
