"""Change types inside nested Arrow types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable


def map_leaf_types(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with `change` applied to every type that is not a struct, a list or a map.

    >>> wide = lambda kind: pa.int64() if kind == pa.int32() else kind
    >>> map_leaf_types(pa.list_(pa.int32()), wide)
    ListType(list<item: int64>)
    """

    def changed(field: pa.Field) -> pa.Field:
        return field.with_type(map_leaf_types(field.type, change))

    types = pa.types
    if types.is_struct(kind):
        return pa.struct([changed(member) for member in kind])
    if types.is_map(kind):
        return pa.map_(changed(kind.key_field), changed(kind.item_field))
    if types.is_list(kind):
        return pa.list_(changed(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(changed(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(changed(kind.value_field), kind.list_size)
    return change(kind)
