"""Convert the typed statistics of a checkpoint (`stats_parsed`) to the JSON text of Delta."""

from __future__ import annotations

import json
import math
import re
import uuid
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

# INT96 timestamps are read in this unit, the precision of statistics. They are in UTC.
INT96_UNIT = "ms"
# Python's JSON encoder has no decimals: write a marked string, then remove mark and quotes.
_MARK = uuid.uuid4().hex
_DECIMAL = re.compile(rf'"{_MARK}([^"]+)"')


def stats_texts(column: pa.StructArray) -> pa.Array:
    """Return each row of `stats_parsed` as JSON; null bounds are left out.

    >>> row = {"numRecords": 2, "minValues": {"id": 1, "day": date(2024, 1, 1), "x": None}}
    >>> stats_texts(pa.array([row, None])).to_pylist()
    ['{"numRecords":2,"minValues":{"id":1,"day":"2024-01-01"}}', None]
    >>> stats_texts(pa.array([{"maxValues": {"x": Decimal("1234567890123456789.01")}}]))[0].as_py()
    '{"maxValues":{"x":1234567890123456789.01}}'
    """
    return pa.array(list(_texts(column)), pa.string())


def _texts(column: pa.StructArray) -> Iterator[str | None]:
    for row in column.cast(_zoned(column.type)).to_pylist():
        if row is None:
            yield None
            continue
        values = _json_values(row)
        text = json.dumps(values, separators=(",", ":"), ensure_ascii=False, default=_text)
        yield _DECIMAL.sub(r"\1", text)


def _zoned(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(_zoned(member.type)) for member in kind])
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.string()  # Python's datetime has no nanoseconds
    return pa.timestamp(INT96_UNIT, "UTC") if kind == pa.timestamp(INT96_UNIT) else kind


def _json_values(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: _json_values(each)
        for name, each in value.items()
        if each is not None and not isinstance(each, bytes) and not _is_not_finite(each)
    }


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        text = value.isoformat(timespec="milliseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{_MARK}{value:f}"
    return str(value)
