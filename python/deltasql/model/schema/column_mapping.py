"""Column mapping: a column can have another name in data files than in the schema."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogProtocolError
from deltasql.model.schema.schema import (
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    column_mapping_mode,
    nested_types,
    with_elements,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MODE = "delta.columnMapping.mode"
MAX_ID = "delta.columnMapping.maxColumnId"
COLUMN_ID = "delta.columnMapping.id"
NESTED_IDS = "delta.columnMapping.nested.ids"
"""The key of the ids of the elements, keys and values in a column, by physical path."""
_MARKS = (COLUMN_ID, PHYSICAL_NAME, NESTED_IDS)
_NEED_NESTED_IDS = ("delta.enableIcebergCompatV2", "delta.enableIcebergCompatV3")


def with_column_mapping(
    schema: StructType, configuration: Mapping[str, str]
) -> tuple[StructType, dict[str, str]]:
    """Enable column mapping by name; existing columns keep their names in data files.

    >>> schema, properties = with_column_mapping(StructType((StructField("id", "long"),)), {})
    >>> dict(schema.fields[0].metadata)
    {'delta.columnMapping.id': 1, 'delta.columnMapping.physicalName': 'id'}
    >>> properties
    {'delta.columnMapping.mode': 'name', 'delta.columnMapping.maxColumnId': '1'}
    """
    mapped, last = _numbered(schema, _highest_id(schema, configuration), lambda name: name)
    return mapped, {**configuration, MODE: "name", MAX_ID: str(last)}


def with_new_columns_mapped(
    schema: StructType, configuration: Mapping[str, str]
) -> tuple[StructType, dict[str, str]]:
    """Give new columns of a table with column mapping a unique id and a physical name.

    If the table has no column mapping, nothing changes.
    """
    if column_mapping_mode(configuration) is None:
        return schema, dict(configuration)
    mapped, last = _numbered(
        schema, _highest_id(schema, configuration), lambda _: f"col-{uuid.uuid4()}"
    )
    if any(configuration.get(key, "").strip().lower() == "true" for key in _NEED_NESTED_IDS):
        mapped, last = _with_nested_ids(mapped, last)
    return mapped, {**configuration, MAX_ID: str(last)}


def check_mapping(schema: StructType, configuration: Mapping[str, str]) -> None:
    """Raise TxnLogProtocolError if a column lacks the physical name or id that mapping needs.

    >>> try:
    ...     check_mapping(StructType((StructField("id", "long"),)), {MODE: "id"})
    ... except TxnLogProtocolError as error:
    ...     print(error.message)
    column 'id' has no delta.columnMapping.physicalName, but the table maps columns by id
    """
    mode = column_mapping_mode(configuration)
    if mode is None:
        return
    needed = {PHYSICAL_NAME: str} | ({COLUMN_ID: int} if mode == "id" else {})
    for member in _members(schema):
        for key, kind in needed.items():
            if not isinstance(member.metadata.get(key), kind):
                raise TxnLogProtocolError(
                    f"column {member.name!r} has no {key}, but the table maps columns by {mode}",
                    help="The program that wrote this metadata must write it again with this key.",
                )


def without_mapping(columns: StructType) -> StructType:
    """Return columns without the ids and physical names of column mapping.

    >>> known = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "id", "c": "x"}
    >>> (plain,) = without_mapping(StructType((StructField("id", "long", True, known),))).fields
    >>> dict(plain.metadata)
    {'c': 'x'}
    """

    def plain(member: StructField) -> StructField:
        kept = {key: each for key, each in member.metadata.items() if key not in _MARKS}
        return replace(member, metadata=kept)

    return _mapped_struct(columns, plain)


def _numbered(schema: StructType, last: int, name: Callable[[str], str]) -> tuple[StructType, int]:
    def number(member: StructField) -> StructField:
        nonlocal last
        if COLUMN_ID in member.metadata and PHYSICAL_NAME in member.metadata:
            return member
        last += 1
        marks = {COLUMN_ID: last, PHYSICAL_NAME: name(member.name)}
        return replace(member, metadata={**member.metadata, **marks})

    return _mapped_struct(schema, number), last


def has_nested_ids(schema: StructType) -> bool:
    """Return whether data files need ids for the elements of arrays and maps."""
    # delta-spark gives every column the key, also without ids.
    return any(member.metadata.get(NESTED_IDS) for member in _members(schema))


def lacks_nested_ids(schema: StructType) -> bool:
    """Return whether an array element, or a key or value of a map, has no field id."""
    return any(
        set(_nested_paths(member)) - set(member.metadata.get(NESTED_IDS, ()))
        for member in _members(schema)
    )


def _with_nested_ids(schema: StructType, last: int) -> tuple[StructType, int]:
    def number(member: StructField) -> StructField:
        nonlocal last
        known, found = member.metadata.get(NESTED_IDS, {}), {}
        for path in _nested_paths(member):
            if path not in known:
                last += 1
            found[path] = known.get(path, last)
        # Remove the ids of elements that the column had before with another type.
        metadata = {key: each for key, each in member.metadata.items() if key != NESTED_IDS}
        return replace(member, metadata=metadata | ({NESTED_IDS: found} if found else {}))

    return _mapped_struct(schema, number), last


def _nested_paths(member: StructField) -> list[str]:
    """Return the physical paths of the elements, keys and values in a column.

    >>> known = {PHYSICAL_NAME: "c"}
    >>> _nested_paths(StructField("m", MapType("string", ArrayType("long")), True, known))
    ['c.key', 'c.value', 'c.value.element']
    """
    return list(_paths_in(member.type, str(member.metadata.get(PHYSICAL_NAME, member.name))))


def _paths_in(data_type: DataType, path: str) -> Iterator[str]:
    if isinstance(data_type, ArrayType):
        parts = {"element": data_type.element_type}
    elif isinstance(data_type, MapType):
        parts = {"key": data_type.key_type, "value": data_type.value_type}
    else:
        return
    for name, inner in parts.items():
        yield f"{path}.{name}"
        yield from _paths_in(inner, f"{path}.{name}")


def _mapped_struct(struct: StructType, change: Callable[[StructField], StructField]) -> StructType:
    changed = (change(member) for member in struct.fields)
    return StructType(tuple(replace(m, type=_mapped_type(m.type, change)) for m in changed))


def _mapped_type(data_type: DataType, change: Callable[[StructField], StructField]) -> DataType:
    if isinstance(data_type, StructType):
        return _mapped_struct(data_type, change)
    return with_elements(data_type, lambda inner: _mapped_type(inner, change))


def _highest_id(schema: StructType, configuration: Mapping[str, str]) -> int:
    return max([int(configuration.get(MAX_ID, "0")), *_ids(schema)])


def _ids(schema: StructType) -> Iterator[int]:
    for member in _members(schema):
        if COLUMN_ID in member.metadata:
            yield int(member.metadata[COLUMN_ID])
        yield from map(int, member.metadata.get(NESTED_IDS, {}).values())


def _members(schema: StructType) -> Iterator[StructField]:
    """Yield every column, including those in structs, arrays and maps."""
    for data_type in nested_types(schema):
        if isinstance(data_type, StructType):
            yield from data_type.fields
