"""Parse JSON from other programs."""

from __future__ import annotations

import json
from typing import Any


def load_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError if it is not valid or nested too deep.

    >>> load_json("[" * 1_000_000)
    Traceback (most recent call last):
    ValueError: nested too deep
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
