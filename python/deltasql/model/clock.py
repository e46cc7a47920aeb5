"""Time in milliseconds: timestamps since the epoch, as Delta stores them, and durations."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)

LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def now_ms() -> int:
    """Return the current time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def to_ms(timestamp: datetime) -> int:
    """Convert a datetime to milliseconds, rounded down. A datetime without a zone is in UTC.

    >>> to_ms(datetime(2024, 1, 1, 0, 0, 0, 1999))
    1704067200001
    """
    aware = timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND


def from_ms(milliseconds: int) -> datetime:
    """Convert milliseconds to a datetime in UTC, limited to the range of `datetime`.

    >>> from_ms(1704067200001).isoformat()
    '2024-01-01T00:00:00.001000+00:00'
    >>> from_ms(2**63 - 1).year
    9999
    """
    try:
        return _EPOCH + milliseconds * _MILLISECOND
    except OverflowError:
        return (datetime.max if milliseconds > 0 else datetime.min).replace(tzinfo=UTC)


def parse_rfc3339(text: str) -> datetime:
    """Parse an RFC 3339 timestamp; seconds and a time zone are required.

    Python's `fromisoformat` also accepts other formats, such as the offset `+08`.

    >>> parse_rfc3339("2024-05-01T10:00:00+02:00").isoformat()
    '2024-05-01T10:00:00+02:00'
    >>> parse_rfc3339("2024-05-01T10:00:00+02")
    Traceback (most recent call last):
    ValueError: premature end of input: '2024-05-01T10:00:00+02' is not an RFC 3339 date and time
    """
    if not _RFC_3339.fullmatch(text):
        # Raise the same message as deltalake, which depends on where its parser stops.
        is_short = re.fullmatch(r"[\d\-T: .]*([+-]\d\d)?", text) is not None
        reason = "premature end of input" if is_short else "input contains invalid characters"
        raise ValueError(f"{reason}: {text!r} is not an RFC 3339 date and time")
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise ValueError(f"input is out of range: {error}") from error


class Stopwatch:
    """Measures milliseconds since its creation and since the last lap, for metrics."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()

    def total_ms(self) -> int:
        return int((time.perf_counter() - self._start) * 1000)

    def lap_ms(self) -> int:
        before, self._last = self._last, time.perf_counter()
        return int((self._last - before) * 1000)
