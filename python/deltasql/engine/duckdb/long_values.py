"""SQL expressions that shorten or measure long values, also inside lists, structs and maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from sqlglot import exp

from deltasql.model.predicates.query_text import DIALECT

if TYPE_CHECKING:
    from collections.abc import Callable

    from duckdb.sqltypes import DuckDBPyType

_LENGTHS = {"varchar": "strlen", "blob": "octet_length"}
_BYTES_OF_ELEMENT = 8
_Change: TypeAlias = "Callable[[DuckDBPyType, str, int], str | None]"


def shortened(kind: DuckDBPyType, value: str, most: int, depth: int = 0) -> str | None:
    """Return an expression for a value with at most `most` characters, bytes or elements.

    Values inside it are shortened, too, except the keys of maps and the members of unions. Returns
    None for types that are never long.
    """
    if kind.id == "varchar":
        return f"left({value}, {most})"
    if kind.id in ("blob", "list"):
        value = f"{value}[1:{most}]"
    if kind.id == "blob":
        return value

    def short(inner: DuckDBPyType, each: str, level: int) -> str | None:
        return shortened(inner, each, most, level)

    if kind.id in ("list", "array"):
        # An array also becomes a list, because the change may give its elements another type.
        return _transformed(_child(kind), value, short, depth) or (
            value if kind.id == "list" else None
        )
    if kind.id == "map":
        inner = _children(kind)[1][1]
        found = _transformed(inner, f"map_values({value})", short, depth)
        return None if found is None else _unless_null(value, f"map(map_keys({value}), {found})")
    if kind.id == "struct":
        fields = _fields(kind, value)
        parts = [(name, part, short(inner, part, depth)) for name, inner, part in fields]
        if all(name and each is None for name, _, each in parts):
            return None
        # Arrow needs unique field names. The fields of a row have no names, so number them.
        named = [
            f"{exp.to_identifier(name or str(number), quoted=True).sql(DIALECT)} := {each or part}"
            for number, (name, part, each) in enumerate(parts, 1)
        ]
        return _unless_null(value, f"struct_pack({', '.join(named)})")
    return None


def has_row(kind: DuckDBPyType) -> bool:
    """Return whether a type contains a row, whose fields have no names."""
    if kind.id == "struct" and not all(name for name, _ in _children(kind)):
        return True
    if kind.id in ("list", "array"):
        return has_row(_child(kind))
    return kind.id in ("struct", "map") and any(has_row(inner) for _, inner in _children(kind))


def length(kind: DuckDBPyType, value: str, depth: int = 0) -> str | None:
    """Return an expression for the approximate bytes of a value.

    Return None for types that are never long.
    """
    if kind.id in _LENGTHS:
        return f"coalesce({_LENGTHS[kind.id]}({value}), 0)"
    if kind.id in ("union", "bit"):
        return f"coalesce(strlen(CAST({value} AS VARCHAR)), 0)"
    if kind.id in ("list", "array"):
        sizes = _transformed(_child(kind), value, length, depth)
        sums = [] if sizes is None else [f"coalesce(list_sum({sizes}), 0)"]
        if kind.id == "list":
            sums.append(f"coalesce({_BYTES_OF_ELEMENT} * len({value}), 0)")
        return " + ".join(sums) or None
    if kind.id == "map":
        parts = [
            _transformed(inner, f"map_{part}s({value})", length, depth)
            for part, inner in _children(kind)
        ]
        sums = [f"coalesce(list_sum({each}), 0)" for each in parts if each is not None]
        return " + ".join([*sums, f"coalesce({_BYTES_OF_ELEMENT} * cardinality({value}), 0)"])
    if kind.id == "struct":
        found = [length(inner, part, depth) for _, inner, part in _fields(kind, value)]
        return " + ".join(each for each in found if each is not None) or None
    return None


def _transformed(kind: DuckDBPyType, value: str, change: _Change, depth: int) -> str | None:
    """Return an expression for a list whose elements are changed; None if they need no change."""
    name = f"element_{depth}"
    found = change(kind, name, depth + 1)
    return None if found is None else f"list_transform({value}, lambda {name}: {found})"


def _children(kind: DuckDBPyType) -> list[tuple[str, DuckDBPyType]]:
    return cast("list[tuple[str, DuckDBPyType]]", kind.children)


def _child(kind: DuckDBPyType) -> DuckDBPyType:
    """Return the type of the elements of a list or an array."""
    return _children(kind)[0][1]


def _fields(kind: DuckDBPyType, value: str) -> list[tuple[str, DuckDBPyType, str]]:
    """Return the name, the type and an expression for each field of a struct or a row."""
    found = []
    for number, (name, inner) in enumerate(_children(kind), 1):
        key = exp.Literal.string(name).sql(DIALECT) if name else str(number)
        found.append((name, inner, f"struct_extract({value}, {key})"))
    return found


def _unless_null(value: str, found: str) -> str:
    return f"CASE WHEN {value} IS NULL THEN NULL ELSE {found} END"
