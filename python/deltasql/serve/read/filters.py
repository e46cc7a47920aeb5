"""Translate the filters of a request to an SQL condition.

A filter is JSON: `{"op": "=", "column": ["a"], "value": {"long": 1}}`. Values have their type, so
that dates and timestamps do not depend on a time zone.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import InvalidQueryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_COMPARISONS = ("=", "<", "<=", ">", ">=")
_NULLS = {"is null": "IS NULL", "is not null": "IS NOT NULL"}


def condition_of(filters: Iterable[Mapping[str, Any]]) -> str | None:
    """Return an SQL condition that is true where all filters are; None if there are no filters.

    >>> condition_of([{"op": "=", "column": ["a", "b"], "value": {"date": 1}}])
    "`a`.`b` = DATE '1970-01-02'"
    """
    parts = [_condition(each) for each in filters]
    if len(parts) > 1:
        parts = [f"({each})" for each in parts]
    return " AND ".join(parts) or None


def skipping_condition(filters: Iterable[Mapping[str, Any]]) -> str | None:
    """Return a condition for data skipping; a filter that cannot be translated skips no file."""
    parts = []
    for each in filters:
        with suppress(InvalidQueryError, OverflowError):
            parts.append(f"({condition_of([each])})")
    return " AND ".join(parts) or None


def _condition(node: Mapping[str, Any]) -> str:
    op = node["op"]
    if op in ("and", "or"):
        return f" {op.upper()} ".join(f"({_condition(each)})" for each in node["children"])
    column = ".".join("`" + str(name).replace("`", "``") + "`" for name in node["column"])
    if op in _NULLS:
        return f"{column} {_NULLS[op]}"
    if op == "in":
        return f"{column} IN ({', '.join(_literal(each) for each in node['values'])})"
    if op in _COMPARISONS:
        return f"{column} {op} {_literal(node['value'])}"
    raise InvalidQueryError(f"a filter has the unknown operator {op!r}")


def _literal(value: Mapping[str, Any]) -> str:
    ((kind, content),) = value.items()
    if kind == "long":
        return str(int(content))
    if kind == "double":
        return repr(float(content))
    if kind == "decimal":
        return format(Decimal(content), "f")
    if kind == "boolean":
        return "true" if content else "false"
    if kind == "string":
        if "\\" in content:  # parsers differ in whether a backslash escapes
            raise InvalidQueryError("a filter with a backslash cannot be translated")
        return "'" + str(content).replace("'", "''") + "'"
    if kind == "date":
        return f"DATE '{date(1970, 1, 1) + timedelta(days=content)}'"
    if kind in ("timestamp", "timestamp_ntz"):
        timestamp = datetime(1970, 1, 1) + timedelta(microseconds=content)
        return f"'{timestamp.isoformat()}{'Z' if kind == 'timestamp' else ''}'"
    raise InvalidQueryError(f"a filter has a value of the unknown type {kind!r}")
