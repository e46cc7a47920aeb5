"""Spark's Columns as SQL text, so that they mean the same in an operation as a text does.

A Column is a tree: names, literals, calls. Classic Spark has it in the JVM, Spark Connect in
Python; both are written out here as the SQL that Spark itself would read. A column of a DataFrame,
such as `df.id`, is written with the alias of the side that has it.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from deltasql.engine.spark.schema import quoted
from deltasql.exceptions import TxnLogEngineError

Sides: TypeAlias = Sequence[tuple[Container[object], str]]
"""What identifies DataFrames or their columns, and the alias that the SQL has for them."""
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
class Writing:
    """What is known while a Column is written."""

    sides: Sides = ()
    register: Callable[[Any], str] | None = None
    """Makes a function of Python known to the session, and returns the name to call it by."""

    def attribute(self, key: object, parts: Sequence[str]) -> str:
        """Write a name; `key` says which DataFrame it is of, None when it is just a name."""
        side = None if key is None else self.side_of(key)
        named = parts if side is None else [side, *parts]
        return ".".join(quoted(part) for part in named)

    def side_of(self, key: object) -> str | None:
        """Return the alias of the side that has something."""
        return next((alias for keys, alias in self.sides if key in keys), None)


def literal(value: Any, data_type: str) -> str:
    """Write a constant of a type of Spark.

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
    """Write text as a literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def call(name: str, arguments: Sequence[str]) -> str:
    """Write a call, operators between their sides."""
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
    """Write the part of a value: the field of a struct or of a map by `name`, else an element."""
    if name is not None and value.endswith("`") and "(" not in value:
        return f"{value}.{quoted(name)}"
    return f"{value}[{key}]"


def case(branches: Sequence[tuple[str, str]], otherwise: str | None) -> str:
    """Write CASE WHEN."""
    parts = [f"WHEN {condition} THEN {value}" for condition, value in branches]
    last = [] if otherwise is None else [f"ELSE {otherwise}"]
    return " ".join(["CASE", *parts, *last, "END"])


def cannot_write(what: str) -> TxnLogEngineError:
    """Return the error for a Column that has no text."""
    return TxnLogEngineError(
        f"a Column with {what} cannot be used here",
        engine="spark",
        help="Compute it before, in the source DataFrame, or write the condition as SQL text.",
    )


def column_sql(column: Any, writing: Writing | None = None) -> str:
    """Return the SQL of a Column, classic or Connect; a name that it was given is left out."""
    known = writing if writing is not None else Writing()
    if hasattr(column, "_jc"):
        from deltasql.spark.columns.classic import node_sql

        return node_sql(column._jc.node(), known)
    from deltasql.spark.columns.connect import expression_sql

    return expression_sql(column._expr, known)
