"""Convert Python values to SQL expressions, for `new_values` of an update."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from deltasql.model.predicates.filters import moment_text

if TYPE_CHECKING:
    from collections.abc import Mapping


def expressions_of(
    updates: Mapping[str, str] | None,
    new_values: Mapping[str, Any] | None,
    *,
    escapes: bool = False,
) -> dict[str, str]:
    """Return SQL expressions by column, from either `updates` or `new_values`.

    Set `escapes` for SQL in which a backslash is an escape character.

    >>> expressions_of(None, {"n": 1, "s": "it's", "tags": ["a"]})
    {'n': '1', 's': "'it''s'", 'tags': "['a']"}
    """
    if updates is not None and new_values is not None:
        raise ValueError("Passing updates and new_values at same time is not allowed, pick one.")
    if updates is None and new_values is None:
        raise ValueError("Either updates or new_values need to be passed to update the table.")
    if new_values is not None:
        return {name: _expression(value, escapes) for name, value in new_values.items()}
    given = dict(updates or {})
    for name, text in given.items():
        if not isinstance(text, str) or not isinstance(name, str):
            raise TypeError(
                "The values of the updates parameter must all be SQL strings. "
                f"Got {given}. Did you mean to use the new_values parameter?"
            )
    return given


def _expression(value: Any, escapes: bool) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | Decimal():
            return str(value)
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case str():
            text = value.replace("\\", "\\\\") if escapes else value
            return "'" + text.replace("'", "''") + "'"
        case datetime():
            text = moment_text(value if value.tzinfo is None else value.astimezone(UTC), "T")
            return f"CAST('{text}Z' AS TIMESTAMP)" if value.tzinfo else f"'{text}'"
        case date():
            return f"CAST('{value.isoformat()}' AS DATE)"
        case list() | tuple():
            return "[" + ", ".join(_expression(each, escapes) for each in value) + "]"
        case _:
            raise TypeError(
                "Invalid datatype provided in new_values, only int, float, bool, list, str or "
                "datetime or accepted."
            )
