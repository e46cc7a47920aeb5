"""A clock that can be set wrong."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


class Clock:
    """Changes the time of day that this process sees."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0.0
        right, right_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: right() + self.ahead_s)
        monkeypatch.setattr(time, "time_ns", lambda: right_ns() + int(self.ahead_s * 1e9))
