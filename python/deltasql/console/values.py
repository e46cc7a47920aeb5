"""Format the values of rows as short text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pyarrow as pa

from deltasql.api.inspect.definition import type_text
from deltasql.console.units import is_number
from deltasql.engine.inputs import python_values
from deltasql.exceptions import MASK, TxnLogSchemaError, is_secret_name, redact
from deltasql.model.schema.convert import schema_from_any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_CELL = 120
_MAX_TOOLTIP = 2000


@dataclass(frozen=True, slots=True)
class Cell:
    """One value in the form that a table shows."""

    text: str
    kind: str
    """`number`, `null`, `text` or `nested`."""
    tooltip: str | None = None
    """The longer text for the tooltip, if `text` was truncated."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows and columns in the form that a table shows."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: tuple[bool, ...]


def grid_of(table: pa.Table) -> Grid:
    """Format an Arrow table; column names may repeat."""
    columns = [python_values(column) for column in table.columns]
    cells = [[cell(value) for value in column] for column in columns]
    return Grid(
        columns=tuple(table.column_names),
        types=tuple(_type_name(field.type) for field in table.schema),
        rows=tuple(zip(*cells, strict=True)),
        numeric=tuple(any(is_number(value) for value in column) for column in columns),
    )


@cache
def _type_name(kind: pa.DataType) -> str:
    """Return the SQL name of a type, as on the page of the schema; Arrow's name if Delta has none.

    >>> import pyarrow as pa
    >>> _type_name(pa.date32()), _type_name(pa.int64()), _type_name(pa.time64("us"))
    ('date', 'long', 'time64[us]')
    """
    try:
        (field,) = schema_from_any(pa.schema([("value", kind)])).fields
    except TxnLogSchemaError:
        return str(kind)
    return type_text(field.type)


def grid_of_dicts(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Grid:
    """Format rows that are given as mappings."""
    cells = tuple(tuple(cell(row.get(name)) for name in columns) for row in rows)
    numeric = tuple(any(is_number(row.get(name)) for row in rows) for name in columns)
    return Grid(tuple(columns), ("",) * len(columns), cells, numeric)


def cell(value: object) -> Cell:
    """Format one value.

    >>> cell(None), cell(1.5).text, cell({"a": [1]}).text
    (Cell(text='NULL', kind='null', tooltip=None), '1.5', '{"a": [1]}')
    """
    if value is None:
        return Cell("NULL", "null")
    if isinstance(value, bool):
        return Cell("true" if value else "false", "text")
    if is_number(value):
        return Cell(str(value), "number")
    if isinstance(value, datetime):
        return Cell(value.isoformat(sep=" "), "text")
    if isinstance(value, date | time):
        return Cell(value.isoformat(), "text")
    if isinstance(value, bytes):
        # Truncate before the conversion to hex, which makes the text longer.
        return _cut(value[:_MAX_TOOLTIP].hex(" "), "nested")
    if isinstance(value, dict | list) or (isinstance(value, tuple) and not is_interval(value)):
        return _cut(json.dumps(_shorter(value), default=plain, ensure_ascii=False), "nested")
    return _cut(value[: 2 * _MAX_TOOLTIP] if isinstance(value, str) else str(plain(value)), "text")


def masked(value: object, key: str) -> str:
    """Format a setting; secrets, recognized by their name or format, are masked.

    >>> masked("hunter2", "password"), masked("id = 1", "predicate")
    ('***', 'id = 1')
    """
    return (
        MASK
        if is_secret_name(key)
        else _cut(redact(cell(value).tooltip or cell(value).text), "text").text
    )


def _cut(text: str, kind: str) -> Cell:
    if len(text) <= _MAX_CELL:
        return Cell(text, kind)
    return Cell(text[: _MAX_CELL - 1] + "…", kind, text[:_MAX_TOOLTIP])


def _shorter(value: Any) -> Any:
    """Remove the parts of a nested value that would be truncated anyway."""
    if isinstance(value, dict):
        return {key: _shorter(each) for key, each in islice(value.items(), _MAX_TOOLTIP)}
    if isinstance(value, list | tuple) and not is_interval(value):
        return [_shorter(each) for each in value[:_MAX_TOOLTIP]]
    return value[:_MAX_TOOLTIP] if isinstance(value, str | bytes) else value


def plain(value: object) -> object:
    """Return a value in a form that JSON can represent; intervals are written as in ISO 8601.

    >>> import pyarrow as pa
    >>> plain(b"ab"), plain(Decimal("1.50")), plain(pa.MonthDayNano([14, 3, 1_500_000_000]))
    ('6162', '1.50', 'P14M3DT1.5S')
    """
    if isinstance(value, bytes):
        return value.hex()
    if is_interval(value):
        months, days, nanoseconds = cast("tuple[int, int, int]", value)
        seconds = f"{Decimal(nanoseconds).scaleb(-9):f}"
        seconds = seconds.rstrip("0").rstrip(".") if "." in seconds else seconds
        return f"P{months}M{days}DT{seconds}S"
    is_known = isinstance(value, Decimal | datetime | date | time | timedelta | str | UUID)
    return str(value) if is_known else repr(value)


def is_interval(value: object) -> bool:
    """Return whether a value is an Arrow interval; intervals are tuples too."""
    return type(value).__name__ == "MonthDayNano"
