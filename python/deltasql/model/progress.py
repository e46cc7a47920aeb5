"""Report the progress of long operations, phase by phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

T = TypeVar("T")
_OFTEN_S = 0.05


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one phase of an operation."""

    table: str
    phase: str
    unit: str
    done: int = 0
    total: int = 0
    """0 if it is unknown."""
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Items per second.

        >>> Progress("sales", "comparing", "commits", done=50, total=200, seconds=2.0).rate
        25.0
        """
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta_s(self) -> float | None:
        """The estimated seconds until the phase ends; None before the first item is done.

        >>> Progress("sales", "comparing", "commits", done=50, total=200, seconds=2.0).eta_s
        6.0
        """
        if not self.done or self.total < self.done:
            return None
        return self.seconds / self.done * (self.total - self.done)


OnProgress = Callable[[Progress], None]


@dataclass(slots=True)
class Meter:
    """Counts items and calls `on_progress` with the progress, at most 20 times a second."""

    table: str = ""
    on_progress: OnProgress | None = None
    _progress: Progress = field(default_factory=lambda: Progress("", "", ""))
    _began_s: float = 0.0
    _reported_s: float = 0.0

    def begin(self, phase: str, unit: str, total: int) -> None:
        """Start a phase with `total` items."""
        self._began_s = time.monotonic()
        self._progress = Progress(self.table, phase, unit, total=total)
        self._report()

    def step(self, done: int = 1) -> None:
        """Count items as done. The last item of a phase is always reported."""
        if self.on_progress is None:
            return
        now, before = time.monotonic(), self._progress
        count = before.done + done
        self._progress = replace(before, done=count, seconds=now - self._began_s)
        if now - self._reported_s >= _OFTEN_S or 0 < before.total <= count:
            self._report()

    def over(self, phase: str, unit: str, items: Iterable[T], total: int) -> Iterator[T]:
        """Yield the items of a phase. An item counts as done when the next item is requested.

        >>> seen: list[Progress] = []
        >>> meter = Meter("sales", seen.append)
        >>> [*meter.over("comparing", "commits", "ab", 2)], seen[-1].done
        (['a', 'b'], 2)
        """
        self.begin(phase, unit, total)
        for item in items:
            yield item
            self.step()
        if not total:  # report the end of a phase with an unknown total
            self._report()

    def _report(self) -> None:
        self._reported_s = time.monotonic()
        if self.on_progress is not None:
            self.on_progress(self._progress)
