"""DuckDB's Arrow types as the Arrow types of Delta."""

from __future__ import annotations

import pyarrow as pa


def delta_types(schema: pa.Schema) -> pa.Schema:
    """Return the schema that Delta's columns have in Arrow: the same but for inner names.

    >>> delta_types(pa.schema([("a", pa.list_(pa.field("l", pa.int64())))])).field("a").type
    ListType(list<element: int64>)
    """
    return pa.schema([field.with_type(_delta_type(field.type)) for field in schema])


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
