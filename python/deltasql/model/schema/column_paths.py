"""Columns as texts name them: `a.b`, with backquotes around what has dots or commas."""

from __future__ import annotations

import re


def split_column_list(text: str) -> list[str]:
    """Split a comma list of column paths; a comma inside backquotes does not split.

    >>> split_column_list("a, b.c, `d,e`")
    ['a', 'b.c', '`d,e`']
    """
    return [part for part in (p.strip() for p in _split(text, ",")) if part]


def split_column_path(text: str) -> tuple[str, ...]:
    """Split a column path at its dots; a dot inside backquotes does not split.

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
