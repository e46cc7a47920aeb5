"""Partition values: convert the strings in the log to typed Python values.

A timestamp with nanoseconds becomes an int, the nanoseconds since 1970, because Python's datetime
has only microseconds.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TxnLogProtocolError
from deltasql.model.schema.schema import DataType, decimal_type, type_name

if TYPE_CHECKING:
    from collections.abc import Callable

_FRACTION = re.compile(r"\.(\d+)")
_BOOLEANS = {"true": True, "false": False}


def parse_partition_value(text: str | None, data_type: DataType) -> Any:
    """Parse a partition value. For every type, an empty string is null.

    A `timestamp` without a time zone is in UTC, as in other readers.

    >>> parse_partition_value("2024-05-01", "date"), parse_partition_value("", "long")
    (datetime.date(2024, 5, 1), None)
    """
    if text is None or text == "":
        return None
    parse = Decimal if decimal_type(data_type) else _PARSERS.get(type_name(data_type))
    if parse is None:
        raise TxnLogProtocolError(
            f"a column of type {type_name(data_type)} cannot partition a table",
            help="Partition by columns with primitive types.",
        )
    try:
        return parse(text)
    except (ValueError, KeyError, InvalidOperation) as error:
        raise TxnLogProtocolError(
            f"{text!r} is not a partition value of type {type_name(data_type)}",
            help="The log has a wrong value for this file. Rewrite the file.",
        ) from error


def _timestamp(text: str) -> datetime:
    parsed = datetime.fromisoformat(text)
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def _timestamp_ntz(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=None)


def nanoseconds(text: str, *, has_zone: bool) -> int:
    """Convert a timestamp string to nanoseconds since 1970.

    >>> nanoseconds("1970-01-01T01:00:00.000000001+01:00", has_zone=True)
    1
    """
    found = _FRACTION.search(text)
    digits = found[1] if found else ""
    if len(digits) > 9:
        raise ValueError(f"{text!r} is finer than a nanosecond")
    whole = _FRACTION.sub("", text)
    timestamp = _timestamp(whole).replace(tzinfo=None) if has_zone else _timestamp_ntz(whole)
    seconds = (timestamp - datetime(1970, 1, 1)) // timedelta(seconds=1)
    return seconds * 1_000_000_000 + int(digits.ljust(9, "0"))


_PARSERS: dict[str, Callable[[str], Any]] = {
    "byte": int,
    "short": int,
    "integer": int,
    "long": int,
    "float": float,
    "double": float,
    "boolean": lambda text: _BOOLEANS[text.lower()],
    "string": str,
    "binary": lambda text: text.encode("utf-8"),
    "date": date.fromisoformat,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
    "timestamp_nanos": partial(nanoseconds, has_zone=True),
    "timestamp_nanos_ntz": partial(nanoseconds, has_zone=False),
}
