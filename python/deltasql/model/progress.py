"""Report the progress of long operations, phase by phase."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")
_OFTEN_S = 0.05
_OLD_NAMES = {
    "commits": "done",
    "loaded": "done",
    "total_commits": "total",
    "total_files": "total",
    "log_bytes": "bytes",
    "source": "table",
    "location": "table",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one phase of an operation.

    >>> progress = Progress("sales", "comparing", "commits", done=50, total=200, seconds=2.0)
    >>> progress.rate, progress.fraction, progress.eta_s
    (25.0, 0.25, 6.0)
    """

    table: str
    """The table, or the location of a table that has no name yet. Empty for several tables."""
    phase: str
    unit: str
    """What `done` and `total` count, such as "commits"."""
    done: int = 0
    total: int = 0
    """The number of items of the phase; 0 if unknown. An export may estimate it too high."""
    seconds: float = 0.0
    """Seconds since the phase began."""
    files: int = 0
    """Data files that an import has loaded, or an export has copied."""
    bytes: int = 0
    """Bytes of the log that an import has read, or of the data files that an export has copied."""

    @property
    def rate(self) -> float:
        """Items per second."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def files_per_second(self) -> float:
        """Data files per second, in an import or export."""
        return self.files / self.seconds if self.seconds > 0 else 0.0

    @property
    def fraction(self) -> float:
        """The completed part of the phase, from 0 to 1; 0 if the total is unknown."""
        return min(1.0, self.done / self.total) if self.total else 0.0

    @property
    def eta_s(self) -> float | None:
        """The estimated seconds until the phase ends; None before the first item is done."""
        if not self.done or self.total < self.done:
            return None
        return self.seconds / self.done * (self.total - self.done)

    if not TYPE_CHECKING:  # mypy would accept every name

        def __getattr__(self, name: str) -> Any:
            """Return the field that replaces a deprecated name."""
            if name not in _OLD_NAMES:
                raise AttributeError(f"'Progress' object has no attribute {name!r}")
            message = f"Progress.{name} is deprecated; use {_OLD_NAMES[name]} instead"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return getattr(self, _OLD_NAMES[name])


OnProgress = Callable[[Progress], None]


@dataclass(slots=True)
class Meter:
    """Counts the items of an operation, and calls `on_progress` with the progress."""

    table: str = ""
    on_progress: OnProgress | None = None
    _progress: Progress = field(default_factory=lambda: Progress("", "", ""))
    _began_s: float = 0.0
    _reported_s: float = 0.0

    def __post_init__(self) -> None:
        if self.on_progress is not None:
            self.on_progress = _accept_progress(self.on_progress)

    def begin(self, phase: str, unit: str, total: int) -> None:
        """Start a phase with `total` items."""
        self._began_s = time.monotonic()
        self._progress = Progress(self.table, phase, unit, total=total)
        self._call()

    def step(self, done: int = 1) -> None:
        """Count items as done. Report at most 20 steps per second, and always the last step."""
        if self.on_progress is None:
            return
        now, before = time.monotonic(), self._progress
        count = before.done + done
        self._progress = replace(before, done=count, seconds=now - self._began_s)
        if now - self._reported_s >= _OFTEN_S or 0 < before.total <= count:
            self._call()

    def report(
        self,
        phase: str,
        unit: str,
        done: int,
        total: int,
        *,
        files: int = 0,
        size_bytes: int = 0,
    ) -> None:
        """Report how many items of a phase are done; the first report starts the phase."""
        now = time.monotonic()
        if phase != self._progress.phase:
            self._began_s = now
        seconds = now - self._began_s
        self._progress = Progress(
            self.table, phase, unit, done, total, seconds, files=files, bytes=size_bytes
        )
        self._call()

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
            self._call()

    def _call(self) -> None:
        self._reported_s = time.monotonic()
        if self.on_progress is not None:
            self.on_progress(self._progress)


def _accept_progress(on_progress: Callable[..., None]) -> OnProgress:
    """Return a callback that takes a `Progress`, even if the given one takes two counts."""
    try:
        parameters = inspect.signature(on_progress).parameters.values()
    except ValueError:  # some built-in functions have no signature
        return on_progress
    required = [
        each
        for each in parameters
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) != 2:
        return on_progress
    message = "on_progress with two arguments is deprecated; it is called with a Progress instead"
    warnings.warn(message, DeprecationWarning, stacklevel=4)
    return lambda progress: on_progress(progress.done, progress.total)
