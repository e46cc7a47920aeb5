"""Schema evolution: merge the schema of written rows into the table's schema."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.schema.column_mapping import without_mapping
from deltasql.model.schema.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    decimal_type,
    type_name,
)
from deltasql.model.schema.widening import can_widen_implicitly, with_type_changes

if TYPE_CHECKING:
    from collections.abc import Collection

GENERATED = "delta.generationExpression"


def merge_schemas(
    current: StructType, given: StructType, *, widening: Collection[str] = ()
) -> StructType:
    """Return the current columns, followed by the columns that only the given schema has.

    Structs are merged field by field, also in arrays and maps. A column that both schemas have
    keeps its current type, and the rows are cast to this type. The columns in `widening` get the
    given type if it is a wider one.

    >>> merge_schemas(StructType((StructField("a", "long"),)), StructType((
    ...     StructField("b", "string"), StructField("a", "integer")))).names
    ('a', 'b')
    """
    merged = _merge_structs(current, given, widening)
    return with_type_changes(current, merged) if widening else merged


def _merge_structs(current: StructType, given: StructType, widening: Collection[str]) -> StructType:
    known = {field.name: field for field in given.fields}
    kept = [
        _merge_field(field, known[field.name], field.name in widening)
        if field.name in known
        else field
        for field in current.fields
    ]
    present = {field.name for field in current.fields}
    new = StructType(tuple(f for f in given.fields if f.name not in present))
    # If the rows were read from another table with column mapping, their schema has the ids and
    # physical names of that table. Remove both.
    return StructType((*kept, *without_mapping(new).fields))


def nullable(given: StructType, current: StructType) -> StructType:
    """Make new columns nullable, because existing rows have no value for them."""
    known = set(current.names)
    return StructType(
        tuple(f if f.name in known else replace(f, nullable=True) for f in given.fields)
    )


def reject_generated(current: StructType, given: StructType) -> None:
    """Raise for new generated columns, because existing rows do not have their values."""
    known = set(current.names)
    for each in given.fields:
        if each.name not in known and GENERATED in each.metadata:
            raise TxnLogSchemaError(
                "Schema evolved fields cannot have generated expressions. "
                "Recreate the table to achieve this.",
                column=each.name,
                help="Remove the field's metadata, or overwrite the table with "
                "schema_mode='overwrite'.",
            )


def _merge_field(current: StructField, given: StructField, widens: bool) -> StructField:
    return replace(current, type=_merge_types(current.type, given.type, current.name, widens))


def _merge_types(current: DataType, given: DataType, name: str, widens: bool) -> DataType:
    if isinstance(current, StructType) and isinstance(given, StructType):
        return _merge_structs(current, given, current.names if widens else ())
    if isinstance(current, ArrayType) and isinstance(given, ArrayType):
        element = _merge_types(current.element_type, given.element_type, name, widens)
        return replace(current, element_type=element)
    if isinstance(current, MapType) and isinstance(given, MapType):
        value = _merge_types(current.value_type, given.value_type, name, widens)
        return replace(current, value_type=value)
    if widens and can_widen_implicitly(current, given):
        return given
    if current == "void":
        return given
    present, wanted = decimal_type(current), decimal_type(given)
    if present and wanted and not _holds(present, wanted):
        raise TxnLogSchemaError(
            f"Cannot merge field {name} from {type_name(given)} to {type_name(current)}",
            column=name,
            help="Cast the data to the table's type before writing.",
        )
    return current


def _holds(present: tuple[int, int], wanted: tuple[int, int]) -> bool:
    return wanted[1] <= present[1] and wanted[0] - wanted[1] <= present[0] - present[1]
