"""The wall clock in Delta's unit."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000
