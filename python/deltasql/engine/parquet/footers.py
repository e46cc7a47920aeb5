"""Read from footers what the log lacks: column names by field id, timestamps without a zone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from deltasql.exceptions import TxnLogEngineError
from deltasql.model.schema.column_mapping import COLUMN_ID
from deltasql.model.schema.schema import (
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

ColumnPath: TypeAlias = tuple[str, ...]
_FIELD_ID = b"PARQUET:field_id"


def named_as_in_file(schema: StructType, stored: pa.Schema, path: str) -> StructType:
    """Return the schema of a table whose columns are mapped by id, with the names of one file.

    `stored` is the schema of the file. Its names become the physical names in the result, so that
    the file can be read by name. A column that the file lacks gets a name that does not occur in
    the file, so that the column is read as null.
    """
    if not any(_field_id(field) for field in stored):
        raise TxnLogEngineError(
            f"the columns of {path} have no field ids, but the table maps its columns by id",
            help="Rewrite the file with a writer that supports delta.columnMapping.mode=id, "
            "or restore the table to a version without it.",
        )
    return _named_struct(schema, list(stored))


def _field_id(field: pa.Field) -> bytes | None:
    return (field.metadata or {}).get(_FIELD_ID)


def _named_struct(struct: StructType, stored: Sequence[pa.Field]) -> StructType:
    by_id = {_field_id(field): field for field in stored}
    taken = {field.name.casefold() for field in stored}
    members = []
    for member in struct.fields:
        number = str(member.metadata.get(COLUMN_ID, ""))
        found = by_id.get(number.encode())
        # Row ids and commit versions are read by name: older files have no field ids for them.
        if PHYSICAL_NAME not in member.metadata:
            members.append(member)
        elif found is None:
            members.append(_renamed(member, _free_name(number, taken)))
        else:
            kind = _named_type(member.type, found.type)
            members.append(replace(_renamed(member, found.name), type=kind))
    return StructType(tuple(members))


def _named_type(data_type: DataType, stored: pa.DataType) -> DataType:
    """Rename the members of structs in a type; list elements and map entries have no names."""
    import pyarrow as pa

    if isinstance(data_type, StructType) and pa.types.is_struct(stored):
        return _named_struct(data_type, list(stored))
    if isinstance(data_type, ArrayType) and (
        pa.types.is_list(stored) or pa.types.is_large_list(stored)
    ):
        element = _named_type(data_type.element_type, stored.value_type)
        return replace(data_type, element_type=element)
    if isinstance(data_type, MapType) and pa.types.is_map(stored):
        return replace(
            data_type,
            key_type=_named_type(data_type.key_type, stored.key_type),
            value_type=_named_type(data_type.value_type, stored.item_type),
        )
    return data_type


def _renamed(member: StructField, name: str) -> StructField:
    return replace(member, metadata={**member.metadata, PHYSICAL_NAME: name})


def _free_name(number: str, taken: set[str]) -> str:
    name = f"absent_{number}"
    while name in taken:
        name += "_"
    return name


def has_timestamps(data_type: DataType) -> bool:
    """Return whether a type is or contains a timestamp with a zone.

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
    """Return the physical paths of `timestamp` columns that a file stores without a zone.

    INT96 timestamps, which old writers and Spark write, have no zone. In Delta they are in UTC.
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
    """Yield the physical paths of timestamps that a dotted Parquet path may refer to.

    A path can be ambiguous, because a name may contain dots.
    """
    if isinstance(data_type, StructType):
        for member in data_type.fields:
            name = member.physical_name(mode)
            if rest == name or rest.startswith(f"{name}."):
                yield from _timestamps_at(member.type, rest[len(name) + 1 :], mode, (*path, name))
    elif isinstance(data_type, ArrayType):
        # Depending on the writer, there are one or two path steps between a list and its elements.
        inner = rest.partition(".")[2]
        for below in {inner, inner.partition(".")[2]}:
            yield from _timestamps_at(data_type.element_type, below, mode, (*path, "element"))
    elif isinstance(data_type, MapType):
        part, _, below = rest.partition(".")[2].partition(".")
        kind = data_type.key_type if part == "key" else data_type.value_type
        yield from _timestamps_at(kind, below, mode, (*path, part))
    elif data_type == "timestamp" and not rest:
        yield path
