"""Casts of Arrow values that Arrow's own cast does not support or gets wrong."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_WIDEST = 16  # bytes per value of the widest types: decimals and string views


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
    """Cast an array to Arrow's null type, or its parts where `kind` has the null type.

    Other parts are unchanged. Engines have no null type and return integers instead, and Arrow
    itself does not cast integers to null.

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
        if found.type != field.type:
            if has_required_member(field.type):
                found = with_required_members(found, field.type)
            found = found.cast(field.type)
        columns.append(found)
    return pa.Table.from_arrays(columns, schema=schema)


def has_required_member(kind: pa.DataType) -> bool:
    """Return whether a struct in a type has a field that is not nullable."""
    parts = [kind.field(number) for number in range(kind.num_fields)]
    return any(
        (pa.types.is_struct(kind) and not part.nullable) or has_required_member(part.type)
        for part in parts
    )


def with_required_members(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Declare a struct's field as not nullable where it is not nullable in `kind`.

    Arrow's own cast and view fail if a struct is null, because its fields are then null too. Here
    the fields of a null struct get an arbitrary value, which no reader of the struct sees.
    """
    chunks = [_with_required_members(chunk, kind) for chunk in column.chunks]
    return pa.chunked_array(chunks, chunks[0].type) if chunks else column


def _with_required_members(array: pa.Array, kind: pa.DataType) -> pa.Array:
    types, given = pa.types, array.type
    if not has_required_member(kind):
        return array
    if types.is_struct(kind) and types.is_struct(given) and kind.num_fields == given.num_fields:
        parts, fields = [], []
        for number, (field, member) in enumerate(zip(given, kind, strict=True)):
            part = array.field(number)
            if not member.nullable:
                part = _without_nulls(part, array)
            part = _with_required_members(part, member.type)
            parts.append(part)
            fields.append(field.with_type(part.type).with_nullable(member.nullable))
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
    if types.is_list(kind) and types.is_list(given):
        values = _with_required_members(array.values, kind.value_type)
        named = pa.list_(given.value_field.with_type(values.type))
        return pa.ListArray.from_arrays(list_offsets(array), values, type=named)
    if types.is_map(kind) and types.is_map(given):
        keys = _with_required_members(array.keys, kind.key_type)
        items = _with_required_members(array.items, kind.item_type)
        named = pa.map_(
            given.key_field.with_type(keys.type), given.item_field.with_type(items.type)
        )
        return pa.MapArray.from_arrays(list_offsets(array), keys, items, type=named)
    return array


def _without_nulls(part: pa.Array, struct: pa.Array) -> pa.Array:
    """Replace the nulls in a field of a struct by other values where the struct is null."""
    if not part.null_count or pc.any(pc.and_(part.is_null(), struct.is_valid())).as_py():
        return part  # Keep a null in a struct that is not null: Arrow then raises an error.
    rows = pc.if_else(part.is_valid(), pa.array(range(len(part))), None)
    first = pc.min(rows).as_py()
    if first is None:
        return _any_values(part.type, len(part))
    return part.take(pc.fill_null(rows, first))


def _any_values(kind: pa.DataType, count: int) -> pa.Array:
    """Return an array of a type with arbitrary values, none of which is null."""
    if pa.types.is_struct(kind):
        parts = [_any_values(field.type, count) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind))
    if kind.num_fields:
        return pa.array([[]] * count, kind)
    zeros = pa.py_buffer(bytes((count + 1) * _WIDEST))
    return pa.Array.from_buffers(kind, count, [None, *[zeros] * (kind.num_buffers - 1)])


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
