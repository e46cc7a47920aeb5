"""Arrow's other ways to lay values out, as the plain ones that casts and files know."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def plain_layout(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values without extension types, run-end encoding and list views.

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


def _is_list_view(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.ListViewType | pa.LargeListViewType)


def _list_type(kind: Any) -> pa.DataType:
    if not _is_list_view(kind):
        return kind
    return pa.list_(kind.value_field.with_type(_list_type(kind.value_type)))


def _list(array: Any) -> pa.Array:
    # Arrow's own cast of list views makes arrays that are not valid.
    if not _is_list_view(array.type):
        return array
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int32())
    ends = pc.cumulative_sum(lengths)
    missing = pa.concat_arrays([array.is_null(), pa.array([False])])
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    offsets = pc.if_else(missing, pa.scalar(None, pa.int32()), offsets)
    return pa.ListArray.from_arrays(offsets, _list(array.flatten()), type=_list_type(array.type))
