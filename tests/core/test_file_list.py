"""File lists from every Arrow type that a database may send."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from deltasql import _core
from deltasql.model.actions import AddFile

STATS = json.dumps(
    {
        "numRecords": 3,
        "minValues": {"a": 1, "s": {"x": "é"}, "d": 0.1},
        "maxValues": {"a": 9, "s": {"x": "z"}, "b": True},
        "nullCount": {"a": 0, "s": {"x": 2}},
    }
)
EXPECTED = AddFile("a", {"p": "1"}, 10, 20, stats=STATS)


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("number", [pa.int64(), pa.int32(), pa.decimal128(20, 0)])
def test_every_arrow_type_for_text_and_numbers_is_accepted(
    text: pa.DataType, number: pa.DataType
) -> None:
    table = pa.table(
        {
            "file_id": pa.array([7, 8]),
            "path": pa.array(["a", "b"], text),
            "partition": pa.array(['{"p":"1"}', "{}"], text).dictionary_encode()
            if text == pa.string()
            else pa.array(['{"p":"1"}', "{}"], text),
            "size": pa.array([10, 11], number),
            "modification_time": pa.array([20, 21], number),
            "data_change": pa.array([1, 0], pa.int64()),
            "stats": pa.array([STATS, ""], text),
            "tags": pa.nulls(2),
        }
    )
    files = _core.FileList.from_arrow(table)
    assert files[0].to_action() == EXPECTED
    assert files[1].to_action() == AddFile("b", {}, 11, 21, False)
    assert pa.table(files)["file_id"].to_pylist() == [7, 8]
    assert files.paths() == ["a", "b"]


def test_file_list_behaves_like_a_sequence() -> None:
    batches = [pa.record_batch({"path": [f"{i}"]}) for i in range(3)]
    files = _core.FileList.from_arrow(pa.Table.from_batches(batches))
    assert [file.path for file in files] == ["0", "1", "2"]
    assert (files[-1].path, len(files), len(list(iter(files)))) == ("2", 3, 3)
    for index in (3, -4):
        with pytest.raises(IndexError):
            files[index]
    empty = _core.FileList.from_arrow(pa.table({"path": pa.array([], pa.string())}))
    assert (len(empty), list(empty), empty.mask(_core.Predicate('{"op":"true"}'))) == (0, [], [])
    with pytest.raises(IndexError):
        empty[0]


def test_table_without_paths_is_rejected() -> None:
    with pytest.raises(ValueError, match="no column `path` among"):
        _core.FileList.from_arrow(pa.table({"name": ["a"]}))
    with pytest.raises(ValueError, match="__arrow_c_stream__"):
        _core.FileList.from_arrow([1])  # type: ignore[arg-type]


def test_invalid_json_error_names_the_column() -> None:
    files = _core.FileList.from_arrow(pa.table({"path": ["a"], "deletion_vector": ["{"]}))
    with pytest.raises(ValueError, match="deletion_vector"):
        files[0]


def test_statistics_are_read_by_column() -> None:
    file = _core.FileList.from_arrow(pa.table({"path": ["a"], "stats": [STATS]}))[0]
    assert (file.min("a"), file.max("a"), file.null_count("a")) == (1, 9, 0)
    assert (file.min(["s", "x"]), file.max(("s", "x")), file.null_count(["s", "x"])) == (
        "é",
        "z",
        2,
    )
    assert (file.min("d"), file.max("b"), file.num_records) == (0.1, True, 3)
    assert (file.min("missing"), file.max("s"), file.null_count("s")) == (None, None, None)
    bare = _core.FileList.from_arrow(pa.table({"path": ["a"]}))[0]
    assert (bare.num_records, bare.min("a"), bare.stats) == (None, None, None)


def test_database_rows_become_columns() -> None:
    columns = [
        ("path", "string"),
        ("partition_id", "int64"),
        ("size", "int64"),
        ("data_change", "bool"),
        ("stats", "string"),
    ]
    rows = [("a", 1, 10, 1, STATS), ("b", 2, None, False, ""), ("c", 3, 12, None, None)]
    files = _core.FileList.from_rows(rows, columns).with_partitions({1: '{"p":"1"}', 2: "{}"})
    assert files[0].to_action() == AddFile("a", {"p": "1"}, 10, 0, stats=STATS)
    assert files[1].to_action() == AddFile("b", {}, 0, 0, False)
    assert pa.table(files)["partition"].to_pylist() == ['{"p":"1"}', "{}", None]
    assert len(_core.FileList.from_rows([], columns)) == 0


def test_row_that_does_not_match_its_columns_is_rejected() -> None:
    with pytest.raises(ValueError, match="a row of 2 values for 1 columns"):
        _core.FileList.from_rows([("a", 1)], [("path", "string")])
    with pytest.raises(ValueError, match="unknown kind `date`"):
        _core.FileList.from_rows([], [("path", "date")])
    with pytest.raises(TypeError):
        _core.FileList.from_rows([(1,)], [("path", "string")])
