"""Statistics that a checkpoint keeps only as columns, back as the JSON text of Delta."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator


def stats_texts(column: pa.StructArray) -> pa.Array:
    """Write each row of `stats_parsed` as JSON; bounds that are null are left out.

    >>> row = {"numRecords": 2, "minValues": {"id": 1, "day": date(2024, 1, 1), "x": None}}
    >>> stats_texts(pa.array([row, None])).to_pylist()
    ['{"numRecords":2,"minValues":{"id":1,"day":"2024-01-01"}}', None]
    """
    return pa.array(list(_texts(column)), pa.string())


def _texts(column: pa.StructArray) -> Iterator[str | None]:
    for row in column.to_pylist():
        yield (
            None
            if row is None
            else json.dumps(_known(row), separators=(",", ":"), ensure_ascii=False, default=_text)
        )


def _known(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: _known(each)
        for name, each in value.items()
        if each is not None and not isinstance(each, bytes) and not _is_nan(each)
    }


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        text = value.isoformat(timespec="milliseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value)
