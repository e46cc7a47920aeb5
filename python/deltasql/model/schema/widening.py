"""Type widening: which types a column can change to without a rewrite of its files.

Files keep the type with which they were written, and readers convert the values. Every change is
recorded in the metadata of the column, so that readers can see which conversions they need.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltasql.model.schema.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    decimal_type,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FEATURE = "typeWidening"
ENABLED = "delta.enableTypeWidening"
TYPE_CHANGES = "delta.typeChanges"
_INTEGERS = ("byte", "short", "integer", "long")
_DIGITS = {"byte": 10, "short": 10, "integer": 10, "long": 20}
_OTHERS = {("float", "double"), ("date", "timestamp_ntz")}


def is_enabled(configuration: Mapping[str, str]) -> bool:
    """Return whether columns of a table with these properties may change their type."""
    return configuration.get(ENABLED, "").strip().lower() == "true"


def is_converted(column: StructField) -> bool:
    """Return whether the type of a column was widened, other than to a larger integer type.

    A constant of the present type may then have no exact value in the type of an older file.
    """
    changes = column.metadata.get(TYPE_CHANGES, ())
    return any("fieldPath" not in each and each["toType"] not in _INTEGERS for each in changes)


def can_widen(given: DataType, wanted: DataType) -> bool:
    """Return whether Delta's protocol allows that a column changes its type.

    >>> can_widen("short", "long"), can_widen("long", "short"), can_widen("integer", "double")
    (True, False, True)
    >>> can_widen("decimal(6,2)", "decimal(8,4)"), can_widen("decimal(6,2)", "decimal(7,4)")
    (True, False)
    """
    if can_widen_implicitly(given, wanted):
        return True
    if given in ("byte", "short", "integer") and wanted == "double":
        return True
    new = decimal_type(wanted)
    if new is None or not isinstance(given, str) or given not in _DIGITS:
        return False
    return new[0] - new[1] >= _DIGITS[given]


def can_widen_implicitly(given: DataType, wanted: DataType) -> bool:
    """Return whether a write with schema evolution may change the type.

    As in delta-spark, only ALTER TABLE can change an integer column to double or decimal.

    >>> can_widen_implicitly("short", "long"), can_widen_implicitly("short", "double")
    (True, False)
    """
    if given in _INTEGERS and wanted in _INTEGERS:
        return _INTEGERS.index(given) < _INTEGERS.index(wanted)
    old, new = decimal_type(given), decimal_type(wanted)
    if old is not None and new is not None:
        return old != new and new[1] >= old[1] and new[0] - new[1] >= old[0] - old[1]
    return (given, wanted) in _OTHERS


def with_type_changes(before: StructType, after: StructType) -> StructType:
    """Return the schema `after` with the changes of types since `before` in its metadata.

    A change in an array or a map is recorded in the nearest field of a struct.

    >>> old, new = (StructType((StructField("a", ArrayType(t)),)) for t in ("short", "long"))
    >>> with_type_changes(old, new).fields[0].metadata["delta.typeChanges"]
    [{'fromType': 'short', 'toType': 'long', 'fieldPath': 'element'}]
    """
    known = {member.name: member for member in before.fields}
    return StructType(
        tuple(
            _recorded(known[member.name], member) if member.name in known else member
            for member in after.fields
        )
    )


def _recorded(before: StructField, after: StructField) -> StructField:
    kind = _inside(before.type, after.type)
    changes = list(_changes(before.type, after.type, ()))
    if not changes:
        return after if kind == after.type else replace(after, type=kind)
    recorded = [*after.metadata.get(TYPE_CHANGES, ()), *changes]
    return replace(after, type=kind, metadata={**after.metadata, TYPE_CHANGES: recorded})


def _inside(before: DataType, after: DataType) -> DataType:
    """Record the changes inside the structs of a type."""
    if isinstance(before, StructType) and isinstance(after, StructType):
        return with_type_changes(before, after)
    if isinstance(before, ArrayType) and isinstance(after, ArrayType):
        return replace(after, element_type=_inside(before.element_type, after.element_type))
    if isinstance(before, MapType) and isinstance(after, MapType):
        key, value = (
            _inside(before.key_type, after.key_type),
            _inside(before.value_type, after.value_type),
        )
        return replace(after, key_type=key, value_type=value)
    return after


def _changes(before: DataType, after: DataType, path: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    if isinstance(before, ArrayType) and isinstance(after, ArrayType):
        yield from _changes(before.element_type, after.element_type, (*path, "element"))
    elif isinstance(before, MapType) and isinstance(after, MapType):
        yield from _changes(before.key_type, after.key_type, (*path, "key"))
        yield from _changes(before.value_type, after.value_type, (*path, "value"))
    elif can_widen(before, after):
        where = {"fieldPath": ".".join(path)} if path else {}
        yield {"fromType": before, "toType": after, **where}
