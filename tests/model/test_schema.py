"""Delta schemas: JSON, columns, conversion from other libraries, and validation."""

from __future__ import annotations

import json
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.schema.column_paths import split_column_list, split_column_path
from deltasql.model.schema.convert import schema_from_any, schema_to_arrow
from deltasql.model.schema.rules import validate_schema
from deltasql.model.schema.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    leaf_columns,
    resolve_column,
    skipping_columns,
)

PRIMITIVES = ["byte", "long", "double", "string", "binary", "date", "timestamp", "decimal(10,2)"]
names = st.text("abcXYZé_ 1", min_size=1, max_size=6)
metadata = st.dictionaries(
    st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5) | st.lists(st.booleans())
)


def structs(children: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    field = st.builds(StructField, names, children, st.booleans(), metadata)
    return st.lists(field, max_size=4).map(lambda fields: StructType(tuple(fields)))


data_types: st.SearchStrategy[DataType] = st.recursive(
    st.sampled_from(PRIMITIVES),
    lambda children: st.one_of(
        st.builds(ArrayType, children, st.booleans()),
        st.builds(MapType, children, children, st.booleans()),
        structs(children),
    ),
    max_leaves=8,
)


def columns(**types: DataType) -> StructType:
    return StructType(tuple(StructField(name, kind) for name, kind in types.items()))


@given(structs(data_types))
def test_schema_is_unchanged_after_a_json_round_trip(schema: StructType) -> None:
    text = schema.to_json()
    assert StructType.from_json(text) == schema
    assert StructType.from_json(text).to_json() == text


def test_schema_json_is_the_same_as_in_deltalake() -> None:
    arrow = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("s", pa.struct([("x", pa.list_(pa.string()))])),
            pa.field("m", pa.map_(pa.string(), pa.decimal128(12, 3))),
        ]
    )
    stock = deltalake.Schema.from_arrow(arrow).to_json()
    assert schema_from_any(arrow).to_json() == stock


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "{}",
        "[]",
        '"long"',
        '{"type":"struct"}',
        '{"type":"struct","fields":[{"type":"long"}]}',
        '{"type":"udt","class":"x"}',
        '{"type":"array","elementType":"long","containsNull":true}',
    ],
)
def test_invalid_schema_json_is_rejected_with_help(text: str) -> None:
    with pytest.raises(TxnLogSchemaError) as raised:
        StructType.from_json(text)
    assert "Help:" in str(raised.value)


def test_leaf_columns_use_physical_names_only_when_mapping_is_on() -> None:
    inner = StructField("b", "long", metadata={"delta.columnMapping.physicalName": "col-2"})
    outer = StructField(
        "a", StructType((inner,)), metadata={"delta.columnMapping.physicalName": "col-1"}
    )
    schema = StructType((outer,))
    assert leaf_columns(schema, "name")[0].physical_path == ("col-1", "col-2")
    assert leaf_columns(schema, "id")[0].path == ("a", "b")
    assert leaf_columns(schema)[0].physical_path == ("a", "b")


def test_column_lookup_ignores_case_but_prefers_the_exact_name() -> None:
    schema = columns(Day=StructType((StructField("Hour", "long"),)), x="long")
    found = resolve_column(schema, ["dAY", "hour"])
    assert found is not None
    assert found.path == ("Day", "Hour")
    assert resolve_column(schema, ["x", "y"]) is None
    assert resolve_column(columns(A="long", a="string"), ["a"]).type == "string"  # type: ignore[union-attr]


def test_number_of_skipping_columns_counts_arrays() -> None:
    schema = columns(
        day="date",
        tags=ArrayType("string"),
        s=columns(x="long", blob="binary"),
        y="double",
        z="long",
    )
    three = {"delta.dataSkippingNumIndexedCols": "3"}
    assert skipping_columns(schema, ["day"], three) == [(("s", "x"), "long")]
    four = {"delta.dataSkippingNumIndexedCols": "4"}
    assert skipping_columns(schema, ["day"], four) == [(("s", "x"), "long"), (("y",), "double")]
    assert skipping_columns(schema, ["day"], {"delta.dataSkippingNumIndexedCols": "0"}) == []


def test_thirty_two_columns_are_indexed_by_default() -> None:
    schema = columns(**{f"c{i}": "long" for i in range(40)})
    assert len(skipping_columns(schema, [], {})) == 32
    assert len(skipping_columns(schema, [], {"delta.dataSkippingNumIndexedCols": "-1"})) == 40


def test_named_skipping_columns_replace_the_count() -> None:
    schema = StructType(
        (
            StructField("a", "long"),
            StructField("b.c", "string"),
            StructField("s", columns(x="long", y="double")),
            StructField("t", columns(x="long", y="double")),
        )
    )
    configuration = {
        "delta.dataSkippingStatsColumns": "`b.c`, S , t.y",
        "delta.dataSkippingNumIndexedCols": "1",
    }
    assert skipping_columns(schema, [], configuration) == [
        (("b.c",), "string"),
        (("s", "x"), "long"),
        (("s", "y"), "double"),
        (("t", "y"), "double"),
    ]


