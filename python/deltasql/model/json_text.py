"""Parse JSON that other programs wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def load_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError if it is invalid or nested too deeply.

    >>> load_json("[" * 1_000_000)
    Traceback (most recent call last):
    ValueError: nested too deep
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_stats(text: str | None, parse_float: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """Parse the statistics of a file; return an empty dict if they are not a JSON object.

    >>> read_stats('{"numRecords":3}'), read_stats("[1]"), read_stats("{")
    ({'numRecords': 3}, {}, {})
    """
    if not text:
        return {}
    try:
        parsed = json.loads(text, parse_float=parse_float)
    except (ValueError, RecursionError):  # not JSON, too many digits, or nested too deep
        return {}
    return parsed if isinstance(parsed, dict) else {}
