"""The statistics of a file, as its writer wrote them: anything may stand there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def read_stats(text: str | None, parse_float: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """Return what the text tells; nothing where it is not what Delta writes.

    >>> read_stats('{"numRecords":3}'), read_stats("[1]"), read_stats("{")
    ({'numRecords': 3}, {}, {})
    """
    if not text:
        return {}
    try:
        told = json.loads(text, parse_float=parse_float)
    except (ValueError, RecursionError):  # no JSON, too many digits, or too deep
        return {}
    return told if isinstance(told, dict) else {}
