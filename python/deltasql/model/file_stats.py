"""Parse the statistics of a file; a writer may have put any text there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def read_stats(text: str | None, parse_float: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """Parse statistics; an empty dict if the text is not a JSON object.

    >>> read_stats('{"numRecords":3}'), read_stats("[1]"), read_stats("{")
    ({'numRecords': 3}, {}, {})
    """
    if not text:
        return {}
    try:
        told = json.loads(text, parse_float=parse_float)
    except (ValueError, RecursionError):  # not JSON, too many digits, or nested too deep
        return {}
    return told if isinstance(told, dict) else {}
