"""Arrow's types and failed casts in the words of deltalake, which users know and look for."""

from __future__ import annotations

import re

import pyarrow as pa

_NAMES = {
    "bool": "Boolean",
    "float": "Float32",
    "halffloat": "Float16",
    "double": "Float64",
    "string": "Utf8",
    "large_string": "LargeUtf8",
    "string_view": "Utf8View",
    "binary": "Binary",
    "large_binary": "LargeBinary",
    "binary_view": "BinaryView",
    "date32[day]": "Date32",
    "date64[ms]": "Date64",
    "null": "Null",
}
_TEXT = re.compile(r"(?:Failed to parse string: |The string )'(.*)' (?:as a scalar|is not a valid)")
_BOOLEAN = re.compile(r"Failed to parse value: (.*)")
_NUMBER = re.compile(r"(?:Integer|Float) value (\S+) (?:not in range|was truncated)")
_NAMED = re.compile(r"(?:of type|converting to) (\S+)$")


def arrow_name(kind: pa.DataType) -> str:
    """Return the name that a type has in deltalake's messages.

    >>> arrow_name(pa.struct([("a", pa.int64()), pa.field("b", pa.string(), nullable=False)]))
    'Struct("a": Int64, "b": non-null Utf8)'
    """
    types = pa.types
    if types.is_integer(kind):
        return str(kind).replace("uint", "UInt").replace("int", "Int")
    if types.is_decimal(kind):
        return f"Decimal{kind.bit_width}({kind.precision}, {kind.scale})"
    if types.is_timestamp(kind):
        zone = "" if kind.tz is None else f', "{kind.tz}"'
        return f"Timestamp({kind.unit.replace('u', 'µ')}{zone})"
    if types.is_struct(kind):
        members = (f'"{field.name}": {_member(field)}' for field in kind)
        return f"Struct({', '.join(members)})"
    if types.is_list(kind):
        return f"List({_member(kind.value_field)})"
    return _NAMES.get(str(kind), str(kind))


def failed_cast(error: pa.ArrowInvalid, wanted: pa.DataType) -> str:
    """Say which value could not become what.

    >>> failed_cast(pa.ArrowInvalid("Integer value 300 not in range: -128 to 127"), pa.int8())
    "Cast error: Can't cast value 300 to type Int8"
    """
    told = str(error)
    named = _NAMED.search(told)
    kind = arrow_name(wanted)
    if pa.types.is_nested(wanted) and named is not None:
        kind = arrow_name(pa.type_for_alias(named[1])) if named[1] in _ALIASES else named[1]
    if (text := _TEXT.search(told)) is not None:
        return f"Cast error: Cannot cast string '{text[1]}' to value of {kind} type"
    if (text := _BOOLEAN.search(told)) is not None:
        return f"Cast error: Cannot cast value '{text[1]}' to value of {kind} type"
    if (number := _NUMBER.search(told)) is not None:
        return f"Cast error: Can't cast value {number[1].replace('nan', 'NaN')} to type {kind}"
    return f"Cast error: {told}"


def _member(field: pa.Field) -> str:
    return arrow_name(field.type) if field.nullable else f"non-null {arrow_name(field.type)}"


_ALIASES = {"int8", "int16", "int32", "int64", "float", "double", "date32[day]"}
