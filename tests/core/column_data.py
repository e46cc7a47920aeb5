"""Random column data of every Delta type, with the statistics of different writers."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

Value = Any
EPOCH = datetime(1970, 1, 1)
PREFIX_LENGTH = 4


@dataclass(frozen=True)
class ColumnType:
    """One Delta type: its values, their order, and their text forms."""

    name: str
    values: st.SearchStrategy[Value]
    literal: Callable[[Value], str]
    # Each writer converts (min, max) to two JSON texts, or None for a bound that it omits.
    writers: tuple[Callable[[Value, Value], tuple[str | None, str | None]], ...]
    partition: tuple[Callable[[Value], str], ...]
    order: Callable[[Value], Any] = lambda value: value


def both(text: Callable[[Value], str]) -> Callable[[Value, Value], tuple[str, str]]:
    return lambda low, high: (text(low), text(high))


def cut_to_millis(value: datetime) -> datetime:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def iso_utc(value: datetime) -> str:
    return json.dumps(cut_to_millis(value).isoformat(timespec="milliseconds") + "Z")


def iso_india(value: datetime) -> str:
    zone = timezone(timedelta(hours=5, minutes=30))
    local = cut_to_millis(value).replace(tzinfo=UTC).astimezone(zone)
    return json.dumps(local.isoformat(timespec="milliseconds"))


def iso_wall_clock(value: datetime) -> str:
    return json.dumps(cut_to_millis(value).isoformat(timespec="milliseconds"))


def cut_strings(low: str, high: str) -> tuple[str, str | None]:
    """Truncate bounds as Spark does: a prefix as minimum, a prefix and U+10FFFF as maximum."""
    top: str | None = high
    if len(high) > PREFIX_LENGTH:
        highest = "\U0010ffff"
        top = None if high[PREFIX_LENGTH] == highest else high[:PREFIX_LENGTH] + highest
    return json.dumps(low[:PREFIX_LENGTH]), None if top is None else json.dumps(top)


def double_text(value: float) -> str:
    if math.isinf(value):
        return json.dumps("Infinity" if value > 0 else "-Infinity")
    return json.dumps("NaN") if math.isnan(value) else repr(value)


def float_text(value: float) -> str:
    """Return the shortest text that parses to the same 32-bit float."""
    if math.isinf(value) or math.isnan(value):
        return double_text(value)
    wanted = struct.pack("f", value)
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        try:
            if struct.pack("f", float(text)) == wanted:
                return text.replace("e+", "e")
        except OverflowError:
            continue
    return repr(value)


def nan_last(value: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(value) else (False, value)


def decimal_as_double_text(value: Decimal) -> str:
    """Format a decimal as deltalake 1.6 does: a double, or a long if the double is whole."""
    double = float(value)
    if not double.is_integer():
        return repr(double)
    return str(max(-(2**63), min(2**63 - 1, int(double))))


def decimals(precision: int, scale: int) -> ColumnType:
    largest = 10**precision - 1
    return ColumnType(
        f"decimal({precision},{scale})",
        st.one_of(st.integers(-largest, largest), st.integers(-20, 20)).map(
            lambda unscaled: (
                Decimal(unscaled).scaleb(-scale, None)
                if precision <= 28
                else Decimal(f"{unscaled}e-{scale}")
            )
        ),
        lambda value: f"{value:f}",
        (
            both(lambda value: f"{value:f}"),
            both(lambda value: repr(float(value))),
            both(decimal_as_double_text),
            both(lambda value: json.dumps(f"{value:f}")),
        ),
        (lambda value: f"{value:f}",),
    )


def integers(name: str, bits: int) -> ColumnType:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    values = st.one_of(st.integers(-5, 5), st.integers(low, high))
    return ColumnType(name, values, str, (both(str),), (str,))


TYPES: tuple[ColumnType, ...] = (
    integers("byte", 8),
    integers("short", 16),
    integers("integer", 32),
    integers("long", 64),
    decimals(9, 2),
    decimals(18, 0),
    decimals(38, 10),
    decimals(38, 38),
    ColumnType(
        "double",
        st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1.5, -1.5, math.nan])),
        lambda value: "NaN" if math.isnan(value) else repr(value),
        (both(double_text),),
        (lambda value: "NaN" if math.isnan(value) else repr(value),),
        nan_last,
    ),
    # A column widened from float to double keeps the statistics of its floats.
    ColumnType(
        "double",
        st.floats(width=32),
        lambda value: "NaN" if math.isnan(value) else repr(value),
        (both(float_text),),
        (lambda value: "NaN" if math.isnan(value) else repr(value),),
        nan_last,
    ),
    ColumnType(
        "float",
        st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, 0.10000000149011612])),
        lambda value: "NaN" if math.isnan(value) else repr(value),
        (both(double_text), both(float_text)),
        (lambda value: json.loads(float_text(value)).__str__(),),
        nan_last,
    ),
    ColumnType(
        "date",
        st.dates() | st.dates(date(2020, 1, 1), date(2020, 1, 9)),
        date.isoformat,
        (both(lambda value: json.dumps(value.isoformat())),),
        (date.isoformat,),
    ),
    ColumnType(
        "timestamp",
        st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
        | st.integers(-3000, 3000).map(lambda micros: EPOCH + timedelta(microseconds=micros)),
        lambda value: value.isoformat(timespec="microseconds") + "Z",
        (both(iso_utc), both(iso_india)),
        (
            lambda value: value.isoformat(timespec="microseconds") + "Z",
            lambda value: value.isoformat(" ", timespec="microseconds"),
        ),
    ),
    ColumnType(
        "timestamp_ntz",
        st.datetimes()
        | st.integers(-3000, 3000).map(lambda micros: EPOCH + timedelta(microseconds=micros)),
        lambda value: value.isoformat(timespec="microseconds"),
        (both(iso_wall_clock), both(iso_utc)),
        (lambda value: value.isoformat(" ", timespec="microseconds"),),
    ),
    ColumnType(
        "string",
        st.text(st.characters(codec="utf-8"), max_size=7) | st.text("ab", max_size=7),
        str,
        (both(json.dumps), cut_strings),
        (str,),
        str.encode,
    ),
    ColumnType(
        "boolean",
        st.booleans(),
        lambda value: "true" if value else "false",
        (both(lambda value: "true" if value else "false"),),
        (lambda value: "true" if value else "false",),
    ),
)


@st.composite
def stats_of(draw: st.DrawFn, column: ColumnType, rows: Sequence[Value]) -> str | None:
    """Return the statistics of one file; a writer may omit any part of them."""
    present = [value for value in rows if value is not None]
    if column.name in ("float", "double") and draw(st.booleans()):
        # Parquet statistics do not include NaN.
        present = [value for value in present if not math.isnan(value)]
    parts: dict[str, str] = {}
    if draw(st.integers(0, 4)):
        parts["numRecords"] = str(len(rows))
    if present and draw(st.integers(0, 9)):
        writer = draw(st.sampled_from(column.writers))
        low, high = writer(min(present, key=column.order), max(present, key=column.order))
        if low is not None:
            parts["minValues"] = f'{{"other":1,"s":{{"c":{low}}}}}'
        if high is not None:
            parts["maxValues"] = f'{{"s":{{"x":null,"c":{high}}}}}'
    if draw(st.integers(0, 4)):
        nulls = sum(value is None for value in rows)
        parts["nullCount"] = f'{{"s":{{"c":{nulls}}}}}'
    if not draw(st.integers(0, 19)):
        return None
    return "{" + ",".join(f'"{name}":{text}' for name, text in parts.items()) + "}"
