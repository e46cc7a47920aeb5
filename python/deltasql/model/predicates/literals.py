"""Evaluate the literals of a predicate, and compare them with columns of Delta types.

Values of integers, decimals, dates and timestamps are multiples of a unit (1, 10^-scale, a day, a
microsecond or a nanosecond). These multiples are called the grid of the type. If a literal is not
on the grid, the comparison is replaced by an equivalent one: for a long, `x > 5.5` becomes
`x >= 6`. If engines disagree on a comparison, it becomes `unknown`, which skips no file. A
timestamp without a time zone is in UTC.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sqlglot import exp

from deltasql.model.schema.schema import (
    COLLATIONS,
    NANOSECOND_TYPES,
    DataType,
    LeafColumn,
    decimal_type,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Node: TypeAlias = dict[str, Any]
Kind = Literal[
    "null",
    "boolean",
    "number",
    "double",
    "string",
    "date",
    "timestamp",
    "timestamp_ntz",
    "nanoseconds",
]

TRUE: Node = {"op": "true"}
FALSE: Node = {"op": "false"}
UNKNOWN: Node = {"op": "unknown"}

DOUBTFUL = "doubtful"
"""Marks a string literal with backslashes, which engines interpret differently."""
_BITS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
_EXACT_IN_DOUBLE = 2**53
_EPOCH = datetime(1970, 1, 1)
_WIDE = Context(prec=100)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")
_BEYOND = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[T ](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9})0*)?)?\s*(Z|UTC|[+-]\d\d:\d\d)?)?"
)
_CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"


@dataclass(frozen=True, slots=True)
class Value:
    """A literal: its kind, and a Python value of that kind.

    A value of the kind `number` is a Decimal. A value of the kind `nanoseconds` is a timestamp: the
    nanoseconds since 1970 in UTC.
    """

    kind: Kind
    value: Any = None


def literal_value(node: exp.Expr) -> Value | None:
    """Evaluate a literal, which may have a minus sign or a cast; None for other expressions.

    >>> import sqlglot
    >>> literal_value(sqlglot.parse_one("-1.50"))
    Value(kind='number', value=Decimal('-1.50'))
    """
    if isinstance(node, exp.Paren):
        return literal_value(node.this)
    if isinstance(node, exp.Null):
        return Value("null")
    if isinstance(node, exp.Boolean):
        return Value("boolean", bool(node.this))
    if isinstance(node, exp.RawString):
        return Value("string", node.this)
    if isinstance(node, exp.Literal):
        if node.is_string and node.meta.get(DOUBTFUL):
            return None
        return Value("string", node.this) if node.is_string else _number(node.this)
    if isinstance(node, exp.Neg):
        inner = literal_value(node.this)
        return Value(inner.kind, -inner.value) if inner and _is_numeric(inner) else None
    if isinstance(node, exp.Cast):
        inner = literal_value(node.this)
        return _cast(inner, node.to) if inner else None
    return None


def in_one_type(data_type: DataType, values: Sequence[Value]) -> list[Value] | None:
    """Convert the values of an IN or BETWEEN to their common type, as engines do.

    If one value is a double, all numbers become doubles. Return None if the common type is unclear.
    """
    kinds = {value.kind for value in values} - {"null"}
    if kinds == {"number", "double"}:
        return [
            Value("double", float(value.value)) if _is_numeric(value) else value for value in values
        ]
    numbers = [value.value for value in values if value.kind == "number"]
    precision, scale = decimal_type(data_type) or (20, 0)
    return list(values) if len(kinds) <= 1 and _fits(precision, scale, *numbers) else None


def leaf(column: LeafColumn, op: str, *, partition: bool, **fields: Any) -> Node:
    """Return a leaf of the pruning tree: a condition on one column."""
    node: Node = {"op": op, "column": list(column.physical_path), "type": column.type_name}
    if partition:
        node["partition"] = True
    return {**node, **fields}


def compare(column: LeafColumn, op: str, value: Value, *, partition: bool) -> Node:
    """Return the pruning tree of `column op value`; `unknown` if engines could disagree.

    >>> day = LeafColumn(("d",), ("d",), "date")
    >>> compare(day, "<", Value("string", "2024-05-01"), partition=False)["value"]
    '2024-05-01'
    """
    if value.kind == "null":
        return FALSE
    if not isinstance(column.type, str) or not has_byte_order(column):
        return UNKNOWN
    point = _grid_point(column.type, value)
    if point is not None:
        return _compare_on_grid(column, op, point, partition=partition)
    if partition and column.type in ("float", "double"):
        number = _float(value)
        if number is not None and not math.isfinite(number):
            return _compare_beyond(column, op, number)
    text = _text(column.type, value)
    if text is None:
        return UNKNOWN
    return leaf(column, op, partition=partition, value=text)


def _compare_beyond(column: LeafColumn, op: str, number: float) -> Node:
    """Compare a partition column with infinity or NaN. NaN is above infinity and equals itself."""
    if not math.isnan(number):
        return leaf(column, op, partition=True, value=repr(number))
    if op == ">":
        return FALSE
    if op == "<=":
        return leaf(column, "is_not_null", partition=True)
    return leaf(column, "<=" if op in ("<", "<>") else ">", partition=True, value="inf")


def _compare_on_grid(column: LeafColumn, op: str, point: Fraction, *, partition: bool) -> Node:
    """Compare with the literal `point`, rounded to the grid if necessary.

    If the literal is outside the range of the type, the result is the same for all values.
    """
    assert isinstance(column.type, str)
    least, most = _range(column.type)
    on_grid = point.denominator == 1 and least <= point <= most
    everything = leaf(column, "is_not_null", partition=partition)
    if op == "=" and not on_grid:
        return FALSE
    if op == "<>" and not on_grid:
        return everything
    exact = point.denominator == 1
    edge, operator = int(point) if exact else 0, op
    if not exact:
        below = op in ("<", "<=")
        edge, operator = (math.floor(point), "<=") if below else (math.ceil(point), ">=")
    if operator in ("<", "<="):
        if edge > most or (edge == most and operator == "<="):
            return everything
        if edge < least or (edge == least and operator == "<"):
            return FALSE
    elif operator in (">", ">="):
        if edge < least or (edge == least and operator == ">="):
            return everything
        if edge > most or (edge == most and operator == ">"):
            return FALSE
    text = _grid_text(column.type, edge)
    return UNKNOWN if text is None else leaf(column, operator, partition=partition, value=text)


def _grid_point(data_type: str, value: Value) -> Fraction | None:
    if data_type in _BITS:
        return _integer_point(value)
    decimal = decimal_type(data_type)
    if decimal is not None:
        return _decimal_point(decimal, value)
    if data_type == "date":
        return _date_point(value)
    if data_type in ("timestamp", "timestamp_ntz"):
        return _timestamp_point(data_type, value)
    if data_type in NANOSECOND_TYPES:
        return _nanosecond_point(data_type, value)
    return None


def _integer_point(value: Value) -> Fraction | None:
    if value.kind == "number":
        # Engines compare a long as decimal(20,0), and round if more than 38 digits are needed.
        return Fraction(value.value) if _fits(20, 0, value.value) else None
    if value.kind == "double":
        # Engines compare doubles here. A double cannot represent all integers beyond 2^53.
        return Fraction(value.value) if abs(value.value) < _EXACT_IN_DOUBLE else None
    if value.kind == "string" and re.fullmatch(r"[+-]?\d{1,30}", value.value):
        return Fraction(int(value.value))
    return None


def _decimal_point(decimal: tuple[int, int], value: Value) -> Fraction | None:
    precision, scale = decimal
    if value.kind == "number":
        fits = _fits(precision, scale, value.value)
        return Fraction(value.value) * 10**scale if fits else None
    if value.kind == "string" and _NUMBER.fullmatch(value.value):
        # An engine may convert to double. Use only values that a double represents exactly.
        point = Fraction(value.value) * 10**scale
        return point if point.denominator == 1 and abs(point) < 10**15 else None
    return None


def _date_point(value: Value) -> Fraction | None:
    if value.kind == "date":
        return Fraction(value.value.toordinal())
    if value.kind in ("timestamp", "timestamp_ntz"):
        midnight = datetime(value.value.year, value.value.month, value.value.day)
        part = (value.value - midnight) // timedelta(microseconds=1)
        return midnight.toordinal() + Fraction(part, 86_400_000_000)
    parsed = _parse_date(value.value) if value.kind == "string" else None
    return Fraction(parsed.toordinal()) if parsed else None


def _timestamp_point(data_type: str, value: Value) -> Fraction | None:
    # For a timestamp_ntz, some engines ignore a time zone in the string and others convert it.
    nanoseconds = _nanoseconds(value, zone_allowed=data_type == "timestamp")
    if nanoseconds is None or nanoseconds % 1000:
        return None  # engines truncate or round to microseconds
    return Fraction(nanoseconds // 1000)


def _nanosecond_point(data_type: str, value: Value) -> Fraction | None:
    nanoseconds = _nanoseconds(value, zone_allowed=data_type == "timestamp_nanos")
    return None if nanoseconds is None else Fraction(nanoseconds)


def _nanoseconds(value: Value, *, zone_allowed: bool) -> int | None:
    """Convert a timestamp or date, also as a string, to nanoseconds since 1970."""
    if value.kind == "nanoseconds":
        return int(value.value)
    if value.kind in ("timestamp", "timestamp_ntz"):
        timestamp, rest = value.value, 0
    elif value.kind == "date":
        timestamp, rest = datetime(value.value.year, value.value.month, value.value.day), 0
    else:
        parsed = None
        if value.kind == "string":
            parsed = _parse_timestamp(value.value, zone_allowed=zone_allowed)
        if parsed is None:
            return None
        timestamp, rest = parsed
    microseconds: int = (timestamp - _EPOCH) // timedelta(microseconds=1)
    return microseconds * 1000 + rest


def _text(data_type: str, value: Value) -> str | None:
    if data_type == "string":
        return str(value.value) if value.kind == "string" else None
    if data_type == "boolean":
        if value.kind == "boolean":
            return "true" if value.value else "false"
        folded = value.value.strip().lower() if value.kind == "string" else ""
        return folded if folded in ("true", "false") else None
    if data_type in ("float", "double"):
        number = _float(value)
        # Do not compare with NaN and infinity: the statistics may not include such values.
        return repr(number) if number is not None and math.isfinite(number) else None
    return None


def _float(value: Value) -> float | None:
    if _is_numeric(value):
        return float(value.value)
    readable = value.kind == "string" and (
        _NUMBER.fullmatch(value.value) or _BEYOND.fullmatch(value.value)
    )
    return float(value.value) if readable else None


def _range(data_type: str) -> tuple[float, float]:
    if data_type in _BITS:
        return -(2 ** _BITS[data_type]), 2 ** _BITS[data_type] - 1
    decimal = decimal_type(data_type)
    if decimal is not None:
        return 1 - 10 ** decimal[0], 10 ** decimal[0] - 1
    if data_type in NANOSECOND_TYPES:
        return -(2**63), 2**63 - 1
    return -math.inf, math.inf


def _grid_text(data_type: str, point: int) -> str | None:
    decimal = decimal_type(data_type)
    if decimal is not None:
        return format(_WIDE.scaleb(Decimal(point), -decimal[1]), "f")
    if data_type == "date":
        return date.fromordinal(point).isoformat() if point <= date.max.toordinal() else None
    if data_type in ("timestamp", "timestamp_ntz"):
        timestamp = _EPOCH + timedelta(microseconds=point)
        zone = "Z" if data_type == "timestamp" else ""
        return timestamp.isoformat(timespec="microseconds") + zone
    if data_type in NANOSECOND_TYPES:
        timestamp = _EPOCH + timedelta(microseconds=point // 1000)
        zone = "Z" if data_type == "timestamp_nanos" else ""
        return f"{timestamp.isoformat(timespec='microseconds')}{point % 1000:03d}{zone}"
    return str(point)


def _fits(precision: int, scale: int, *numbers: Decimal) -> bool:
    """Return whether a decimal type with 38 digits can represent the column and these numbers."""
    exponents = [number.as_tuple().exponent for number in numbers]
    scales = [-exponent for exponent in exponents if isinstance(exponent, int)]
    digits = [len(str(abs(int(number)))) for number in numbers]
    return max(precision - scale, *digits, 0) + max(scale, *scales, 0) <= 38


def has_byte_order(column: LeafColumn) -> bool:
    """Return whether values of the column compare by their bytes, without padding or collation."""
    # For a char(n) column, Spark pads both sides of a comparison, so that 'ab' equals 'ab '.
    padded = str(column.metadata.get(_CHAR_VARCHAR, "")).startswith("char(")
    return not padded and COLLATIONS not in column.metadata


def _is_numeric(value: Value) -> bool:
    return value.kind in ("number", "double")


def _number(text: str) -> Value | None:
    try:
        if "e" in text.lower():
            return Value("double", float(text))
        return Value("number", Decimal(text))
    except (ValueError, InvalidOperation):
        return None


def _cast(value: Value, target: exp.DataType) -> Value | None:
    if value.kind == "null":
        return value
    kinds = exp.DataType.Type
    bits = {kinds.TINYINT: 7, kinds.SMALLINT: 15, kinds.INT: 31, kinds.BIGINT: 63}
    if target.this in bits:
        return _cast_integer(value, bits[target.this])
    if target.this == kinds.DECIMAL:
        return _cast_decimal(value, [int(p.this.this) for p in target.expressions] or [10, 0])
    if target.this in (kinds.DOUBLE, kinds.FLOAT):
        number = _float(value)
        if number is None:
            return None
        return Value("double", _to_single(number) if target.this == kinds.FLOAT else number)
    if target.this in (kinds.TEXT, kinds.VARCHAR):
        return value if value.kind == "string" and not target.expressions else None
    if target.this == kinds.BOOLEAN:
        text = _text("boolean", value)
        return Value("boolean", text == "true") if text else None
    return _cast_time(value, target)


def _cast_integer(value: Value, bits: int) -> Value | None:
    number = _exact(value)
    if number is None or (value.kind == "string" and number != int(number)):
        return None
    whole = int(number)
    return Value("number", Decimal(whole)) if -(2**bits) <= whole < 2**bits else None


def _cast_decimal(value: Value, parameters: list[int]) -> Value | None:
    number = _exact(value)
    if number is None:
        return None
    precision, scale = (*parameters, 0)[:2]
    rounded = _WIDE.create_decimal(number).quantize(
        Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP, context=_WIDE
    )
    return Value("number", rounded) if abs(rounded) < 10 ** (precision - scale) else None


def _cast_time(value: Value, target: exp.DataType) -> Value | None:
    kinds = exp.DataType.Type
    if target.this == kinds.DATE:
        if value.kind == "date":
            return value
        if value.kind in ("timestamp", "timestamp_ntz"):
            return Value("date", value.value.date())
        day = _parse_date(value.value) if value.kind == "string" else None
        return Value("date", day) if day else None
    if target.this in (kinds.TIMESTAMP, kinds.TIMESTAMPTZ, kinds.TIMESTAMPLTZ, kinds.TIMESTAMPNTZ):
        kind: Kind = "timestamp_ntz" if target.this == kinds.TIMESTAMPNTZ else "timestamp"
        found = _nanoseconds(value, zone_allowed=kind == "timestamp")
        if found is None or found % 1000:
            return None if found is None else Value("nanoseconds", found)
        return Value(kind, _EPOCH + timedelta(microseconds=found // 1000))
    if target.this == kinds.TIMESTAMP_NS:
        found = _nanoseconds(value, zone_allowed=True)
        return None if found is None else Value("nanoseconds", found)
    return None


def _exact(value: Value) -> Decimal | None:
    if _is_numeric(value):
        return Decimal(value.value) if math.isfinite(value.value) else None
    if value.kind == "string" and _NUMBER.fullmatch(value.value):
        return Decimal(value.value)
    return None


def _to_single(number: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.inf


def _parse_date(text: str) -> date | None:
    match = _DATE.fullmatch(text.strip())
    try:
        return date(*map(int, match.groups())) if match else None
    except ValueError:
        return None


def _parse_timestamp(text: str, *, zone_allowed: bool) -> tuple[datetime, int] | None:
    """Return a naive datetime in UTC, and the nanoseconds that a datetime cannot represent.

    Return None if an engine may not accept the string as a timestamp.
    """
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None or (match[8] and not zone_allowed):
        return None
    year, month, day, hour, minute, second = (int(match[i] or 0) for i in range(1, 7))
    micros, rest = divmod(int((match[7] or "").ljust(9, "0")), 1000)
    try:
        timestamp = datetime(year, month, day, hour, minute, second, micros)
        if match[8] in (None, "Z", "UTC"):
            return timestamp, rest
        zone = datetime.strptime(match[8], "%z").tzinfo
        return timestamp.replace(tzinfo=zone).astimezone(UTC).replace(tzinfo=None), rest
    except (ValueError, OverflowError):
        return None