def test_column_paths_split_outside_backquotes_only() -> None:
    assert split_column_list("a,`b,c`.d, ,e") == ["a", "`b,c`.d", "e"]
    assert split_column_path("`a``.b`.c") == ("a`.b", "c")


def test_arrow_timestamps_of_any_unit_and_zone_become_delta_timestamps() -> None:
    arrow = pa.schema(
        [
            ("ns", pa.timestamp("ns")),
            ("paris", pa.timestamp("ms", "Europe/Paris")),
            (
                "nested",
                pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.timestamp("s", "UTC")))])),
            ),
            ("dict", pa.dictionary(pa.int8(), pa.string())),
        ]
    )
    nested = ArrayType(columns(m=MapType("string", "timestamp")))
    expected = columns(ns="timestamp_ntz", paris="timestamp", nested=nested, dict="string")
    assert schema_from_any(arrow) == expected


def test_arrow_keeps_nullability_and_field_metadata() -> None:
    field = pa.field("a", pa.int32(), nullable=False, metadata={"comment": "why"})
    assert schema_from_any(pa.schema([field])).fields[0] == StructField(
        "a", "integer", False, {"comment": "why"}
    )


def test_unsupported_type_is_named_without_a_rust_backtrace() -> None:
    with pytest.raises(TxnLogSchemaError) as raised:
        schema_from_any(pa.schema([("t", pa.time64("us"))]))
    assert "Time64" in str(raised.value)
    assert "PyObject" not in str(raised.value)


def test_spark_char_and_varchar_become_strings_with_their_length() -> None:
    schema = spark.StructType(
        [
            spark.StructField("id", spark.LongType(), False, {"comment": "key"}),
            spark.StructField("code", spark.VarcharType(5)),
            spark.StructField("codes", spark.ArrayType(spark.CharType(2), False)),
        ]
    )
    assert schema_from_any(schema) == StructType(
        (
            StructField("id", "long", False, {"comment": "key"}),
            StructField("code", "string", metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}),
            StructField("codes", ArrayType("string", False)),
        )
    )


class OnlyArrowSchema:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()


def test_every_kind_of_schema_gives_the_same_delta_schema() -> None:
    arrow = pa.schema([("id", pa.int64()), ("name", pa.string())])
    expected = columns(id="long", name="string")
    stock = deltalake.Schema.from_arrow(arrow)
    for schema in (arrow, stock, stock.to_json(), expected, OnlyArrowSchema(arrow)):
        assert schema_from_any(schema) == expected
    assert schema_to_arrow(expected) == arrow


@pytest.mark.parametrize("thing", [42, {"id": "long"}, None])
def test_value_that_is_not_a_schema_is_rejected(thing: Any) -> None:
    with pytest.raises(TxnLogSchemaError, match=type(thing).__name__):
        schema_from_any(thing)


@pytest.mark.parametrize(
    ("schema", "partition_by", "message"),
    [
        (StructType(), (), "no columns"),
        (columns(id="long", ID="long"), (), r"Duplicate field name.*'ID'"),
        (columns(s=columns(a="long", A="long")), (), r"Duplicate field name.*'s.A'"),
        (columns(a="long", s=StructType()), (), "struct 's' has no fields"),
        (columns(s=ArrayType(StructType())), (), "has no fields"),
        (columns(a="decimal(39,2)"), (), "decimal"),
        (columns(a="decimal(5,6)"), (), "decimal"),
        (columns(day="date", id="long"), ("dya",), "not found in schema"),
        (columns(day="date", id="long"), ("day", "Day"), "not found in schema"),
        (columns(day="date", id="long"), ("day", "day"), "Duplicate partition column"),
        (columns(tags=ArrayType("string"), id="long"), ("tags",), "array"),
        (columns(day="date"), ("day",), "every column"),
    ],
)
def test_invalid_schema_is_rejected(
    schema: StructType, partition_by: tuple[str, ...], message: str
) -> None:
    with pytest.raises(TxnLogSchemaError, match=message) as raised:
        validate_schema(schema, partition_by)
    assert "Help:" in str(raised.value)


def test_unknown_partition_column_error_suggests_the_nearest_name() -> None:
    with pytest.raises(TxnLogSchemaError, match="Did you mean 'day'"):
        validate_schema(columns(day="date", id="long"), ["dya"])


def test_column_name_may_contain_any_character() -> None:
    validate_schema(StructType((StructField("a b,;{}()=", "long"),)))


def test_valid_schema_is_accepted() -> None:
    schema = columns(
        day="date", id="decimal(38,0)", s=columns(x="timestamp_ntz"), m=MapType("string", "variant")
    )
    validate_schema(schema, ["day"])
    assert json.loads(schema.to_json())["type"] == "struct"
