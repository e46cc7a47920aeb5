"""Checks arguments of DeltaTable methods, with the error messages of delta-spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from pyspark.sql import Column

ColumnOrText: TypeAlias = "str | Column"


def condition_text(
    condition: ColumnOrText | None, write: Callable[[Column], str], name: str = "'condition'"
) -> str | None:
    """Return a condition as SQL, or None if there is none."""
    if condition is None or isinstance(condition, str):
        return condition
    if isinstance(condition, Column):
        return write(condition)
    raise TypeError(
        f"{name} must be a Spark SQL Column or a string (expression in SQL syntax), "
        f"found to be of type {type(condition)}"
    )


def assignment_texts(given: Any, write: Callable[[Column], str], name: str) -> dict[str, str]:
    """Return assignments as SQL: column → expression."""
    if given is None:
        raise ValueError(f"{name} cannot be None")
    if not isinstance(given, dict):
        raise TypeError(f"{name} must be a dict, found to be {type(given)}")
    found = {}
    for key, value in given.items():
        if not isinstance(key, str):
            raise TypeError(
                f"Keys of dict in {name} must contain only strings with column names, "
                f"found '{key}' of type '{type(key)}"
            )
        if isinstance(value, Column):
            found[key] = write(value)
        elif isinstance(value, str):
            found[key] = value
        else:
            raise TypeError(
                f"Values of dict in {name} must contain only Spark SQL Columns or strings "
                f"(expressions in SQL syntax) as values, found '{value}' of type '{type(value)}'"
            )
    return found


def require(value: Any, kind: type, name: str, shown: str) -> None:
    """Raise if an argument has another type; a bool is not accepted as an int."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{name} needs to be {shown} but got '{type(value)}'.")
