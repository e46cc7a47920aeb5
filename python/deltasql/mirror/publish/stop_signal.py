"""Conditions that stop publishing between two versions: a request, a deadline, an error."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from deltasql.model.progress import Meter

_VERSIONS_PER_REPORT = 50


class StopSignal(Protocol):
    """The publisher asks a signal before each version whether to stop.

    A `threading.Event` is a stop signal, too.
    """

    def is_set(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class StopAtDeadline:
    """Stops when another signal is set, or at a deadline of the monotonic clock."""

    stop: StopSignal
    deadline_s: float

    def is_set(self) -> bool:
        return self.stop.is_set() or time.monotonic() > self.deadline_s


class ProgressReporter:
    """Reports the progress of publishing a span of versions; stops it if the callback fails.

    The publisher calls `is_set` before each version, so progress can be reported without splitting
    the span. Splitting it would write more checkpoints. The caller raises `error` after the span,
    because an error of the callback is not a failure of the target.
    """

    def __init__(self, meter: Meter, before: int, total: int) -> None:
        self._meter, self._before, self._total = meter, before, total
        self._versions = 0
        self.error: Exception | None = None

    def is_set(self) -> bool:
        if self._versions and self._versions % _VERSIONS_PER_REPORT == 0:
            self.report(self._before + self._versions)
        self._versions += 1
        return self.error is not None

    def report(self, published: int) -> None:
        """Call the callback; store an exception in `error`."""
        try:
            total = max(self._total, published)
            self._meter.report("publishing", "versions", published, total)
        except Exception as error:
            self.error = error
