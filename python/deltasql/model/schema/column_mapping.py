"""Column mapping: a column can have another name in data files than in the schema."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogProtocolError
from deltasql.model.schema.schema import (
    PHYSICAL_NAME,
    DataType,
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
        kept = {k: v for k, v in member.metadata.items() if k not in (COLUMN_ID, PHYSICAL_NAME)}
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


def _members(schema: StructType) -> Iterator[StructField]:
    """Yield every column, including those in structs, arrays and maps."""
    for data_type in nested_types(schema):
        if isinstance(data_type, StructType):
            yield from data_type.fields
