"""Writes names, literals, calls and other parts of Columns as SQL that Spark can parse."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from deltasql.engine.spark.schema import quoted
from deltasql.exceptions import TxnLogEngineError

Sides: TypeAlias = Sequence[tuple[Container[object], str]]
"""The keys of DataFrames or of their columns, and the alias of the DataFrame in the SQL."""
_INFIX = {
    **{sign: sign for sign in ("+", "-", "*", "/", "%", "=", "<", "<=", ">", ">=", "<=>")},
    **{sign: sign for sign in ("&", "|", "^", "!=", "<>")},
    "==": "=",
    "and": "AND",
    "or": "OR",
    "like": "LIKE",
    "rlike": "RLIKE",
    "ilike": "ILIKE",
}
_AFTER = {"isnull": "IS NULL", "isnotnull": "IS NOT NULL"}
_BEFORE = {"!": "NOT ", "not": "NOT ", "negative": "-", "~": "~", "bitwise_not": "~"}


@dataclass(slots=True)
class ColumnContext:
    """The context in which a Column is written as SQL."""

    sides: Sides = ()
    register: Callable[[Any], str] | None = None
    """Registers a Python function in the session and returns its name."""

    def attribute(self, key: object, parts: Sequence[str]) -> str:
        """Write a name; `key` identifies its DataFrame, None if it belongs to no DataFrame."""
        side = None if key is None else self.side_of(key)
        named = parts if side is None else [side, *parts]
        return ".".join(quoted(part) for part in named)

    def side_of(self, key: object) -> str | None:
        """Return the alias of the DataFrame or table that a key belongs to, or None."""
        return next((alias for keys, alias in self.sides if key in keys), None)


def literal(value: Any, data_type: str) -> str:
    """Write a constant of a Spark type.

    >>> literal("it's", "string"), literal(5, "bigint"), literal(None, "void")
    ("'it''s'", 'CAST(5 AS BIGINT)', 'NULL')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, bytes | bytearray):
        return f"X'{bytes(value).hex()}'"
    if isinstance(value, dt.timedelta):
        seconds = decimal.Decimal(value // dt.timedelta(microseconds=1)) / 1_000_000
        return f"make_dt_interval(0, 0, 0, CAST('{seconds}' AS DECIMAL(18,6)))"
    if isinstance(value, dt.datetime):
        return f"CAST('{value.isoformat()}' AS {data_type.upper()})"
    if isinstance(value, str) and data_type == "string":
        return text(value)
    if isinstance(value, int) and data_type == "int":
        return str(value) if value >= 0 else f"({value})"
    if isinstance(value, int):
        return f"CAST({value} AS {data_type.upper()})"
    return f"CAST({text(str(value))} AS {data_type.upper()})"


def text(value: str) -> str:
    """Write a string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def call(name: str, arguments: Sequence[str]) -> str:
    """Write a function call, or an operator with its operands."""
    plain = name.lower()
    if plain in _INFIX and len(arguments) == 2:
        return f"({arguments[0]} {_INFIX[plain]} {arguments[1]})"
    if plain in ("like", "ilike") and len(arguments) == 3:
        return f"({arguments[0]} {_INFIX[plain]} {arguments[1]} ESCAPE {arguments[2]})"
    if plain in _AFTER and len(arguments) == 1:
        return f"({arguments[0]} {_AFTER[plain]})"
    if plain in _BEFORE and len(arguments) == 1:
        return f"({_BEFORE[plain]}{arguments[0]})"
    if plain == "in":
        if len(arguments) == 1:
            return f"({arguments[0]} IS NULL AND FALSE)"
        return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
    return f"{name}({', '.join(arguments)})"


def struct(members: Sequence[tuple[str, str]]) -> str:
    """Write a struct of named values."""
    parts = [part for name, value in members for part in (text(name), value)]
    return f"named_struct({', '.join(parts)})"


def extracted(value: str, key: str, *, name: str | None) -> str:
    """Write access to the field `name` of a struct or map, or to the element `key` of a value."""
    if name is not None and value.endswith("`") and "(" not in value:
        return f"{value}.{quoted(name)}"
    return f"{value}[{key}]"


def case(branches: Sequence[tuple[str, str]], otherwise: str | None) -> str:
    """Write a CASE expression."""
    parts = [f"WHEN {condition} THEN {value}" for condition, value in branches]
    last = [] if otherwise is None else [f"ELSE {otherwise}"]
    return " ".join(["CASE", *parts, *last, "END"])


def cannot_write(what: str) -> TxnLogEngineError:
    """Return the error for a Column that cannot be written as SQL."""
    return TxnLogEngineError(
        f"a Column with {what} cannot be used here",
        engine="spark",
        help="Compute it as a column of the source DataFrame, or write the condition as SQL.",
    )
