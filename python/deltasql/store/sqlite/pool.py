"""A connection pool for SQLite, with a size limit and health checks, safe for threads and forks.

PostgreSQL uses psycopg's pool instead, and DuckDB uses cursors of one connection.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from deltasql.exceptions import StoreClosedError
from deltasql.store.dialect import no_free_connection
from deltasql.store.sqlite import fork

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

T = TypeVar("T")

# How long a fork waits for other threads to release their connections.
_FORK_WAIT_S = 5.0
# Connections that were in use when the process forked. Closing them in the child would disturb the
# parent.
_inherited: list[object] = []


@dataclass(slots=True)
class _Entry(Generic[T]):
    connection: T
    holder: int  # the thread that uses it
    opened_at: float


class Pool(Generic[T]):
    """A pool of connections that `connect` opens; at most `max_size` are in use at a time."""

    def __init__(
        self,
        connect: Callable[[], T],
        close: Callable[[T], None],
        is_healthy: Callable[[T], bool],
        *,
        max_size: int = 8,
        timeout_s: float = 30.0,
        max_lifetime_s: float = 3600.0,
        check: bool = True,
    ) -> None:
        self._connect, self._close, self._is_healthy = connect, close, is_healthy
        self._max_size, self._timeout_s = max_size, timeout_s
        self._max_lifetime_s, self._check = max_lifetime_s, check
        self._idle: list[_Entry[T]] = []
        self._holders: list[int] = []
        # This lock is acquired directly and not through the condition, where Ctrl-C could leave it
        # locked.
        self._lock = threading.RLock()
        self._free = threading.Condition(self._lock)
        self._closed = False
        fork.register(self)

    def connection(self) -> AbstractContextManager[T]:
        """Return a working connection for a block; it is closed if the block breaks it."""
        return _ConnectionContext(self)

    def _acquire(self) -> _Entry[T]:
        deadline = time.monotonic() + self._timeout_s
        holder = threading.get_ident()
        expired: list[_Entry[T]] = []
        with self._lock:
            while True:
                if self._closed:
                    raise StoreClosedError
                entry = self._take_idle(expired)
                if entry is not None or len(self._holders) < self._max_size:
                    self._holders.append(holder)
                    break
                if not self._free.wait(deadline - time.monotonic()):
                    raise no_free_connection(self._timeout_s)
        try:
            if entry is not None:
                entry.holder = holder
                return entry
            return _Entry(self._connect(), holder, time.monotonic())
        except BaseException:
            with self._lock:
                self._holders.remove(holder)
                self._free.notify()
            raise
        finally:
            # Close expired connections after the new one is open, so that the process keeps its
            # file locks.
            for each in expired:
                self._close(each.connection)

    def _take_idle(self, expired: list[_Entry[T]]) -> _Entry[T] | None:
        while self._idle:
            entry = self._idle.pop()
            fresh = time.monotonic() - entry.opened_at < self._max_lifetime_s
            if fresh and (not self._check or self._is_healthy(entry.connection)):
                return entry
            expired.append(entry)
        return None

    def _release(self, entry: _Entry[T], *, broken: bool) -> None:
        with self._lock:
            if entry.holder not in self._holders:
                _inherited.append(entry)  # acquired in the parent, released in a forked child
                return
            self._holders.remove(entry.holder)
            keep = not broken and not self._closed
            if keep:
                self._idle.append(entry)
            self._free.notify()
        if not keep:
            self._close(entry.connection)

    def usage(self) -> dict[str, int]:
        """Return the number of connections in use ("lent"), idle ("idle") and allowed ("max")."""
        with self._lock:
            return {"lent": len(self._holders), "idle": len(self._idle), "max": self._max_size}

    def close(self) -> None:
        """Close idle connections now, and connections in use when they are released."""
        with self._lock:
            self._closed = True
            self._close_idle()
            self._free.notify_all()

    def _close_idle(self) -> None:
        while self._idle:
            self._close(self._idle.pop().connection)

    def before_fork(self) -> None:
        self._lock.acquire()
        if threading.get_ident() not in self._holders:
            self._free.wait_for(lambda: not self._holders, _FORK_WAIT_S)
        self._close_idle()

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self._holders = []
            self._lock = threading.RLock()
            self._free = threading.Condition(self._lock)
        else:
            self._lock.release()


class _ConnectionContext(Generic[T]):
    """The context manager of `connection`. As a class it takes half the time of a generator."""

    __slots__ = ("_entry", "_pool")

    def __init__(self, pool: Pool[T]) -> None:
        self._pool = pool

    def __enter__(self) -> T:
        self._entry = self._pool._acquire()
        return self._entry.connection

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        broken = error is not None
        try:
            if isinstance(error, Exception):
                broken = not self._pool._is_healthy(self._entry.connection)
        finally:
            self._pool._release(self._entry, broken=broken)
