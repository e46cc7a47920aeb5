"""Casts of Arrow values that Arrow's own cast does not support or gets wrong."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def plain_layout(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without extension types, run-end encoding and list views.

    >>> plain_layout(pa.chunked_array([pa.array([[1], None], pa.list_view(pa.int64()))])).type
    ListType(list<item: int64>)
    """
    found = column
    if isinstance(found.type, pa.BaseExtensionType):
        found = found.cast(found.type.storage_type)
    if pa.types.is_run_end_encoded(found.type):
        found = pc.run_end_decode(found)
    if _is_list_view(found.type):
        found = pa.chunked_array([_list(chunk) for chunk in found.chunks], _list_type(found.type))
    return found


def has_void(kind: pa.DataType) -> bool:
    """Return whether a type is null, or has a null type in a struct, a list or a map."""
    return pa.types.is_null(kind) or any(
        has_void(kind.field(number).type) for number in range(kind.num_fields)
    )


def as_void(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast those parts of an array to Arrow's null type that have this type in `kind`.

    Other parts are unchanged. Engines have no null type and return integers instead, which Arrow
    itself does not cast to null.

    Raises:
        pa.ArrowNotImplementedError: A value is not null where its type is null.

    >>> as_void(pa.array([[None, None]], pa.list_(pa.int32())), pa.list_(pa.null())).type
    ListType(list<item: null>)
    """
    types, given = pa.types, array.type
    if types.is_null(kind):
        if array.null_count != len(array):
            raise pa.ArrowNotImplementedError("a void column can only contain nulls")
        return pa.nulls(len(array))
    if given == kind or not has_void(kind):
        return array
    if types.is_struct(kind) and types.is_struct(given):
        wanted = {field.name: field for field in kind}
        fields = [wanted.get(field.name, field) for field in given]
        parts = [
            as_void(part, field.type) for part, field in zip(array.flatten(), fields, strict=True)
        ]
        named = [field.with_type(part.type) for part, field in zip(parts, fields, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=named, mask=array.is_null())
    if types.is_map(kind) and types.is_map(given):
        keys, items = as_void(array.keys, kind.key_type), as_void(array.items, kind.item_type)
        named = pa.map_(kind.key_field.with_type(keys.type), kind.item_field.with_type(items.type))
        return pa.MapArray.from_arrays(list_offsets(array), keys, items, type=named)
    if types.is_list(kind) and types.is_list(given):
        values = as_void(array.values, kind.value_type)
        named = pa.list_(kind.value_field.with_type(values.type))
        return pa.ListArray.from_arrays(list_offsets(array), values, type=named)
    return pa.array(array.to_pylist(), kind)


def cast_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast rows to a schema, which may have void columns."""
    columns = []
    for column, field in zip(rows.columns, schema, strict=True):
        found = void_column(column, field.type) if has_void(field.type) else column
        # Skip a cast to the same type: for a list of null type, Arrow returns an invalid array.
        columns.append(found if found.type == field.type else found.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def void_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Apply `as_void` to each chunk of a column."""
    chunks = [as_void(chunk, kind) for chunk in column.chunks]
    return pa.chunked_array(chunks, chunks[0].type if chunks else kind)


def list_offsets(array: Any) -> pa.Array:
    """Return the offsets of a list or map array, null where the list is null."""
    if not array.null_count:
        return array.offsets
    ends = pa.concat_arrays([array.is_null(), pa.array([False])])
    return pc.if_else(ends, pa.scalar(None, pa.int32()), array.offsets)


def _is_list_view(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.ListViewType | pa.LargeListViewType)


def _list_type(kind: Any) -> pa.DataType:
    if not _is_list_view(kind):
        return kind
    return pa.list_(kind.value_field.with_type(_list_type(kind.value_type)))


def _list(array: Any) -> pa.Array:
    # Arrow's own cast of list views returns invalid arrays.
    if not _is_list_view(array.type):
        return array
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int32())
    ends = pc.cumulative_sum(lengths)
    missing = pa.concat_arrays([array.is_null(), pa.array([False])])
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    offsets = pc.if_else(missing, pa.scalar(None, pa.int32()), offsets)
    return pa.ListArray.from_arrays(offsets, _list(array.flatten()), type=_list_type(array.type))
