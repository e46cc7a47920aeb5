"""Moments in Delta's unit, milliseconds since the epoch."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def now_ms() -> int:
    """Return milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def to_ms(moment: datetime) -> int:
    """Return the millisecond a moment lies in; without a time zone it is UTC.

    >>> to_ms(datetime(2024, 1, 1, 0, 0, 0, 1999))
    1704067200001
    """
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND


def from_ms(milliseconds: int) -> datetime:
    """Return the moment in UTC; one that no calendar has becomes the first or the last it has.

    >>> from_ms(1704067200001).isoformat()
    '2024-01-01T00:00:00.001000+00:00'
    >>> from_ms(2**63 - 1).year
    9999
    """
    try:
        return _EPOCH + milliseconds * _MILLISECOND
    except OverflowError:
        return (datetime.max if milliseconds > 0 else datetime.min).replace(tzinfo=UTC)
