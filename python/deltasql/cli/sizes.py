"""Format sizes, counts and bars as text."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size_text(count: float) -> str:
    """Return a number of bytes as text in a suitable unit.

    >>> size_text(0), size_text(1536), size_text(202_000_400)
    ('0 B', '1.5 KiB', '192.6 MiB')
    """
    value, unit = float(count), 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def count_text(count: int | None) -> str:
    """Return a number with thousands separators; an empty string for None.

    >>> count_text(1234567), count_text(None)
    ('1,234,567', '')
    """
    return "" if count is None else f"{count:,}"


def bar_text(count: int, most: int, width: int = 30) -> str:
    """Return a bar whose length is proportional to `count`; at least one character if not 0.

    >>> bar_text(1, 1000), bar_text(500, 1000, 10), bar_text(0, 1000)
    ('█', '█████', '')
    """
    if not count:
        return ""
    return "█" * max(1, round(width * count / most))
