"""Reading through pyarrow and pandas."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs
import pytest
from deltalake.exceptions import DeltaError

from tests.parity.lakes import Lake, numbers, sample


def test_dataset_has_schema_and_rows_of_the_table(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    dataset = table.to_pyarrow_dataset()
    assert isinstance(dataset, ds.FileSystemDataset)
    assert dataset.schema == sample().schema
    assert dataset.count_rows() == 3
    found = dataset.to_table(columns=["id", "p"], filter=pc.field("p") == "a")
    assert found.sort_by("id").to_pylist() == [{"id": 1, "p": "a"}, {"id": 3, "p": "a"}]


def test_dataset_fragments_have_statistics(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 10))
    lake.write_deltalake(table, numbers(10, 20), mode="append")
    dataset = table.to_pyarrow_dataset()
    assert len(list(dataset.get_fragments())) == 2
    assert len(list(dataset.get_fragments(filter=pc.field("id") > 15))) == 1


def test_dataset_can_be_limited_to_partitions(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    assert table.to_pyarrow_dataset(partitions=[("p", "=", "a")]).count_rows() == 2
    assert table.to_pyarrow_dataset(file_pruning_predicate="p = 'b'").count_rows() == 1


def test_dataset_can_use_large_types(lake: Lake) -> None:
    dataset = lake.make("t", sample()).to_pyarrow_dataset(as_large_types=True)
    assert dataset.schema.field("p").type == pa.large_string()
    assert dataset.to_table()["p"].type == pa.large_string()


def test_dataset_accepts_read_options_and_a_filesystem(lake: Lake) -> None:
    table = lake.make("t", sample())
    options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="ms")
    assert table.to_pyarrow_dataset(parquet_read_options=options).count_rows() == 3
    local = pyarrow.fs.SubTreeFileSystem(str(lake.folder(table)), pyarrow.fs.LocalFileSystem())
    assert table.to_pyarrow_table(filesystem=local).num_rows == 3


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ([("id", ">", 1)], [2, 3]),
        ([("p", "=", "a"), ("id", ">", 1)], [3]),
        ([[("id", "=", 1)], [("id", "=", 3)]], [1, 3]),
        ([("id", "in", [1, 2])], [1, 2]),
        ([("id", "not in", [1, 2])], [3]),
        ([("v", "!=", 1.5)], [3]),
        (pc.field("v").is_null(), [2]),
        (pc.field("id") * 2 > 4, [3]),
        (None, [1, 2, 3]),
    ],
    ids=str,
)
def test_filters_select_rows(lake: Lake, filters: Any, ids: list[int]) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    found = table.to_pyarrow_table(filters=filters)
    assert sorted(found["id"].to_pylist()) == ids


@pytest.mark.parametrize(
    ("partitions", "ids"),
    [
        ([("p", "=", "b")], [2]),
        ([("p", "!=", "b")], [1, 3]),
        ([("p", "in", ["a", "b"])], [1, 2, 3]),
        ([("p", "not in", ["a"])], [2]),
        ([("p", "<", "b")], [1, 3]),
        ([("p", ">=", "b")], [2]),
    ],
    ids=str,
)
def test_partitions_option_selects_rows(lake: Lake, partitions: Any, ids: list[int]) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    found = table.to_pyarrow_table(partitions=partitions, columns=["id"])
    assert found.column_names == ["id"]
    assert sorted(found["id"].to_pylist()) == ids


def test_invalid_filter_operator_is_rejected(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    with pytest.raises(DeltaError, match="Invalid partition filter found"):
        table.to_pyarrow_table(partitions=[("p", "bogus", "a")])


def test_missing_columns_are_rejected(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(pa.ArrowInvalid, match="zz"):
        table.to_pyarrow_table(columns=["zz"])
    with pytest.raises(pa.ArrowInvalid, match="zz"):
        table.to_pyarrow_table(filters=[("zz", "=", 1)])


def test_to_pandas_applies_columns_filters_and_types(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    frame = table.to_pandas(columns=["id", "p"], filters=[("id", ">", 1)])
    assert isinstance(frame, pd.DataFrame)
    assert frame.sort_values("id").to_dict("records") == [{"id": 2, "p": "b"}, {"id": 3, "p": "a"}]
    assert table.to_pandas(partitions=[("p", "=", "b")])["id"].tolist() == [2]
    kinds = table.to_pandas(types_mapper=pd.ArrowDtype).dtypes
    assert kinds["id"] == pd.ArrowDtype(pa.int64())


def test_empty_table_keeps_its_schema(lake: Lake) -> None:
    table = lake.DeltaTable.create(lake.uri("t"), sample().schema)
    assert table.to_pyarrow_table().schema == sample().schema
    assert table.to_pyarrow_table().num_rows == 0
    assert table.to_pandas().empty


def test_added_column_is_null_in_old_rows(lake: Lake) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(table, sample(w=[1, 2, 3]), mode="append", schema_mode="merge")
    found = table.to_pyarrow_table(columns=["w"])["w"].to_pylist()
    assert sorted(found, key=str) == [1, 2, 3, None, None, None]
    assert table.to_pyarrow_table(filters=[("w", "=", 2)]).num_rows == 1


def test_rows_are_in_file_order_newest_first(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 2))
    lake.write_deltalake(table, numbers(2, 4), mode="append")
    assert table.to_pyarrow_table()["id"].to_pylist() == [2, 3, 0, 1]


def test_deleted_data_file_raises_file_not_found(lake: Lake) -> None:
    table = lake.make("t", sample())
    for each in lake.folder(table).glob("*.parquet"):
        each.unlink()
    with pytest.raises(FileNotFoundError):
        table.to_pyarrow_table()


def test_count_reads_only_the_log(lake: Lake) -> None:
    table = lake.make("t", sample())
    for each in lake.folder(table).glob("*.parquet"):
        each.unlink()
    assert table.count() == 3
