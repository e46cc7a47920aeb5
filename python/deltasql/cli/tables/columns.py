"""Parse columns of a command line: `id:bigint`, `tags:array<string>`, `at:date not null`."""

from __future__ import annotations

import json
import re
from typing import Any

import click

from deltasql.cli.options import nearest

# SQL names of types, and the names that Delta uses.
_NAMES = {
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "real": "float",
    "varchar": "string",
    "text": "string",
    "bool": "boolean",
    "bytes": "binary",
    "decimal": "decimal(10,0)",
    "numeric": "decimal(10,0)",
}
_PRIMITIVES = (
    *("string", "long", "integer", "short", "byte", "float", "double", "boolean"),
    *("binary", "date", "timestamp", "timestamp_ntz", "variant"),
    *("timestamp_nanos", "timestamp_nanos_ntz"),
)
_NESTED = ("array", "map", "struct")
_DECIMAL = re.compile(r"(?:decimal|numeric)\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)
_NOT_NULL = re.compile(r"\s+not\s+null\s*$", re.IGNORECASE)


def schema_of(columns: tuple[str, ...]) -> str:
    """Return the Delta schema of the columns as JSON.

    >>> json.loads(schema_of(("id:bigint not null",)))["fields"]
    [{'name': 'id', 'type': 'long', 'nullable': False, 'metadata': {}}]
    """
    return json.dumps({"type": "struct", "fields": [_field(each) for each in columns]})


def type_of(text: str) -> Any:
    """Return a type in the form of Delta's schema JSON.

    >>> type_of("array<decimal(10, 2)>")["elementType"]
    'decimal(10,2)'
    """
    given = text.strip()
    decimal = _DECIMAL.fullmatch(given)
    if decimal is not None:
        return f"decimal({decimal[1]},{decimal[2] or 0})"
    word, bracket, rest = given.partition("<")
    kind = word.strip().lower()
    if not bracket:
        name = _NAMES.get(kind, kind)
        if name in _PRIMITIVES or name.startswith("decimal("):
            return name
    elif kind in _NESTED and rest.rstrip().endswith(">"):
        return _nested(kind, _parts(rest.rstrip()[:-1]), given)
    hint = nearest(kind, [*_NAMES, *_PRIMITIVES, *_NESTED])
    raise click.UsageError(f"{text.strip()!r} is not a type.{hint}")


def _field(text: str) -> dict[str, Any]:
    name, colon, given = text.partition(":")
    if not (name.strip() and colon and given.strip()):
        raise click.UsageError(f"A column is written NAME:TYPE, got {text!r}.")
    bare = _NOT_NULL.sub("", given)
    return {
        "name": name.strip(),
        "type": type_of(bare),
        "nullable": bare == given,
        "metadata": {},
    }


def _nested(kind: str, parts: list[str], text: str) -> dict[str, Any]:
    if kind == "array" and len(parts) == 1:
        return {"type": "array", "elementType": type_of(parts[0]), "containsNull": True}
    if kind == "map" and len(parts) == 2:
        key, value = map(type_of, parts)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if kind == "struct":
        return {"type": "struct", "fields": [_field(each) for each in parts]}
    raise click.UsageError(f"{text!r} is not a type: write array<T>, map<K, V> or struct<a:T, …>.")


def _parts(text: str) -> list[str]:
    """Split at the commas that are not inside brackets."""
    parts, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]
