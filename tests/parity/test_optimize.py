"""`optimize.compact` and `optimize.z_order`."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, PostCommitHookProperties, WriterProperties
from deltalake.exceptions import DeltaError
from deltalake.table import TableOptimizer

from tests.parity.lakes import Lake, column, numbers, rows

KEYS = {
    "numFilesAdded",
    "numFilesRemoved",
    "filesAdded",
    "filesRemoved",
    "partitionsOptimized",
    "numBatches",
    "totalConsideredFiles",
    "totalFilesSkipped",
    "preserveInsertionOrder",
}


def pieces(lake: Lake, count: int = 3, **options: Any) -> Any:
    """Write `count` times ten rows, half in partition a and half in b, and open the table."""
    for start in range(0, count * 10, 10):
        data = numbers(start, start + 10).append_column("p", pa.array(["a"] * 5 + ["b"] * 5))
        lake.append("t", data, **options)
    return lake.DeltaTable(lake.uri("t"))


def test_compact_merges_files_into_one(lake: Lake) -> None:
    table = pieces(lake)
    before = rows(table)
    result = table.optimize.compact()
    assert result.keys() >= KEYS
    assert (result["numFilesAdded"], result["numFilesRemoved"]) == (1, 3)
    assert (result["totalConsideredFiles"], result["totalFilesSkipped"]) == (3, 0)
    assert result["partitionsOptimized"] == 1
    assert result["preserveInsertionOrder"] is True
    assert (table.version(), len(table.file_uris())) == (3, 1)
    assert rows(table) == before


def test_compact_reports_file_sizes(lake: Lake) -> None:
    table = pieces(lake)
    sizes = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
    result = table.optimize.compact()
    removed, added = json.loads(result["filesRemoved"]), json.loads(result["filesAdded"])
    assert removed == {
        "avg": sum(sizes) / 3,
        "max": max(sizes),
        "min": min(sizes),
        "totalFiles": 3,
        "totalSize": sum(sizes),
    }
    (size,) = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
    assert added == {"avg": size, "max": size, "min": size, "totalFiles": 1, "totalSize": size}


def test_compact_of_one_file_makes_no_commit(lake: Lake) -> None:
    table = pieces(lake, 1)
    result = table.optimize.compact()
    assert (result["numFilesAdded"], result["numFilesRemoved"]) == (0, 0)
    assert (result["totalConsideredFiles"], result["totalFilesSkipped"]) == (1, 1)
    assert json.loads(result["filesAdded"])["totalFiles"] == 0
    assert table.version() == 0


def test_optimize_returns_a_table_optimizer(lake: Lake) -> None:
    table = pieces(lake, 1)
    assert isinstance(table.optimize, TableOptimizer)
    assert table.optimize.table is table
    with pytest.raises(TypeError, match="not callable"):
        table.optimize()


def test_each_partition_is_compacted_separately(lake: Lake) -> None:
    table = pieces(lake, partition_by=["p"])
    result = table.optimize.compact()
    assert (result["numFilesAdded"], result["numFilesRemoved"]) == (2, 6)
    assert result["partitionsOptimized"] == 2
    assert sorted(each["p"] for each in table.partitions()) == ["a", "b"]
    assert column(table, "id") == list(range(30))


@pytest.mark.parametrize(
    "filters", [[("p", "=", "a")], [("p", "in", ["a"])], [("p", "!=", "b")]], ids=str
)
def test_partition_filters_limit_compaction(lake: Lake, filters: list[Any]) -> None:
    table = pieces(lake, partition_by=["p"])
    result = table.optimize.compact(partition_filters=filters)
    assert (result["numFilesAdded"], result["numFilesRemoved"]) == (1, 3)
    assert len(table.file_uris()) == 4
    assert len(table.file_uris(file_pruning_predicate="p = 'a'")) == 1


def test_filter_on_a_missing_column_is_rejected(lake: Lake) -> None:
    with pytest.raises(DeltaError, match="zz"):
        pieces(lake, partition_by=["p"]).optimize.compact(partition_filters=[("zz", "=", "1")])


def test_files_of_the_target_size_are_skipped(lake: Lake) -> None:
    table = pieces(lake)
    result = table.optimize.compact(target_size=1)
    assert (result["numFilesAdded"], result["totalFilesSkipped"]) == (0, 3)
    assert table.version() == 2


def test_compact_accepts_all_options(lake: Lake) -> None:
    table = pieces(lake)
    result = table.optimize.compact(
        target_size=1_000_000,
        max_concurrent_tasks=1,
        max_spill_size=1 << 30,
        max_temp_directory_size=1 << 30,
        min_commit_interval=timedelta(minutes=1),
        writer_properties=WriterProperties(compression="GZIP"),
        commit_properties=CommitProperties(custom_metadata={"who": "me"}),
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=False),
    )
    assert result["numFilesRemoved"] == 3
    assert table.history(1)[0]["who"] == "me"
    assert ".gz" in table.file_uris()[0]


def test_positional_commit_arguments_warn(lake: Lake) -> None:
    table = pieces(lake)
    with pytest.warns(DeprecationWarning, match="positionally to"):
        table.optimize.compact(
            None, None, None, None, None, None, None, None, CommitProperties({"who": "me"})
        )
    assert table.history(1)[0]["who"] == "me"


def test_history_records_the_compaction(lake: Lake) -> None:
    table = pieces(lake)
    result = table.optimize.compact()
    commit = table.history(1)[0]
    assert (commit["operation"], commit["readVersion"]) == ("OPTIMIZE", 2)
    assert commit["operationParameters"] == {"targetSize": "104857600", "predicate": "[]"}
    assert commit["operationMetrics"] == result


def test_compaction_writes_no_change_data(lake: Lake) -> None:
    table = pieces(lake, configuration={"delta.enableChangeDataFeed": "true"})
    table.optimize.compact()
    changes = pa.table(table.load_cdf(starting_version=3))
    assert changes.num_rows == 0


def test_older_versions_are_readable_after_compaction(lake: Lake) -> None:
    table = pieces(lake)
    table.optimize.compact()
    table.load_as_version(1)
    assert column(table, "id") == list(range(20))


def test_z_order_rewrites_files_and_keeps_rows(lake: Lake) -> None:
    table = pieces(lake)
    before = rows(table)
    result = table.optimize.z_order(["id"])
    assert result.keys() >= KEYS
    assert (result["numFilesAdded"], result["numFilesRemoved"]) == (1, 3)
    assert result["preserveInsertionOrder"] is False
    assert rows(table) == before
    assert table.history(1)[0]["operation"] == "OPTIMIZE"


def test_z_order_rewrites_the_files_every_time(lake: Lake) -> None:
    table = pieces(lake)
    table.optimize.z_order(["id", "v"])
    result = table.optimize.z_order(["id", "v"])
    assert (result["numFilesAdded"], result["numFilesRemoved"]) == (1, 1)
    assert table.version() == 4


def test_z_order_sorts_the_rows(lake: Lake) -> None:
    table = lake.make("t", pa.table({"id": [3, 1], "v": [1, 1]}))
    lake.write_deltalake(table, pa.table({"id": [2, 0], "v": [1, 1]}), mode="append")
    table.optimize.z_order(["id"])
    assert table.to_pyarrow_table()["id"].to_pylist() == [0, 1, 2, 3]


def test_partition_filters_limit_z_order(lake: Lake) -> None:
    table = pieces(lake, partition_by=["p"])
    result = table.optimize.z_order(["id"], partition_filters=[("p", "=", "a")])
    assert (result["numFilesAdded"], result["numFilesRemoved"]) == (1, 3)
    assert len(table.file_uris()) == 4


def test_invalid_z_order_columns_are_rejected(lake: Lake) -> None:
    table = pieces(lake, partition_by=["p"])
    with pytest.raises(DeltaError, match="zz"):
        table.optimize.z_order(["zz"])
    with pytest.raises(DeltaError, match="at least one column"):
        table.optimize.z_order([])
    with pytest.raises(DeltaError, match="cannot be partition columns"):
        table.optimize.z_order(["p"])
    assert table.version() == 2
