"""Read the parts of a table definition: columns, types, constraints and properties."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltasql.model.schema.identity import Identity
from deltasql.model.schema.schema import (
    CURRENT_DEFAULT,
    ArrayType,
    MapType,
    StructField,
    StructType,
)

if TYPE_CHECKING:
    from deltasql.model.schema.schema import DataType
    from deltasql.model.statements.tokens import Reader

_TYPES = {
    "BOOLEAN": "boolean",
    **dict.fromkeys(("TINYINT", "BYTE"), "byte"),
    **dict.fromkeys(("SMALLINT", "SHORT"), "short"),
    **dict.fromkeys(("INT", "INTEGER"), "integer"),
    **dict.fromkeys(("BIGINT", "LONG"), "long"),
    **dict.fromkeys(("FLOAT", "REAL"), "float"),
    "DOUBLE": "double",
    "DATE": "date",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), "timestamp"),
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "STRING": "string",
    "BINARY": "binary",
    "VARIANT": "variant",
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_LIMITED = ("VARCHAR", "CHAR", "CHARACTER")
_GENERATED = "delta.generationExpression"
_AFTER_DEFAULT = (",", ")", "NOT", "COMMENT", "GENERATED", "FIRST", "AFTER")


def read_columns(reader: Reader) -> tuple[StructType, tuple[tuple[str, str], ...]]:
    """Read columns and CHECK constraints in parentheses; return the schema and the constraints."""
    fields: list[StructField] = []
    checks: list[tuple[str, str]] = []

    def read() -> None:
        if reader.accept("CONSTRAINT"):
            name = reader.identifier()
            if reader.peek() != "CHECK":
                raise reader.error("expected CHECK, the only constraint of a Delta table")
            reader.expect("CHECK")
            checks.append((name, reader.inside_parentheses().text))
        else:
            fields.append(read_column(reader))

    reader.parenthesized(read)
    return StructType(tuple(fields)), tuple(checks)


def read_column(reader: Reader) -> StructField:
    """Read a column: name, type, NOT NULL, COMMENT, DEFAULT and GENERATED."""
    name = reader.identifier()
    found = StructField(name, read_type(reader))
    metadata: dict[str, Any] = {}
    while True:
        if reader.accept("NOT", "NULL"):
            found = replace(found, nullable=False)
        elif reader.accept("COMMENT"):
            metadata["comment"] = reader.string()
        elif reader.accept("GENERATED"):
            by_default = reader.accept("BY", "DEFAULT")
            reader.expect(*(("AS", "IDENTITY") if by_default else ("ALWAYS", "AS")))
            if by_default or reader.accept("IDENTITY"):
                metadata |= _read_identity(reader, allows_explicit=by_default).metadata()
            else:
                metadata[_GENERATED] = reader.inside_parentheses().text
        elif reader.accept("DEFAULT"):
            metadata[CURRENT_DEFAULT] = reader.part(*_AFTER_DEFAULT).text
        elif reader.peek() in ("FIRST", "AFTER"):
            raise reader.error("a new column is always the last column of its table or struct")
        else:
            return replace(found, metadata=metadata)


def read_type(reader: Reader) -> DataType:
    """Read the type of a column.

    >>> from deltasql.model.statements.tokens import Reader
    >>> read_type(Reader("MAP<STRING, DECIMAL(10, 2)>"))
    MapType(key_type='string', value_type='decimal(10,2)', value_contains_null=True)
    """
    word = reader.identifier().upper()
    if word in _DECIMALS:
        digits, scale = 10, 0
        if reader.accept("("):
            digits = reader.whole_number()
            scale = reader.whole_number() if reader.accept(",") else 0
            reader.expect(")")
        return f"decimal({digits},{scale})"
    if word in _LIMITED:
        reader.expect("(")
        reader.whole_number()
        reader.expect(")")
        return "string"
    if word == "ARRAY":
        reader.expect("<")
        element = read_type(reader)
        reader.expect(">")
        return ArrayType(element)
    if word == "MAP":
        reader.expect("<")
        key = read_type(reader)
        reader.expect(",")
        value = read_type(reader)
        reader.expect(">")
        return MapType(key, value)
    if word == "STRUCT":
        return _struct(reader)
    found = _TYPES.get(word)
    if found is None:
        reader.place -= 1
        raise reader.error(f"expected a type such as {', '.join(list(_TYPES)[:6])} or STRUCT<…>")
    return found


def read_properties(reader: Reader) -> dict[str, str]:
    """Read table properties: `('key' = 'value', …)`."""

    def read() -> tuple[str, str]:
        key = read_key(reader)
        reader.accept("=")
        return key, ("-" if reader.accept("-") else "") + reader.any_text()

    return dict(reader.parenthesized(read))


def read_key(reader: Reader) -> str:
    """Read the name of a property: a string, or names that are separated by dots."""
    return reader.string() if reader.at_string else ".".join(reader.names())


def _struct(reader: Reader) -> StructType:
    fields: list[StructField] = []
    reader.expect("<")
    while not reader.accept(">"):
        if fields:
            reader.expect(",")
        name = reader.identifier()
        reader.accept(":")
        kind = read_type(reader)
        nullable = not reader.accept("NOT", "NULL")
        metadata = {"comment": reader.string()} if reader.accept("COMMENT") else {}
        fields.append(StructField(name, kind, nullable, metadata))
    return StructType(tuple(fields))


def _read_identity(reader: Reader, *, allows_explicit: bool) -> Identity:
    """Read the options of an identity column: `(START WITH n INCREMENT BY m)`."""
    found = {"START": 1, "INCREMENT": 1}
    if reader.accept("("):
        while not reader.accept(")"):
            option = reader.one_of("START", "INCREMENT")
            reader.expect("WITH" if option == "START" else "BY")
            sign = -1 if reader.accept("-") else 1
            found[option] = sign * reader.whole_number()
            reader.accept(",")
    return Identity(found["START"], found["INCREMENT"], allows_explicit=allows_explicit)
