"""A small pool for embedded databases: bounded, health-checked, safe across threads and fork.

PostgreSQL uses psycopg's own pool; this one serves the drivers that have none.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from deltasql.exceptions import StoreBusyError, StoreClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

# Connections a forked child inherited: closing them would disturb the parent, so they are kept.
_inherited: list[object] = []


@dataclass(slots=True)
class _Entry(Generic[T]):
    connection: T
    born: float
    used: float


class Pool(Generic[T]):
    """Lend connections made by `connect`, at most `max_size` at a time."""

    def __init__(
        self,
        connect: Callable[[], T],
        close: Callable[[T], None],
        is_healthy: Callable[[T], bool],
        *,
        max_size: int = 8,
        timeout_s: float = 30.0,
        max_lifetime_s: float = 3600.0,
        check_after_idle_s: float = 30.0,
    ) -> None:
        self._connect, self._close, self._is_healthy = connect, close, is_healthy
        self._max_size, self._timeout_s = max_size, timeout_s
        self._max_lifetime_s, self._check_after_idle_s = max_lifetime_s, check_after_idle_s
        self._reset()
        self._closed = False

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._idle: list[_Entry[T]] = []
        self._lent = 0
        self._free = threading.Condition()

    @contextmanager
    def lend(self) -> Iterator[T]:
        """Lend a healthy connection; one that was broken while lent is not taken back."""
        entry = self._borrow()
        broken = True
        try:
            yield entry.connection
            broken = False
        except Exception:
            broken = not self._is_healthy(entry.connection)
            raise
        finally:
            self._give_back(entry, broken=broken)

    def _borrow(self) -> _Entry[T]:
        if self._pid != os.getpid():
            _inherited.extend(self._idle)
            self._reset()
        deadline = time.monotonic() + self._timeout_s
        with self._free:
            while True:
                if self._closed:
                    raise StoreClosedError(
                        "the store is closed", help="Open it again with deltasql.connect()."
                    )
                entry = self._take_idle()
                if entry is not None or self._lent < self._max_size:
                    self._lent += 1
                    break
                if not self._free.wait(deadline - time.monotonic()):
                    raise StoreBusyError(
                        f"no connection became free within {self._timeout_s} s",
                        help="Raise pool.max_size or pool.timeout_s, or close what is not used.",
                    )
        if entry is not None:
            return entry
        try:
            now = time.monotonic()
            return _Entry(self._connect(), now, now)
        except BaseException:
            with self._free:
                self._lent -= 1
                self._free.notify()
            raise

    def _take_idle(self) -> _Entry[T] | None:
        while self._idle:
            entry = self._idle.pop()
            now = time.monotonic()
            fresh = now - entry.born < self._max_lifetime_s
            if fresh and (
                now - entry.used < self._check_after_idle_s or self._is_healthy(entry.connection)
            ):
                return entry
            self._close(entry.connection)
        return None

    def _give_back(self, entry: _Entry[T], *, broken: bool) -> None:
        if self._pid != os.getpid():
            _inherited.append(entry)
            return
        entry.used = time.monotonic()
        with self._free:
            self._lent -= 1
            keep = not broken and not self._closed
            if keep:
                self._idle.append(entry)
            self._free.notify()
        if not keep:
            self._close(entry.connection)

    def usage(self) -> dict[str, int]:
        """Return how many connections are lent and idle."""
        with self._free:
            return {"lent": self._lent, "idle": len(self._idle), "max": self._max_size}

    def close(self) -> None:
        """Close idle connections now and lent ones when they come back."""
        with self._free:
            self._closed = True
            idle, self._idle = self._idle, []
            self._free.notify_all()
        if self._pid == os.getpid():
            for entry in idle:
                self._close(entry.connection)
