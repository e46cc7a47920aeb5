"""Writing data with another schema than the table's: casts, schema evolution, partitioning."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError, SchemaMismatchError
from deltalake.schema import ArrayType, Field, PrimitiveType, StructType

from tests.parity.lakes import Lake, column, rows, sample


def names(table: object) -> list[str]:
    return [field.name for field in table.schema().fields]  # type: ignore[attr-defined]


def test_fewer_or_more_columns_are_rejected(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(SchemaMismatchError, match="number of fields does not match: 1 vs 3"):
        lake.write_deltalake(table, pa.table({"id": [1]}), mode="append")
    with pytest.raises(SchemaMismatchError, match="number of fields does not match: 4 vs 3"):
        lake.write_deltalake(table, sample(w=[1, 2, 3]), mode="append")
    with pytest.raises(SchemaMismatchError, match="number of fields does not match: 4 vs 3"):
        lake.write_deltalake(table, sample(w=[1, 2, 3]), mode="overwrite")
    assert table.version() == 0


def test_columns_are_matched_by_name(lake: Lake) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(table, sample(id=[4, 5, 6]).select(["v", "id", "p"]), mode="append")
    assert names(table) == ["id", "p", "v"]
    assert rows(table)[3] == {"id": 4, "p": "a", "v": 1.5}


def test_values_are_cast_to_the_type_of_the_column(lake: Lake) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(
        table,
        pa.table({"id": pa.array([7], pa.int8()), "p": pa.array(["x"]), "v": pa.array([2])}),
        mode="append",
    )
    lake.write_deltalake(table, pa.table({"id": ["8"], "p": ["y"], "v": ["2.5"]}), mode="append")
    assert rows(table)[3:] == [{"id": 7, "p": "x", "v": 2.0}, {"id": 8, "p": "y", "v": 2.5}]
    assert table.schema().fields[0].type == PrimitiveType("long")


def test_value_that_cannot_be_cast_is_rejected(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(Exception, match=r"(?i)cast"):
        lake.write_deltalake(table, sample(id=["x", "y", "z"]), mode="append")
    small = lake.make("small", pa.table({"n": pa.array([1], pa.int8())}))
    with pytest.raises(Exception, match=r"(?i)cast"):
        lake.write_deltalake(small, pa.table({"n": pa.array([300], pa.int64())}), mode="append")
    assert lake.DeltaTable(lake.uri("t")).version() == 0


def test_null_column_matches_every_type(lake: Lake) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(table, sample(v=pa.nulls(3)), mode="append")
    assert column(table, "v") == [1.5, 2.5, None, None, None, None]


def test_schema_merge_adds_columns_and_fills_nulls(lake: Lake) -> None:
    table = lake.make("t", sample())
    data = pa.table({"id": [4], "w": [True]})
    lake.write_deltalake(table, data, mode="append", schema_mode="merge")
    assert names(table) == ["id", "p", "v", "w"]
    assert rows(table) == [
        *({**row, "w": None} for row in sample().to_pylist()),
        {"id": 4, "p": None, "v": None, "w": True},
    ]


def test_schema_merge_with_overwrite_keeps_old_columns(lake: Lake) -> None:
    table = lake.make("t", sample())
    data = pa.table({"id": [4], "w": ["x"]})
    lake.write_deltalake(table, data, mode="overwrite", schema_mode="merge")
    assert names(table) == ["id", "p", "v", "w"]
    assert rows(table) == [{"id": 4, "p": None, "v": None, "w": "x"}]


def test_schema_merge_does_not_change_a_type(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(Exception, match=r"(?i)cast"):
        lake.write_deltalake(table, pa.table({"id": ["s"]}), mode="append", schema_mode="merge")
    assert lake.DeltaTable(lake.uri("t")).version() == 0


def test_schema_merge_extends_nested_structs(lake: Lake) -> None:
    table = lake.make("t", pa.table({"s": [{"a": 1}], "l": [[{"a": 1}]]}))
    data = pa.table({"s": [{"a": 2, "b": "x"}], "l": [[{"a": 2, "b": "y"}]]})
    lake.write_deltalake(table, data, mode="append", schema_mode="merge")
    grown = StructType([Field("a", "long"), Field("b", "string")])
    assert [field.type for field in table.schema().fields] == [grown, ArrayType(grown)]
    found = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["s"]["a"])
    assert found == [
        {"s": {"a": 1, "b": None}, "l": [{"a": 1, "b": None}]},
        {"s": {"a": 2, "b": "x"}, "l": [{"a": 2, "b": "y"}]},
    ]


def test_schema_merge_without_new_columns_keeps_the_schema(lake: Lake) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(table, pa.table({"id": [9]}), mode="append", schema_mode="merge")
    assert names(table) == ["id", "p", "v"]
    assert rows(table)[3] == {"id": 9, "p": None, "v": None}


def test_schema_overwrite_replaces_the_schema(lake: Lake) -> None:
    table = lake.make("t", sample())
    data = pa.table({"id": ["one"], "new": [1]})
    lake.write_deltalake(table, data, mode="overwrite", schema_mode="overwrite")
    assert table.version() == 1
    assert rows(table) == [{"id": "one", "new": 1}]
    table.load_as_version(0)
    assert rows(table) == sample().to_pylist()


def test_schema_overwrite_is_rejected_for_append(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match="Schema overwrite not supported for Append"):
        lake.write_deltalake(table, sample(), mode="append", schema_mode="overwrite")


def test_partition_columns_default_to_those_of_the_table(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by="p")
    assert table.metadata().partition_columns == ["p"]
    lake.write_deltalake(table, sample(p=["c", "c", None]), mode="append")
    assert sorted(table.partitions(), key=str) == [
        {"p": "a"},
        {"p": "b"},
        {"p": "c"},
        {"p": None},
    ]
    assert rows(table)[0].keys() == {"id", "p", "v"}
    assert column(table, "p") == ["a", "a", "b", "c", "c", None]


def test_different_partitioning_is_rejected(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    lake.write_deltalake(table, sample(), mode="append", partition_by=["p"])
    with pytest.raises(DeltaError, match="Specified table partitioning does not match"):
        lake.write_deltalake(table, sample(), mode="append", partition_by=["id"])
    flat = lake.make("flat", sample())
    with pytest.raises(DeltaError, match="Specified table partitioning does not match"):
        lake.write_deltalake(flat, sample(), mode="append", partition_by=["p"])


def test_schema_overwrite_can_change_the_partitioning(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    lake.write_deltalake(
        table, sample(), mode="overwrite", schema_mode="overwrite", partition_by=["id"]
    )
    assert table.metadata().partition_columns == ["id"]
    assert sorted(each["id"] for each in table.partitions()) == ["1", "2", "3"]


def test_partition_column_must_be_in_the_data(lake: Lake) -> None:
    with pytest.raises(DeltaError, match="nope"):
        lake.write_deltalake(lake.uri("t"), sample(), partition_by=["nope"])


def test_partition_values_of_every_type_are_read_back(lake: Lake) -> None:
    data = pa.table(
        {
            "n": [1, 2, 3],
            "i": pa.array([10, -1, None], pa.int32()),
            "d": [date(2024, 2, 29), date(1969, 12, 31), None],
            "b": [True, False, None],
            "s": ["ä/b=c d%", "plain", None],
            "dec": pa.array([Decimal("1.50"), Decimal("-2.00"), None], pa.decimal128(5, 2)),
        }
    )
    table = lake.make("t", data, partition_by=["i", "d", "b", "s", "dec"])
    assert rows(table, "n") == data.to_pylist()
    assert {each["s"] for each in table.partitions()} == {"ä/b=c d%", "plain", None}
    assert table.to_pyarrow_table(filters=[("s", "=", "ä/b=c d%")])["n"].to_pylist() == [1]


def test_timestamp_partition_values_are_read_back(lake: Lake) -> None:
    timestamps = [1_700_000_000_123_456, 1_700_000_000_000_000, None]
    data = pa.table(
        {
            "id": [1, 2, 3],
            "ts": pa.array(timestamps, pa.timestamp("us", "UTC")),
            "ntz": pa.array(timestamps, pa.timestamp("us")),
        }
    )
    table = lake.make("t", data, partition_by=["ts", "ntz"])
    assert rows(table) == data.to_pylist()
    assert {each["ntz"] for each in table.partitions()} == {
        "2023-11-14 22:13:20.123456",
        "2023-11-14 22:13:20.000000",
        None,
    }


def test_nested_partition_column_is_rejected(lake: Lake) -> None:
    with pytest.raises(DeltaError):
        lake.write_deltalake(lake.uri("t"), pa.table({"l": [[1]], "id": [1]}), partition_by=["l"])


def test_files_are_in_hive_partition_folders(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    folders = sorted(each.split("/")[-2] for each in table.file_uris())
    assert folders == ["p=a", "p=b"]
    nulls = lake.make("nulls", sample(p=pa.nulls(3, pa.string())), partition_by=["p"])
    assert [each.split("/")[-2] for each in nulls.file_uris()] == ["p=__HIVE_DEFAULT_PARTITION__"]


def test_empty_string_partition_is_read_as_empty_or_null(lake: Lake) -> None:
    table = lake.make("t", sample(p=["", "x", "x"]), partition_by=["p"])
    assert rows(table)[0]["p"] in ("", None)
    assert table.count() == 3


def test_two_partition_columns_give_nested_folders(lake: Lake) -> None:
    data = sample(q=[1, 1, 2])
    table = lake.make("t", data, partition_by=["p", "q"])
    assert table.metadata().partition_columns == ["p", "q"]
    assert sorted(tuple(each.split("/")[-3:-1]) for each in table.file_uris()) == [
        ("p=a", "q=1"),
        ("p=a", "q=2"),
        ("p=b", "q=1"),
    ]
    assert rows(table) == data.to_pylist()


def test_schema_evolution_cannot_add_generated_columns(lake: Lake) -> None:
    table = lake.make("t", pa.table({"id": [1]}))
    metadata = {"delta.generationExpression": "id * 10"}
    schema = pa.schema([("id", pa.int64()), pa.field("g", pa.int64(), metadata=metadata)])
    data = pa.table({"id": [3], "g": [30]}, schema)
    message = "^Schema evolved fields cannot have generated expressions"
    for mode in ("append", "overwrite"):
        with pytest.raises(SchemaMismatchError, match=message):
            lake.write_deltalake(lake.uri("t"), data, mode=mode, schema_mode="merge")
    merge = {"source_alias": "s", "target_alias": "t", "merge_schema": True}
    for updates in ({"g": "s.g"}, {"id": "s.id", "g": "s.g"}):
        with pytest.raises(SchemaMismatchError, match=message):
            table.merge(data, "t.id = s.id", **merge).when_matched_update(updates).execute()
    with pytest.raises(SchemaMismatchError, match=message):
        table.merge(data, "t.id = s.id", **merge).when_not_matched_insert_all().execute()
    table = lake.DeltaTable(lake.uri("t"))
    assert (table.version(), rows(table)) == (0, [{"id": 1}])
    lake.write_deltalake(lake.uri("t"), data, mode="overwrite", schema_mode="overwrite")
    lake.append("t", pa.table({"id": [4]}))
    assert rows(lake.DeltaTable(lake.uri("t"))) == [{"id": 3, "g": 30}, {"id": 4, "g": 40}]
