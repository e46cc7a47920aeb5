"""Values of rows as text: short, exact where that is possible, never markup."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from deltasql.console.units import is_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

_LONGEST = 120


@dataclass(frozen=True, slots=True)
class Cell:
    """One value as a table shows it."""

    text: str
    kind: str
    """`number`, `null`, `text` or `nested`."""
    whole: str | None = None
    """The text in full, when it was cut."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows with their columns, ready to be shown."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: tuple[bool, ...]


def grid_of(table: pa.Table) -> Grid:
    """Show Arrow rows; columns of one name stay apart."""
    columns = [column.to_pylist() for column in table.columns]
    cells = [[cell(value) for value in column] for column in columns]
    return Grid(
        columns=tuple(table.column_names),
        types=tuple(str(field.type) for field in table.schema),
        rows=tuple(zip(*cells, strict=True)),
        numeric=tuple(any(is_number(value) for value in column) for column in columns),
    )


def grid_of_dicts(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Grid:
    """Show rows that are given by name."""
    cells = tuple(tuple(cell(row.get(name)) for name in columns) for row in rows)
    numeric = tuple(any(is_number(row.get(name)) for row in rows) for name in columns)
    return Grid(tuple(columns), ("",) * len(columns), cells, numeric)


def cell(value: object) -> Cell:
    """Show one value.

    >>> cell(None), cell(1.5).text, cell({"a": [1]}).text
    (Cell(text='null', kind='null', whole=None), '1.5', '{"a": [1]}')
    """
    if value is None:
        return Cell("null", "null")
    if isinstance(value, bool):
        return Cell("true" if value else "false", "text")
    if is_number(value):
        return Cell(str(value), "number")
    if isinstance(value, datetime):
        return Cell(value.isoformat(sep=" "), "text")
    if isinstance(value, date | time):
        return Cell(value.isoformat(), "text")
    if isinstance(value, bytes):
        return _cut(value.hex(" "), "nested")
    if isinstance(value, dict | list | tuple):
        return _cut(json.dumps(value, default=_plain, ensure_ascii=False), "nested")
    return _cut(str(value), "text")


def _cut(text: str, kind: str) -> Cell:
    if len(text) <= _LONGEST:
        return Cell(text, kind)
    return Cell(text[: _LONGEST - 1] + "…", kind, text[:2000])


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, Decimal | datetime | date | time) else repr(value)
