"""Delta statistics of a data file: minimum, maximum and null count of each column."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from deltasql.engine.parquet.file_shape import Indexed

_FEW_ROWS = 64
_STRING_PREFIX = 32  # characters of a string in the statistics
_LAST_CHARACTER = "\U0010ffff"
_EPOCH = datetime(1970, 1, 1)
_DAY_ONE = date(1970, 1, 1)


class Statistics:
    """Collects the statistics of one file.

    >>> found = Statistics({"id": None})
    >>> found.add(pa.table({"id": [1, 3, None]}))
    >>> found.to_json()
    '{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":3},"nullCount":{"id":1}}'
    """

    def __init__(self, indexed: Indexed, text_length: int | None = None) -> None:
        """`text_length` is the length to which strings are truncated."""
        self._indexed = indexed
        self._length = text_length or _STRING_PREFIX
        self._rows = 0
        self._columns: dict[tuple[str, ...], _Column] = {}

    def add(self, rows: pa.Table) -> None:
        """Add rows, whose columns have physical names."""
        self.add_rows(rows.num_rows)
        for name, below in self._indexed.items():
            self._add(rows.column(name), below, (name,))

    def add_rows(self, count: int) -> None:
        """Increase the row count only; `add_column` adds the values of a column."""
        self._rows += count

    def add_column(
        self, path: tuple[str, ...], kind: pa.DataType, nulls: int, bounds: tuple[Any, Any] | None
    ) -> None:
        """Add the null count and the bounds of a column; `bounds` is None if they are unknown.

        Bounds of dates are days since 1970, bounds of timestamps are units of `kind` since 1970.
        """
        column = self._columns.setdefault(path, _Column(kind))
        column.nulls += nulls
        column.widen(bounds)

    def to_json(self, *, tight: bool = False) -> str:
        """Return the statistics as JSON; `tight` sets tightBounds, for exact bounds."""
        low: dict[str, Any] = {}
        high: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for path, column in self._columns.items():
            _put(nulls, path, column.nulls)
            if column.bounds is None or not column.has_bounds:
                continue
            for values, bound, upper in zip((low, high), column.bounds, (False, True), strict=True):
                stat = _stat(bound, column.kind, self._length, upper=upper)
                if stat is not None:
                    _put(values, path, stat)
        found = {"numRecords": self._rows, "minValues": low, "maxValues": high, "nullCount": nulls}
        return _encode({**found, "tightBounds": True} if tight else found)

    def _add(self, column: Any, below: Indexed | None, path: tuple[str, ...]) -> None:
        if below is None:
            known = self._columns.get(path)
            if known is None:
                known = self._columns[path] = _Column(column.type)
            known.add(column)
            return
        # Use `flatten`, because a member must count as null where its struct is null.
        members = dict(zip([f.name for f in column.type], column.flatten(), strict=True))
        for name, deeper in below.items():
            self._add(members[name], deeper, (*path, name))


@dataclass(slots=True)
class _Column:
    kind: pa.DataType
    nulls: int = 0
    bounds: tuple[Any, Any] | None = None
    has_bounds: bool = field(init=False)

    def __post_init__(self) -> None:
        self.has_bounds = _has_order(self.kind)

    def add(self, column: pa.ChunkedArray) -> None:
        nulls, count = column.null_count, len(column)
        self.nulls += nulls
        if not self.has_bounds or nulls == count:
            return
        plain = column
        if pa.types.is_temporal(self.kind):
            # Compare values as numbers, because Python has no dates after the year 9999.
            integer = pa.int32() if pa.types.is_date(self.kind) else pa.int64()
            plain = pa.chunked_array([chunk.view(integer) for chunk in column.chunks], integer)
        if count <= _FEW_ROWS:
            self._add_few([value for value in plain.to_pylist() if value is not None])
            return
        if pa.types.is_floating(self.kind) and not pc.all(pc.is_finite(column)).as_py():
            self.has_bounds = False  # JSON has no infinity, and engines sort NaN differently
            return
        found = pc.min_max(plain).as_py()
        self.widen((found["min"], found["max"]))

    def _add_few(self, values: list[Any]) -> None:
        """Add the bounds of a few values in Python, which is faster than calling Arrow."""
        if isinstance(values[0], float) and not all(map(math.isfinite, values)):
            self.has_bounds = False
            return
        self.widen((min(values), max(values)))

    def widen(self, bounds: tuple[Any, Any] | None) -> None:
        if bounds is None or any(isinstance(b, float) and not math.isfinite(b) for b in bounds):
            self.has_bounds = False
        elif self.bounds is None:
            self.bounds = bounds
        else:
            self.bounds = (min(bounds[0], self.bounds[0]), max(bounds[1], self.bounds[1]))


@lru_cache(maxsize=256)
def _has_order(kind: pa.DataType) -> bool:
    tests = ("integer", "floating", "decimal", "string", "date", "timestamp", "boolean")
    return any(getattr(pa.types, f"is_{test}")(kind) for test in tests)


def _stat(value: Any, kind: pa.DataType, length: int, *, upper: bool) -> Any:
    """Return a bound as a JSON value; None if no JSON value is a valid bound."""
    if isinstance(value, str):
        return _prefix(value, length, upper=upper)
    if isinstance(value, float) and value == 0:
        # Some engines sort -0.0 before 0.0. Choose the sign so that the bound holds for both.
        return math.copysign(0.0, 1 if upper else -1)
    try:
        if pa.types.is_date(kind):
            return (_DAY_ONE + timedelta(days=value)).isoformat()
        if pa.types.is_timestamp(kind):
            unit = 1_000_000 if kind.unit == "ns" else 1_000
            return _timestamp(value, unit, has_zone=kind.tz is not None, upper=upper)
    except OverflowError:
        return None
    return value


def _timestamp(count: int, millisecond: int, *, has_zone: bool, upper: bool) -> str:
    """Format a timestamp bound in milliseconds, as readers expect.

    A minimum is rounded down and a maximum up. `count` counts units since 1970; one millisecond has
    `millisecond` units. The format is deltalake's: whole seconds have no fraction, and timestamps
    without a zone have a space instead of `T`.
    """
    whole = -(-count // millisecond) if upper else count // millisecond
    timestamp = _EPOCH + timedelta(milliseconds=whole)
    timespec = "milliseconds" if count % (1000 * millisecond) else "seconds"
    text = timestamp.isoformat("T" if has_zone else " ", timespec)
    return f"{text}Z" if has_zone else text


def _prefix(value: str, length: int, *, upper: bool) -> str | None:
    if len(value) <= length:
        return value
    prefix = value[:length]
    if not upper:
        return prefix
    # Append the character that sorts last, so that the truncated value is still an upper bound.
    # It is not an upper bound if the rest of the value starts with this character.
    is_last = value[length] == _LAST_CHARACTER
    return None if is_last else prefix + _LAST_CHARACTER


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    here = values
    for name in path[:-1]:
        here = here.setdefault(name, {})
    here[path[-1]] = value


_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _encode(value: Any) -> str:
    """Encode as JSON with all digits of decimals: a bound rounded to a float could be wrong."""
    try:
        return _to_json(value)
    except TypeError:  # the value contains decimals
        if isinstance(value, Decimal):
            return format(value, "f")
    members = (f"{_encode(name)}:{_encode(each)}" for name, each in value.items())
    return f"{{{','.join(members)}}}"
