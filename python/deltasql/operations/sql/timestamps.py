"""Timestamps in SQL expressions: UTC for strings without a zone, numbers since 1970, nanoseconds.

In some places DuckDB computes with microseconds, where DataFusion computes with nanoseconds.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.exceptions import UnsupportedFeatureError
from deltasql.model.schema.schema import NANOSECOND_TYPES

if TYPE_CHECKING:
    from deltasql.model.schema.schema import DataType

MICROSECOND_TYPES = ("timestamp", "timestamp_ntz")
_WITHOUT_ZONE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{1,2}(:\d{1,2}(\.\d+)?)?)?")
_NANOSECONDS = exp.DType.TIMESTAMP_NS
_MICROSECONDS = (
    *(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ),
    *(exp.DType.TIMESTAMPNTZ, exp.DType.TIMESTAMPLTZ),
)
_COMPARISONS = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between),
    *(exp.NullSafeEQ, exp.NullSafeNEQ),
)
_NANOSECOND_DIGITS = re.compile(r"\.\d{6}\d*[1-9]")


def in_utc(text: str) -> str | None:
    """Add UTC to a timestamp string without a zone; return None for any other string.

    >>> in_utc("2024-05-01"), in_utc("2024-05-01T10:00:00+02:00")
    ('2024-05-01T00:00:00Z', None)
    """
    found = _WITHOUT_ZONE.fullmatch(text)
    if not found:
        return None
    missing = "T00:00:00" if not found[1] else "" if found[2] else ":00"
    return f"{text}{missing}Z"


def text_since_epoch(expression: exp.Expr, data_type: DataType) -> str | None:
    """Convert an integer literal, counted from 1970, to a date or timestamp string.

    The unit is that of the type: days, microseconds or nanoseconds. Return None for any other
    expression or type, and for a number outside the range of Python's datetime.
    """
    node = expression.unnest()
    sign = 1
    if isinstance(node, exp.Neg):
        node, sign = node.this.unnest(), -1
    if not isinstance(node, exp.Literal) or node.is_string or not node.this.isdigit():
        return None
    number = sign * int(node.this)
    try:
        if data_type == "date":
            return (date(1970, 1, 1) + timedelta(days=number)).isoformat()
        if data_type in NANOSECOND_TYPES:
            timestamp = datetime(1970, 1, 1) + timedelta(microseconds=number // 1000)
            return f"{timestamp.isoformat('T', 'microseconds')}{number % 1000:03d}"
        timestamp = datetime(1970, 1, 1) + timedelta(microseconds=number)
    except OverflowError:
        return None
    if data_type not in MICROSECOND_TYPES:
        return None
    zone = "Z" if data_type == "timestamp" else ""
    return timestamp.isoformat("T", "microseconds") + zone


def keep_nanoseconds(expression: exp.Expr, *, always: bool = False) -> exp.Expr:
    """Return an expression that keeps the nanoseconds of its columns, as DataFusion does.

    Values that are compared with nanoseconds get the same type, and intervals are added without
    loss of digits. An expression without nanosecond columns is unchanged, unless `always` is set.
    """
    wrapper = exp.Paren(this=expression)
    nodes = list(wrapper.walk())
    if always or any(map(_is_nanoseconds, nodes)):
        for node in reversed(nodes):  # operands before the operators that use them
            if isinstance(node, _COMPARISONS):
                _compare(node)
            elif isinstance(node, exp.Add | exp.Sub):
                _add_interval(node)
            elif isinstance(node, exp.Cast) and _has_nanosecond_digits(node):
                node.replace(nanosecond_value(node))
    inner: exp.Expr = wrapper.this
    inner.pop()
    return inner


def nanosecond_value(expression: exp.Expr) -> exp.Expr:
    """Cast a value to a timestamp with nanoseconds; a literal keeps all its digits."""
    if _is_nanoseconds(expression):
        return expression.copy()
    value = timestamp_literal(expression) or expression.copy()
    return _typed(exp.Cast(this=value, to=exp.DataType(this=_NANOSECONDS)))


def timestamp_literal(expression: exp.Expr) -> exp.Expr | None:
    """Return the string literal of a timestamp, also from inside a cast; None for other values."""
    plain = expression.unnest()
    if isinstance(plain, exp.Cast) and plain.to.this in _MICROSECONDS:
        plain = plain.this.unnest()
    return plain.copy() if isinstance(plain, exp.Literal) and plain.is_string else None


def _compare(node: exp.Expr) -> None:
    """Compare all sides as nanoseconds if one of them has nanoseconds."""
    sides = list(node.iter_expressions())
    if any(map(_is_nanoseconds, sides)):
        for side in sides:
            # sqlglot does not know the type of functions such as now(). A function that is
            # compared with nanoseconds returns a timestamp.
            unknown = side.type is None or side.type.this == exp.DType.UNKNOWN
            is_call = isinstance(side, exp.Func) and unknown
            if (is_call or _is_timestamp(side)) and not _is_nanoseconds(side):
                side.replace(nanosecond_value(side))


def _add_interval(node: exp.Expr) -> None:
    """Add or subtract an interval without loss of nanoseconds.

    DuckDB computes the result in microseconds, so the remaining nanoseconds are added afterwards.
    """
    timestamp, other = node.this, node.expression
    if isinstance(node, exp.Add) and _is_nanoseconds(other):
        timestamp, other = other, timestamp
    if not _is_nanoseconds(timestamp):
        return
    if _is_timestamp(other):
        raise UnsupportedFeatureError(
            f"the difference of timestamps with nanoseconds is not supported: {node.sql()}",
            features=("timestampNanos",),
            help="Cast both to TIMESTAMP: the difference is then in microseconds.",
        )
    truncated = exp.Cast(this=timestamp.copy(), to=exp.DataType(this=exp.DType.TIMESTAMPNTZ))
    moved = type(node)(this=truncated, expression=other.copy())
    remainder = exp.Sub(
        this=_epoch_ns(timestamp.copy()),
        expression=_epoch_ns(_as_nanoseconds(truncated.copy())),
    )
    total = exp.Add(this=_epoch_ns(_as_nanoseconds(exp.paren(moved))), expression=remainder)
    node.replace(_typed(exp.Anonymous(this="make_timestamp_ns", expressions=[total])))


def _epoch_ns(timestamp: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="epoch_ns", expressions=[timestamp])


def _as_nanoseconds(timestamp: exp.Expr) -> exp.Expr:
    return exp.Cast(this=timestamp, to=exp.DataType(this=_NANOSECONDS))


def _typed(node: exp.Expr) -> exp.Expr:
    node.type = exp.DataType(this=_NANOSECONDS)
    return node


def _is_nanoseconds(node: exp.Expr) -> bool:
    return node.type is not None and node.type.this == _NANOSECONDS


def _is_timestamp(node: exp.Expr) -> bool:
    is_text = isinstance(node, exp.Literal) and node.is_string
    kind = None if node.type is None else node.type.this
    return is_text or kind == _NANOSECONDS or kind in _MICROSECONDS


def _has_nanosecond_digits(cast: exp.Cast) -> bool:
    """Return whether a cast to a timestamp has a string with more digits than microseconds."""
    text = cast.this
    is_text = isinstance(text, exp.Literal) and text.is_string
    has_digits = is_text and _NANOSECOND_DIGITS.search(text.this) is not None
    return cast.to.this in _MICROSECONDS and has_digits
