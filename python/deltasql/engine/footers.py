"""What only the footer of a Parquet file tells: how it keeps its timestamps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from deltasql.model.schema import ArrayType, DataType, MapType, StructType

if TYPE_CHECKING:
    from collections.abc import Iterator

ColumnPath: TypeAlias = tuple[str, ...]


def has_timestamps(data_type: DataType) -> bool:
    """Tell whether a type is or holds a timestamp with a zone.

    >>> has_timestamps(ArrayType("timestamp")), has_timestamps("timestamp_ntz")
    (True, False)
    """
    if isinstance(data_type, StructType):
        return any(has_timestamps(member.type) for member in data_type.fields)
    if isinstance(data_type, ArrayType):
        return has_timestamps(data_type.element_type)
    if isinstance(data_type, MapType):
        return has_timestamps(data_type.key_type) or has_timestamps(data_type.value_type)
    return data_type == "timestamp"


def naive_timestamps(file: Any, schema: StructType, mode: str | None) -> set[ColumnPath]:
    """Return the `timestamp` columns that a file keeps without a zone, by physical path.

    Old and Spark's own INT96 timestamps have none; Delta means UTC.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:
        columns = [opened.schema.column(number) for number in range(len(opened.schema.names))]
    found: set[ColumnPath] = set()
    for column in columns:
        if _is_naive(column):
            found.update(_timestamps_at(schema, column.path, mode, ()))
    return found


def _is_naive(column: Any) -> bool:
    if column.physical_type == "INT96":
        return True
    if column.logical_type.type != "TIMESTAMP":
        return False
    return not json.loads(column.logical_type.to_json())["isAdjustedToUTC"]


def _timestamps_at(
    data_type: DataType, rest: str, mode: str | None, path: ColumnPath
) -> Iterator[ColumnPath]:
    """Follow a dotted Parquet path through the type; names may hold dots themselves."""
    if isinstance(data_type, StructType):
        for member in data_type.fields:
            name = member.physical_name(mode)
            if rest == name or rest.startswith(f"{name}."):
                yield from _timestamps_at(member.type, rest[len(name) + 1 :], mode, (*path, name))
    elif isinstance(data_type, ArrayType):
        # Writers put one or two groups between a list and its elements.
        inner = rest.partition(".")[2]
        for below in {inner, inner.partition(".")[2]}:
            yield from _timestamps_at(data_type.element_type, below, mode, (*path, "element"))
    elif isinstance(data_type, MapType):
        part, _, below = rest.partition(".")[2].partition(".")
        kind = data_type.key_type if part == "key" else data_type.value_type
        yield from _timestamps_at(kind, below, mode, (*path, part))
    elif data_type == "timestamp" and not rest:
        yield path
