"""`schema()`: Delta's types and their conversion to JSON and Arrow."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from arro3.core import Schema as Arro3Schema
from deltalake import Field, Schema
from deltalake.schema import ArrayType, MapType, PrimitiveType, StructType

from tests.parity.lakes import Lake, sample

EVERY_TYPE = pa.schema(
    [
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("bin", pa.binary()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("ntz", pa.timestamp("us")),
        ("dec", pa.decimal128(10, 2)),
        ("list", pa.list_(pa.field("element", pa.int32()))),
        ("map", pa.map_(pa.string(), pa.int32())),
        ("struct", pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))])),
    ]
)
PRIMITIVES = {
    "i8": "byte",
    "i16": "short",
    "i32": "integer",
    "i64": "long",
    "f32": "float",
    "f64": "double",
    "b": "boolean",
    "s": "string",
    "bin": "binary",
    "d": "date",
    "ts": "timestamp",
    "ntz": "timestamp_ntz",
    "dec": "decimal(10,2)",
}


def test_every_arrow_type_has_its_delta_type(lake: Lake) -> None:
    schema = lake.make("t", EVERY_TYPE.empty_table()).schema()
    found = {field.name: field.type for field in schema.fields}
    assert {name: found[name].type for name in PRIMITIVES} == PRIMITIVES
    assert found["list"] == ArrayType("integer")
    assert found["map"] == MapType("string", "integer")
    inner = StructType([Field("z", "string")])
    assert found["struct"] == StructType([Field("x", "long"), Field("y", inner)])


def test_schema_equals_a_constructed_one(lake: Lake) -> None:
    schema = lake.make("t", sample()).schema()
    assert isinstance(schema, Schema)
    assert schema == Schema(
        [
            Field("id", PrimitiveType("long")),
            Field("p", PrimitiveType("string")),
            Field("v", PrimitiveType("double")),
        ]
    )
    assert repr(schema).startswith('Schema([Field(id, PrimitiveType("long"), nullable=True)')
    assert schema != Schema([Field("id", "long")])


def test_to_json_is_the_schema_string(lake: Lake) -> None:
    table = lake.make("t", sample())
    assert json.loads(table.schema().to_json()) == {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "p", "type": "string", "nullable": True, "metadata": {}},
            {"name": "v", "type": "double", "nullable": True, "metadata": {}},
        ],
    }
    assert Schema.from_json(table.schema().to_json()) == table.schema()


def test_to_arrow_returns_the_written_schema(lake: Lake) -> None:
    schema = lake.make("t", EVERY_TYPE.empty_table()).schema()
    arrow = schema.to_arrow()
    assert isinstance(arrow, Arro3Schema)
    assert pa.schema(arrow) == EVERY_TYPE
    assert pa.schema(schema) == EVERY_TYPE
    assert Schema.from_arrow(EVERY_TYPE) == schema


def test_to_arrow_can_use_large_types(lake: Lake) -> None:
    schema = lake.make("t", EVERY_TYPE.empty_table()).schema()
    large = pa.schema(schema.to_arrow(as_large_types=True))
    assert large.field("s").type == pa.large_string()
    assert large.field("bin").type == pa.large_binary()
    assert large.field("list").type == pa.large_list(pa.field("element", pa.int32()))
    assert large.field("map").type == pa.map_(pa.large_string(), pa.int32())
    assert large.field("i64").type == pa.int64()


def test_nullability_and_column_metadata_are_kept(lake: Lake) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata={"comment": "the key"}),
            pa.field("s", pa.struct([pa.field("x", pa.int32(), nullable=False)])),
            pa.field("l", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ]
    )
    table = lake.DeltaTable.create(lake.uri("t"), schema)
    first, second, third = table.schema().fields
    assert (first.nullable, first.metadata) == (False, {"comment": "the key"})
    assert second.type == StructType([Field("x", "integer", nullable=False)])
    assert third.type == ArrayType("integer", contains_null=False)
    assert pa.schema(table.schema().to_arrow()).field("id").nullable is False


def test_read_data_has_the_types_of_the_schema(lake: Lake) -> None:
    table = lake.make("t", EVERY_TYPE.empty_table())
    assert table.to_pyarrow_table().schema == EVERY_TYPE
    assert table.to_pyarrow_dataset().schema == EVERY_TYPE


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.uint8(), "byte"),
        (pa.uint16(), "short"),
        (pa.uint32(), "integer"),
        (pa.uint64(), "long"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary_view(), "binary"),
        (pa.binary(2), "binary"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.timestamp("ns", "UTC"), "timestamp"),
        (pa.timestamp("us", "Europe/Berlin"), "timestamp"),
        (pa.timestamp("s"), "timestamp_ntz"),
        (pa.timestamp("ms"), "timestamp_ntz"),
        (pa.date64(), "date"),
        (pa.decimal128(38, 10), "decimal(38,10)"),
    ],
    ids=str,
)
def test_other_arrow_types_are_stored_as_a_delta_type(
    lake: Lake, given: pa.DataType, stored: str
) -> None:
    table = lake.make("t", pa.table({"c": pa.nulls(2, given)}))
    assert table.schema().fields[0].type == PrimitiveType(stored)
    assert table.to_pyarrow_table()["c"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    "given", [pa.large_list(pa.int64()), pa.list_(pa.int64(), 2), pa.list_(pa.int64())], ids=str
)
def test_every_list_type_is_stored_as_an_array(lake: Lake, given: pa.DataType) -> None:
    table = lake.make("t", pa.table({"c": pa.array([[1, 2], None], given)}))
    assert table.schema().fields[0].type == ArrayType("long")
    assert table.to_pyarrow_table()["c"].to_pylist() == [[1, 2], None]


@pytest.mark.parametrize(
    "given", [pa.time64("us"), pa.duration("us"), pa.decimal256(40, 2)], ids=str
)
def test_unsupported_types_are_rejected(lake: Lake, given: pa.DataType) -> None:
    with pytest.raises(Exception, match="Invalid data type for Delta Lake"):
        lake.write_deltalake(lake.uri("t"), pa.table({"c": pa.nulls(1, given)}))
    assert not lake.DeltaTable.is_deltatable(lake.uri("t"))


def test_null_type_is_stored_as_void(lake: Lake) -> None:
    table = lake.make("t", pa.table({"a": [1], "n": pa.nulls(1)}))
    assert table.schema().fields[1].type == PrimitiveType("void")
    assert table.to_pyarrow_table().to_pylist() == [{"a": 1, "n": None}]


def test_column_names_can_have_any_characters(lake: Lake) -> None:
    data = pa.table({"a b": [1], "x.y": [2], "grüße": ["ä"], "select": [True]})
    table = lake.make("t", data)
    assert [field.name for field in table.schema().fields] == ["a b", "x.y", "grüße", "select"]
    assert table.to_pyarrow_table().to_pylist() == data.to_pylist()


def test_schema_is_that_of_the_loaded_version(lake: Lake) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(table, sample(w=[1, 2, 3]), mode="append", schema_mode="merge")
    assert [field.name for field in table.schema().fields] == ["id", "p", "v", "w"]
    table.load_as_version(0)
    assert [field.name for field in table.schema().fields] == ["id", "p", "v"]
    assert table.to_pyarrow_table().column_names == ["id", "p", "v"]
