"""Format counts, sizes and times, for messages and for the console."""

from __future__ import annotations

from datetime import UTC, datetime

_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_AGES = (
    (60, 1, "s"),
    (3600, 60, "min"),
    (86_400, 3600, "h"),
    (86_400 * 60, 86_400, "d"),
    (86_400 * 730, 86_400 * 30, "mo"),
)
_YEAR = 86_400 * 365


def many(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless the count is 1.

    >>> many(1, "commit"), many(2_500, "file"), many(0, "checkpoint")
    ('1 commit', '2,500 files', '0 checkpoints')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size_text(bytes_: float) -> str:
    """Return a number of bytes in a suitable binary unit, such as KiB (1024 bytes).

    >>> size_text(0), size_text(1536), size_text(202_000_400)
    ('0 B', '1.5 KiB', '193 MiB')
    """
    amount, unit = float(bytes_), 0
    while abs(amount) >= 1024 and unit < len(_SIZE_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{short_number(amount)} {_SIZE_UNITS[unit]}"


def short_number(number: float) -> str:
    """Return a number with one decimal if it is below 100 and not whole.

    >>> short_number(12.34), short_number(12.0), short_number(123.4)
    ('12.3', '12', '123')
    """
    text = f"{number:.0f}" if abs(number) >= 99.95 else f"{number:.1f}"
    return text.removesuffix(".0")


def age(timestamp: datetime | None, now: datetime | None = None) -> str:
    """Format the time since a timestamp.

    >>> age(datetime(2024, 5, 1, tzinfo=UTC), datetime(2024, 5, 1, 3, tzinfo=UTC))
    '3 h ago'
    """
    if timestamp is None:
        return "never"
    seconds = ((now or datetime.now(UTC)) - timestamp).total_seconds()
    if seconds < 5:
        return "just now"
    for limit, unit, word in _AGES:
        if seconds < limit:
            return f"{int(seconds // unit)} {word} ago"
    return f"{int(seconds // _YEAR)} y ago"
