"""DuckDB's Arrow types as the Arrow types of Delta, and those of rows as DuckDB takes them."""

from __future__ import annotations

import pyarrow as pa


def delta_types(schema: pa.Schema) -> pa.Schema:
    """Return the schema that Delta's columns have in Arrow: the same but for inner names.

    >>> delta_types(pa.schema([("a", pa.list_(pa.field("l", pa.int64())))])).field("a").type
    ListType(list<element: int64>)
    """
    return pa.schema([field.with_type(_delta_type(field.type)) for field in schema])


def duckdb_types(schema: pa.Schema) -> pa.Schema:
    """Return the schema by which DuckDB takes rows as they are.

    Nanoseconds lose their zone, since DuckDB would cut them to microseconds with it. They are then
    a clock in UTC.

    >>> duckdb_types(pa.schema([("at", pa.timestamp("ns", "UTC"))])).field("at").type
    TimestampType(timestamp[ns])
    """
    return pa.schema([field.with_type(_duckdb_type(field.type)) for field in schema])


def _duckdb_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("ns")
    if types.is_struct(kind):
        return pa.struct([member.with_type(_duckdb_type(member.type)) for member in kind])
    if types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(
            key.with_type(_duckdb_type(key.type)), item.with_type(_duckdb_type(item.type))
        )
    if types.is_list(kind) or types.is_large_list(kind):
        make = pa.list_ if types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(_duckdb_type(kind.value_type)))
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_duckdb_type(kind.value_type)), kind.list_size)
    return kind


def _delta_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(
            kind.value_field.with_name("element").with_type(_delta_type(kind.value_type))
        )
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(_delta_type(member.type)) for member in kind])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(
            key.with_name("key").with_type(_delta_type(key.type)),
            item.with_name("value").with_type(_delta_type(item.type)),
        )
    return kind
