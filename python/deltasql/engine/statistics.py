"""Delta statistics of a data file: bounds that hold for every row, and counts of nulls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_STRING_PREFIX = 32  # characters of a string that statistics keep
_LAST_CHARACTER = "\U0010ffff"


def statistics_json(table: pa.Table) -> str:
    """Return the statistics of a file with these rows, as Delta writes them.

    >>> statistics_json(pa.table({"id": [1, 3, None]}))
    '{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":3},"nullCount":{"id":1}}'
    """
    low, high, nulls = _of_columns(zip(table.column_names, table.columns, strict=True))
    values = {"minValues": low, "maxValues": high, "nullCount": nulls}
    return _encode({"numRecords": table.num_rows, **values})


def _of_columns(columns: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for name, column in columns:
        if pa.types.is_struct(column.type):
            names = [member.name for member in column.type]
            # Flattened, a member is null where its struct is: there, a reader sees null too.
            parts = _of_columns(zip(names, column.flatten(), strict=True))
            for whole, part in zip((low, high, nulls), parts, strict=True):
                if part:
                    whole[name] = part
            continue
        nulls[name] = column.null_count
        for whole, bound in zip((low, high), _bounds(column), strict=True):
            if bound is not None:
                whole[name] = bound
    return low, high, nulls


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    if not _has_order(column.type) or column.null_count == len(column):
        return None, None
    if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
        return None, None  # JSON has no infinity, and engines order NaN differently
    found = pc.min_max(column)
    return _stat(found["min"].as_py(), upper=False), _stat(found["max"].as_py(), upper=True)


def _has_order(kind: pa.DataType) -> bool:
    tests = ("integer", "floating", "decimal", "string", "date", "timestamp")
    return any(getattr(pa.types, f"is_{test}")(kind) for test in tests)


def _stat(value: Any, *, upper: bool) -> Any:
    match value:
        case datetime():
            zone = "Z" if value.tzinfo else ""
            return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone
        case date():
            return value.isoformat()
        case str() if len(value) > _STRING_PREFIX:
            prefix = value[:_STRING_PREFIX]
            if not upper:
                return prefix
            # Nothing sorts after this character, so the cut value stays an upper bound, unless
            # the value goes on with just that character.
            is_last = value[_STRING_PREFIX] == _LAST_CHARACTER
            return None if is_last else prefix + _LAST_CHARACTER
        case _:
            return value


def _encode(value: Any) -> str:
    """Encode as JSON with all digits of a decimal: a float would round a bound past its row."""
    if isinstance(value, Mapping):
        members = (f"{_encode(name)}:{_encode(each)}" for name, each in value.items())
        return f"{{{','.join(members)}}}"
    if isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
