"""psycopg's pool: opened when first needed, anew after a fork, with errors that say why."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg.types.numeric import Int8Dumper
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from deltasql.exceptions import StoreBusyError, StoreClosedError, StoreUnavailableError
from deltasql.store.dialect import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.config.sections import PoolSettings

Connection = psycopg.Connection[Row]

_CHECK_AFTER_IDLE_S = 1.0
# The pool tries to connect in the background and keeps its errors; after this long we look.
_PROBE_AFTER_S = 1.0
# Pools of the parent process: closing them in a forked child would end the parent's sessions.
_inherited: list[object] = []


class PostgresPool:
    """Lend connections to one database."""

    def __init__(self, conninfo: str, settings: PoolSettings, *, max_size: int) -> None:
        self._conninfo, self._settings, self._max_size = conninfo, settings, max_size
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._pool: ConnectionPool[Connection] | None = None
        self._closed = self._connected = False
        self._lost_at = 0.0

    @contextmanager
    def lend(self) -> Iterator[Connection]:
        """Lend a connection that works."""
        pool = self._open()
        connection = self._borrow(pool)
        try:
            yield connection
        finally:
            now = connection.__dict__["_deltasql_used"] = time.monotonic()
            if connection.closed:
                self._lost_at = now
            if self._pid == os.getpid():
                pool.putconn(connection)

    def check_open(self) -> None:
        """Refuse when the pool was closed."""
        if self._closed:
            raise StoreClosedError(
                "the store is closed", help="Open it again with deltasql.connect()."
            )

    def usage(self) -> dict[str, int]:
        """Return how many connections are lent and idle."""
        stats = self._open().get_stats()
        idle = stats.get("pool_available", 0)
        return {"lent": stats.get("pool_size", 0) - idle, "idle": idle, "max": self._max_size}

    def close(self) -> None:
        """Close every connection; those that are lent when they come back."""
        self._closed = True
        if self._pool is not None and self._pid == os.getpid():
            self._pool.close()
        self._pool = None

    def _open(self) -> ConnectionPool[Connection]:
        self.check_open()
        pool = self._pool
        if pool is not None and self._pid == os.getpid():
            return pool
        if self._pid != os.getpid():
            _inherited.append(self._pool)
            self._pool, self._lock, self._pid = None, threading.Lock(), os.getpid()
        with self._lock:
            if self._pool is None:
                settings = self._settings
                self._pool = ConnectionPool(
                    self._conninfo,
                    connection_class=Connection,
                    kwargs={"autocommit": True},
                    min_size=min(settings.min_size, self._max_size),
                    max_size=self._max_size,
                    timeout=settings.timeout_s,
                    max_lifetime=settings.max_lifetime_s,
                    max_idle=settings.max_idle_s,
                    configure=self._configure,
                    check=self._check if settings.health_check else None,
                    name="deltasql",
                    num_workers=1,
                    open=True,
                )
            return self._pool

    def _borrow(self, pool: ConnectionPool[Connection]) -> Connection:
        timeout_s = self._settings.timeout_s
        first_s = min(_PROBE_AFTER_S, timeout_s)
        try:
            return pool.getconn(first_s)
        except PoolTimeout:
            if not self._connected or pool.get_stats().get("connections_errors"):
                self._probe()
        except PoolClosed:
            self.check_open()
            raise
        try:
            return pool.getconn(max(timeout_s - first_s, 0.001))
        except PoolTimeout as error:
            raise StoreBusyError(
                f"no connection became free within {timeout_s} s",
                help="Raise pool.max_size or pool.timeout_s, "
                "or close sessions that are no longer used.",
            ) from error

    def _probe(self) -> None:
        """Connect once more in the open, for the error that the pool keeps to itself."""
        try:
            psycopg.connect(self._conninfo).close()
        except psycopg.OperationalError as error:
            raise StoreUnavailableError(
                f"cannot connect to PostgreSQL: {str(error).strip()}",
                help="Check that the server runs at this address and accepts this user.",
            ) from error

    def _configure(self, connection: Connection) -> None:
        self._connected = True
        # One width for every integer keeps one prepared statement per text.
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.prepare_threshold = 2

    def _check(self, connection: Connection) -> None:
        # When one connection was lost, those that were idle then are probably lost too.
        used = connection.__dict__.get("_deltasql_used", 0.0)
        if used < max(self._lost_at, time.monotonic() - _CHECK_AFTER_IDLE_S):
            ConnectionPool.check_connection(connection)
