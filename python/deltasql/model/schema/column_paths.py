"""Parse column paths such as `a.b`; backquotes enclose names with dots or commas."""

from __future__ import annotations

import re


def split_column_list(text: str) -> list[str]:
    """Split a comma-separated list of column paths; ignore commas in backquotes.

    >>> split_column_list("a, b.c, `d,e`")
    ['a', 'b.c', '`d,e`']
    """
    return [part for part in (p.strip() for p in _split(text, ",")) if part]


def split_column_path(text: str) -> tuple[str, ...]:
    """Split a column path at its dots; ignore dots in backquotes.

    >>> split_column_path("a.`b.c`")
    ('a', 'b.c')
    """
    return tuple(_unquoted(part.strip()) for part in _split(text, "."))


def _split(text: str, separator: str) -> list[str]:
    pattern = rf"(?:`(?:[^`]|``)*`|[^`{re.escape(separator)}])+"
    return re.findall(pattern, text)


def _unquoted(name: str) -> str:
    quoted = len(name) >= 2 and name[0] == name[-1] == "`"
    return name[1:-1].replace("``", "`") if quoted else name
