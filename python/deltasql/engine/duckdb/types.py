"""Convert between the Arrow types that DuckDB uses and the Arrow types of Delta tables."""

from __future__ import annotations

import pyarrow as pa

from deltasql.engine.inputs import map_leaf_types


def delta_types(schema: pa.Schema) -> pa.Schema:
    """Return the schema with Delta's names for the inner fields of lists and maps.

    >>> delta_types(pa.schema([("a", pa.list_(pa.field("l", pa.int64())))])).field("a").type
    ListType(list<element: int64>)
    """
    return pa.schema([field.with_type(_delta_type(field.type)) for field in schema])


def duckdb_types(schema: pa.Schema) -> pa.Schema:
    """Return a schema of types that DuckDB imports without loss.

    Timestamps with nanoseconds become timestamps without a zone, in UTC, because DuckDB truncates
    timestamps with a zone to microseconds.

    >>> duckdb_types(pa.schema([("at", pa.timestamp("ns", "UTC"))])).field("at").type
    TimestampType(timestamp[ns])
    """
    return pa.schema(
        [field.with_type(map_leaf_types(field.type, _duckdb_type)) for field in schema]
    )


def _duckdb_type(kind: pa.DataType) -> pa.DataType:
    is_nanoseconds = pa.types.is_timestamp(kind) and kind.unit == "ns"
    return pa.timestamp("ns") if is_nanoseconds else kind


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
