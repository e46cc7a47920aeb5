"""Format numbers, sizes, times, names, URLs and error texts for pages."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from urllib.parse import quote

from markupsafe import Markup, escape

from deltasql.model.counts import age as age
from deltasql.model.counts import short_number, size_text

_CODE = re.compile(r"`([^`\n]+)`")


def size(bytes_: float | None) -> str:
    """Format a number of bytes.

    >>> size(1536), size(None)
    ('1.5 KiB', '–')
    """
    return "–" if bytes_ is None else size_text(bytes_)


def count(number: float | None) -> str:
    """Format an integer with thousands separators.

    >>> count(1234567), count(None)
    ('1,234,567', '–')
    """
    return "–" if number is None else f"{number:,.0f}"


def brief(number: float | None) -> str:
    """Format a number; a number of 10,000 or more gets three digits and a suffix: k, M, B or T.

    >>> brief(950), brief(12_345), brief(1_000_000)
    ('950', '12.3k', '1M')
    """
    if number is None:
        return "–"
    for limit, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= limit:
            return f"{short_number(number / (1e3 if unit == 'k' else limit))}{unit}"
    return f"{number:,.0f}" if float(number).is_integer() else short_number(number)


def duration(seconds: float | None) -> str:
    """Format a duration.

    >>> duration(0.0042), duration(1.24), duration(75), duration(7300)
    ('4 ms', '1.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{short_number(round(seconds, 1))} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d"


def timestamp(value: datetime | date | None) -> str:
    """Format a timestamp in UTC, to the second.

    >>> timestamp(datetime(2024, 5, 1, 3, 2, 1, tzinfo=UTC))
    '2024-05-01 03:02:01'
    """
    if value is None:
        return "–"
    if not isinstance(value, datetime):
        return value.isoformat()
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def percent(share: float | None) -> str:
    """Format a fraction as a percentage.

    >>> percent(0.4567), percent(0.0004)
    ('46%', '<0.1%')
    """
    if share is None:
        return "–"
    if 0 < share < 0.001:
        return "<0.1%"
    return f"{share:.0%}" if share >= 0.1 or share == 0 else f"{share:.1%}"


def is_number(value: object) -> bool:
    """Return whether a value is shown as a number."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def address(name: str, part: str = "") -> str:
    """Return the URL path of a table's page.

    >>> address("a b?<x>", "files")
    '/tables/a%20b%3F%3Cx%3E/files'
    """
    return f"/tables/{quoted(name)}" + (f"/{part}" if part else "")


def quoted(name: str) -> str:
    """Return a name percent-encoded for a URL path."""
    return quote(name, safe="")


def code_spans(text: str) -> Markup:
    """Return a text as HTML, with `code` between backticks in a code element.

    >>> code_spans("run `ls <folder>`, <b> and one ` more")
    Markup('run <code>ls &lt;folder&gt;</code>, &lt;b&gt; and one ` more')
    """
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))
