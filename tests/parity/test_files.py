"""`get_add_actions`, `partitions` and `file_uris` list the files of a version."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import arro3.core
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from tests.parity.lakes import Lake, numbers, sample


def actions(table: Any, *, flatten: bool = True) -> list[dict[str, Any]]:
    return list(pa.table(table.get_add_actions(flatten=flatten)).to_pylist())


@pytest.mark.two_databases
def test_add_actions_have_path_size_and_statistics(lake: Lake) -> None:
    table = lake.make("t", sample())
    found = table.get_add_actions()
    assert isinstance(found, arro3.core.Table)
    (action,) = pa.table(found).to_pylist()
    (uri,) = table.file_uris()
    assert uri.endswith("/" + action.pop("path"))
    assert action.pop("size_bytes") == Path(uri).stat().st_size
    written = datetime.fromtimestamp(action.pop("modification_time") / 1000, UTC)
    assert abs((datetime.now(UTC) - written).total_seconds()) < 600
    assert action == {
        "num_records": 3,
        "null_count": {"id": 0, "p": 0, "v": 1},
        "min": {"id": 1, "p": "a", "v": 1.5},
        "max": {"id": 3, "p": "b", "v": 2.5},
    }


@pytest.mark.two_databases
def test_flattened_add_actions_have_partition_columns(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    found = sorted(actions(table), key=lambda each: each["partition.p"])
    assert [set(each) for each in found] == [
        {
            "path",
            "size_bytes",
            "modification_time",
            "num_records",
            "null_count.id",
            "null_count.v",
            "min.id",
            "min.v",
            "max.id",
            "max.v",
            "partition.p",
        }
    ] * 2
    assert [each["partition.p"] for each in found] == ["a", "b"]
    assert [each["num_records"] for each in found] == [2, 1]
    assert (found[0]["min.id"], found[0]["max.id"]) == (1, 3)
    assert (found[1]["null_count.v"], found[1]["min.v"]) == (1, None)


def test_add_actions_have_the_types_of_the_schema(lake: Lake) -> None:
    data = pa.table({"id": [1], "d": [date(2020, 1, 1)], "v": [1.5]})
    table = lake.make("t", data, partition_by=["d"])
    schema = pa.schema(table.get_add_actions().schema)
    assert schema.names == [
        "path",
        "size_bytes",
        "modification_time",
        "num_records",
        "null_count",
        "min",
        "max",
        "partition",
    ]
    assert schema.field("min").type == pa.struct([("id", pa.int64()), ("v", pa.float64())])
    assert schema.field("null_count").type == pa.struct([("id", pa.int64()), ("v", pa.int64())])
    assert schema.field("partition").type == pa.struct([("d", pa.date32())])
    assert schema.field("modification_time").type == pa.int64()


def test_add_actions_of_an_empty_table_keep_their_columns(lake: Lake) -> None:
    table = lake.DeltaTable.create(lake.uri("t"), sample().schema)
    assert actions(table) == []
    assert "min.id" in pa.table(table.get_add_actions(flatten=True)).column_names


def test_every_type_has_statistics(lake: Lake) -> None:
    low, high = datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)
    data = pa.table(
        {
            "i": pa.array([3, None, -3], pa.int32()),
            "d": [date(2020, 1, 1), None, date(2021, 1, 1)],
            "ts": pa.array([low, None, high], pa.timestamp("us", "UTC")),
            "dec": pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(5, 2)),
            "s": ["b", None, "a"],
            "st": [{"x": 1}, {"x": None}, {"x": 5}],
        }
    )
    (found,) = actions(lake.make("t", data))
    assert (found["min.i"], found["max.i"]) == (-3, 3)
    assert (found["min.d"], found["max.d"]) == (date(2020, 1, 1), date(2021, 1, 1))
    assert (found["min.ts"], found["max.ts"]) == (low, high)
    assert (found["min.dec"], found["max.dec"]) == (Decimal("-2.25"), Decimal("1.50"))
    assert (found["min.s"], found["max.s"]) == ("a", "b")
    assert (found["min.st.x"], found["max.st.x"]) == (1, 5)
    for name in ("i", "d", "ts", "dec", "s", "st.x"):
        assert found[f"null_count.{name}"] == 1


def test_long_strings_are_truncated_in_statistics(lake: Lake) -> None:
    (found,) = actions(lake.make("t", pa.table({"s": ["x" * 100, "a" * 100]})))
    assert len(found["min.s"]) < 100
    assert ("a" * 100).startswith(found["min.s"])
    assert found["max.s"] is None or found["max.s"] >= "x" * len(found["max.s"])


def test_nan_is_not_in_statistics(lake: Lake) -> None:
    (found,) = actions(lake.make("t", pa.table({"f": [float("nan"), 1.0]})))
    assert found["num_records"] == 2
    assert found["min.f"] in (None, 1.0)
    table = lake.DeltaTable(lake.uri("t"))
    assert len(table.file_uris(file_pruning_predicate="f > 5")) in (0, 1)


def test_table_properties_choose_the_columns_whose_statistics_are_collected(lake: Lake) -> None:
    first = lake.make("a", sample(), configuration={"delta.dataSkippingNumIndexedCols": "1"})
    assert [key for key in actions(first)[0] if key.startswith("min.")] == ["min.id"]
    second = lake.make("b", sample(), configuration={"delta.dataSkippingStatsColumns": "v"})
    assert [key for key in actions(second)[0] if key.startswith("min.")] == ["min.v"]


@pytest.mark.two_databases
def test_file_uris_are_paths_newest_first(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 1))
    for start in (1, 2):
        lake.write_deltalake(table, numbers(start, start + 1), mode="append")
    uris = table.file_uris()
    assert all(Path(each).is_file() for each in uris)
    assert [each["path"] for each in actions(table)] == [each.rsplit("/", 1)[-1] for each in uris]
    assert [each["min.id"] for each in actions(table)] == [2, 1, 0]


def test_file_uris_are_those_of_the_loaded_version(lake: Lake) -> None:
    table = lake.make("t", sample())
    first = table.file_uris()
    lake.write_deltalake(table, sample(), mode="overwrite")
    assert table.file_uris() != first
    table.load_as_version(0)
    assert table.file_uris() == first


@pytest.mark.two_databases
@pytest.mark.parametrize(
    ("predicate", "count"),
    [
        ("id = 15", 1),
        ("id > 100", 0),
        ("id < 20", 2),
        ([("id", "=", 15)], 1),
        ([("id", ">=", 10), ("id", "<", 20)], 1),
        ([[("id", "=", 5)], [("id", "=", 25)]], 2),
        ("v = 150", 1),
        ("id is null", 0),
        (None, 3),
    ],
    ids=str,
)
def test_file_uris_skip_files_that_cannot_match(lake: Lake, predicate: Any, count: int) -> None:
    for start in (0, 10, 20):
        lake.append("t", numbers(start, start + 10))
    table = lake.DeltaTable(lake.uri("t"))
    assert len(table.file_uris(file_pruning_predicate=predicate)) == count


@pytest.mark.parametrize(
    ("predicate", "found"),
    [
        ("p = 'a'", {"a"}),
        ([("p", "=", "a")], {"a"}),
        ([("p", "!=", "a")], {"b"}),
        ([("p", "in", ["a", "b"])], {"a", "b"}),
        ([("p", "not in", ["a"])], {"b"}),
        ([("p", ">", "a")], {"b"}),
        ("p is null", {None}),
        ("p is not null", {"a", "b"}),
        ([("p", "=", "")], {None}),
        ("id = 9", {None}),
    ],
    ids=lambda given: str(sorted(given, key=str) if isinstance(given, set) else given),
)
def test_predicate_selects_partitions(lake: Lake, predicate: Any, found: set[str | None]) -> None:
    data = pa.concat_tables([sample(), sample(id=[9, 9, 9], p=pa.nulls(3, pa.string()))])
    table = lake.make("t", data, partition_by=["p"])
    assert {each["p"] for each in table.partitions(file_pruning_predicate=predicate)} == found
    assert len(table.file_uris(file_pruning_predicate=predicate)) == len(found)


def test_partition_filters_are_deprecated(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    with pytest.warns(DeprecationWarning, match="partition_filters"):
        assert table.partitions([("p", "=", "a")]) == [{"p": "a"}]
    with pytest.warns(DeprecationWarning, match="partition_filters"):
        assert len(table.file_uris([("p", "=", "b")])) == 1


@pytest.mark.two_databases
def test_partition_values_are_strings(lake: Lake) -> None:
    data = pa.table({"id": [1, 2, 3], "d": [date(2020, 1, 1), None, None], "n": [5, 6, 6]})
    table = lake.make("t", data, partition_by=["d", "n"])
    assert sorted(table.partitions(), key=lambda each: each["n"]) == [
        {"d": "2020-01-01", "n": "5"},
        {"d": None, "n": "6"},
    ]
    assert lake.make("flat", sample()).partitions() == []


def test_invalid_predicates_are_rejected(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    with pytest.raises(DeltaError, match="zz"):
        table.file_uris(file_pruning_predicate="zz > 1")
    with pytest.raises(DeltaError, match="Invalid partition filter found"):
        table.file_uris(file_pruning_predicate=[("p", "bogus", "a")])


def test_numeric_literals_compare_with_string_partitions_as_strings(lake: Lake) -> None:
    parts = ["1", "2", "10", "x", "-1"]
    data = pa.table({"p": parts, "v": [1, 2, 3, 4, 5], "s": ["a", "b", "c", "d", "e"]})
    table = lake.make("t", data, partition_by=["p"])
    for predicate, values in {
        "p = 1": ["1"],
        "p > 2": ["x"],
        "1 < p": ["10", "2", "x"],
        "p IN (1, 2)": ["1", "2"],
        "p NOT IN (1)": ["-1", "10", "2", "x"],
        "p BETWEEN 1 AND 3": ["1", "10", "2"],
        "p = -1": ["-1"],
        "p = 1.5": [],
        "v > 2 AND p < 3": ["-1", "10"],
        "s = 1": [],
    }.items():
        found = table.partitions(file_pruning_predicate=predicate)
        assert sorted(each["p"] for each in found) == values, predicate
        assert len(table.file_uris(file_pruning_predicate=predicate)) == len(values), predicate
        dataset = table.to_pyarrow_dataset(file_pruning_predicate=predicate)
        assert sorted(dataset.to_table()["p"].to_pylist()) == values, predicate


def test_negative_literals_compare_with_string_columns_as_strings(lake: Lake) -> None:
    table = lake.make("t", pa.table({"p": ["1", "x", "-1"], "v": [1, 2, 3]}), partition_by=["p"])
    table.delete("p = -1")
    assert sorted(table.to_pyarrow_table()["p"].to_pylist()) == ["1", "x"]


def test_patterns_and_functions_are_rejected_as_pruning_predicates(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    for predicate in (
        "p LIKE 'a%'",
        "p NOT LIKE 'a%'",
        "p ILIKE 'a%'",
        "id > 1 OR p LIKE 'a%'",
        "p ~ 'a'",
        "upper(p) = 'A'",
        "id % 2 = 0",
        "-id < -1",
        "p || 'x' = 'ax'",
    ):
        for select in (table.file_uris, table.partitions, table.to_pyarrow_dataset):
            with pytest.raises(DeltaError, match="Generic DeltaTable error: Cannot use predicate"):
                select(file_pruning_predicate=predicate)


def test_timestamp_statistics_are_formatted_like_those_of_deltalake(lake: Lake) -> None:
    day, later = datetime(2024, 1, 1), datetime(2024, 1, 2, 3, 4, 5, 600_000)
    data = pa.table(
        {
            "at": pa.array([day, later], pa.timestamp("us", "UTC")),
            "wall": pa.array([day, later], pa.timestamp("us")),
        }
    )
    table = lake.make("t", data)
    log = (lake.folder(table) / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    [stats] = [json.loads(json.loads(line)["add"]["stats"]) for line in log if '"add"' in line]
    assert stats["minValues"] == {"at": "2024-01-01T00:00:00Z", "wall": "2024-01-01 00:00:00"}
    assert stats["maxValues"] == {
        "at": "2024-01-02T03:04:05.600Z",
        "wall": "2024-01-02 03:04:05.600",
    }
    lake.append("t", pa.table({name: data[name].slice(0, 1) for name in data.column_names}))
    table = lake.DeltaTable(lake.uri("t"))
    assert len(table.file_uris(file_pruning_predicate="wall > '2024-01-02 03:04:05.5'")) == 1
    assert len(table.file_uris(file_pruning_predicate="at > '2024-01-02T03:04:05.5Z'")) == 1
