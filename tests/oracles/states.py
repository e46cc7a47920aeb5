"""The normal form in which results of different readers are compared."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a version: columns with types, sorted by name, and rows, sorted."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[str, ...]


def rows_of(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> Rows:
    """Convert Python rows to the normal form."""
    names = sorted(schema.names)
    columns = tuple((name, type_text(schema.field(name).type)) for name in names)
    return Rows(
        columns,
        tuple(
            sorted(" ".join(f"{name}={value_text(row[name])}" for name in names) for row in rows)
        ),
    )


def arrow_rows(table: pa.Table) -> Rows:
    """Convert an Arrow table to the normal form."""
    return rows_of(table.schema, table.to_pylist())


def type_text(kind: pa.DataType) -> str:
    """Return the name of a type, independent of its memory layout.

    A map counts as the list of its entries: not every reader has maps.

    >>> type_text(pa.large_list(pa.string_view())), type_text(pa.timestamp("ms", "Asia/Tokyo"))
    ('list<string>', 'timestamp')
    """
    types = pa.types
    if types.is_map(kind):
        return f"list<struct<key:{type_text(kind.key_type)},value:{type_text(kind.item_type)}>>"
    if types.is_struct(kind):
        return f"struct<{','.join(f'{f.name}:{type_text(f.type)}' for f in kind)}>"
    if isinstance(kind, pa.ListType | pa.LargeListType | pa.ListViewType | pa.LargeListViewType):
        return f"list<{type_text(kind.value_type)}>"
    if types.is_dictionary(kind):
        return type_text(kind.value_type)
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    for name in ("string", "binary"):
        if any(getattr(types, f"is_{form}{name}")(kind) for form in ("", "large_")):
            return name
        if getattr(types, f"is_{name}_view")(kind):
            return name
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return str(kind)


def value_text(value: Any) -> str:
    """Return a text that is equal for equal values: NaN equals NaN, -0.0 is not 0.0.

    >>> value_text([(1, float("nan")), (2, -0.0)])
    '[{key:1,value:nan},{key:2,value:-0.0}]'
    """
    match value:
        case tuple():  # an entry of a map
            return value_text({"key": value[0], "value": value[1]})
        case list():
            return f"[{','.join(map(value_text, value))}]"
        case dict():
            return f"{{{','.join(f'{name}:{value_text(v)}' for name, v in value.items())}}}"
        case datetime() if value.tzinfo is not None:
            return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"
        case datetime():
            return value.isoformat()
        case None | bool() | int() | float() | str() | bytes():
            return repr(value)
        case _:
            return str(value)


@dataclass(frozen=True, slots=True)
class Log:
    """The content of a version's log without the rows."""

    version: int
    schema: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    description: tuple[str | None, ...]
    protocol: tuple[Any, ...]
    files: tuple[tuple[Any, ...], ...]
    apps: Mapping[str, int]
