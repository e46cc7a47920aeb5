"""A pool of PostgreSQL connections: psycopg's pool with health checks and support for forks."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from deltasql.exceptions import StoreClosedError, StoreUnavailableError
from deltasql.store.dialect import no_free_connection
from deltasql.store.postgres.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.config.sections import PoolSettings
    from deltasql.store.postgres.connection import SessionSettings, SessionState

_CHECK_AFTER_IDLE_S = 1.0
_OPTIONS: dict[str, Any] = {"autocommit": True, "cursor_factory": psycopg.RawCursor}
# The pool connects in the background and only logs errors. If there is no connection after this
# time, we connect in the caller's thread, to raise the error.
_PROBE_AFTER_S = 1.0
# The pool logs each failed connection, which we raise as an error. Without a handler, Python
# would print the log lines too.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
# Pools of the parent process: closing them in a forked child would end the parent's sessions.
_inherited: list[object] = []


class PostgresPool:
    """A pool of connections to one database, at most `max_size` in use at a time."""

    def __init__(
        self, conninfo: str, settings: PoolSettings, session: SessionSettings, *, max_size: int
    ) -> None:
        self._conninfo, self._settings, self._max_size = conninfo, settings, max_size
        self._session = session
        self._state: SessionState | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._pool: ConnectionPool[Connection] | None = None
        self._closed = self._connected = False
        self._lost_at = 0.0
        self.connections_opened = 0

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Return a working connection for a block; an open transaction is rolled back at its end.

        Raises StoreBusyError if no connection is free within `pool.timeout_s`, and
        StoreUnavailableError with the driver's message if the server cannot be reached.
        """
        pool, pid = self._open(), os.getpid()
        connection = self._acquire(pool)
        try:
            if connection.setup_error is not None:
                connection.close()  # the next call opens a new connection
                raise connection.setup_error
            connection.lock_holders = None
            yield connection
        except psycopg.Error as error:
            if connection.lock_holders is not None:
                error.add_note(connection.lock_holders)
            raise
        finally:
            if pid == os.getpid():  # after a fork, the connection belongs to the parent
                self._release(pool, connection)

    def state(self) -> SessionState:
        """Return the effective settings of the most recently opened connection."""
        if self._state is None:
            with self.connection() as connection:
                self._state = connection.state
        return self._state

    def usage(self) -> dict[str, int]:
        """Return the number of connections in use ("lent"), idle ("idle") and allowed ("max")."""
        self._drop_inherited_pool()
        stats = {} if self._pool is None else self._pool.get_stats()
        idle = stats.get("pool_available", 0)
        return {"lent": stats.get("pool_size", 0) - idle, "idle": idle, "max": self._max_size}

    def close(self) -> None:
        """Close idle connections now, and connections in use when they are released."""
        self._closed = True
        self._drop_inherited_pool()
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def check_open(self) -> None:
        """Raise StoreClosedError if the pool was closed."""
        if self._closed:
            raise StoreClosedError

    def _drop_inherited_pool(self) -> None:
        if self._pid != os.getpid():
            _inherited.append(self._pool)
            self._pool, self._lock, self._pid = None, threading.Lock(), os.getpid()

    def _open(self) -> ConnectionPool[Connection]:
        self._drop_inherited_pool()
        with self._lock:
            self.check_open()
            if self._pool is None:
                settings = self._settings
                self._pool = ConnectionPool(
                    self._conninfo,
                    connection_class=Connection,
                    kwargs=_OPTIONS,
                    min_size=min(settings.min_size, self._max_size),
                    max_size=self._max_size,
                    timeout=settings.timeout_s,
                    max_lifetime=settings.max_lifetime_s,
                    max_idle=settings.max_idle_s,
                    # Do not retry in the background, because the next caller tries again.
                    reconnect_timeout=0,
                    configure=self._configure,
                    name="deltasql",
                    num_workers=1,
                    open=True,
                )
            return self._pool

    def _acquire(self, pool: ConnectionPool[Connection]) -> Connection:
        """Get a connection; check first whether it works if it was idle for some time."""
        connection = self._get(pool)
        checked_after = max(self._lost_at, time.monotonic() - _CHECK_AFTER_IDLE_S)
        if not self._settings.health_check or connection.used_at >= checked_after:
            return connection
        try:
            pool.check_connection(connection)
        except psycopg.OperationalError:
            connection.close()
            self._release(pool, connection)
            # Other idle connections are probably lost too, so check all of them.
            pool.check()
            return self._get(pool)
        except BaseException:
            self._release(pool, connection)
            raise
        return connection

    def _release(self, pool: ConnectionPool[Connection], connection: Connection) -> None:
        connection.used_at = time.monotonic()
        status = connection.pgconn.transaction_status
        if connection.closed:
            self._lost_at = connection.used_at
        elif status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            try:
                connection.rollback()
            except psycopg.Error:
                connection.close()
        pool.putconn(connection)

    def _get(self, pool: ConnectionPool[Connection]) -> Connection:
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
            raise no_free_connection(timeout_s) from error

    def _probe(self) -> None:
        """Connect once in the caller's thread, to raise the error that the pool only logged."""
        try:
            with Connection.connect(self._conninfo, **_OPTIONS) as connection:
                connection.set_up(self._session, self._conninfo)
        except psycopg.Error as error:
            raise StoreUnavailableError(
                f"cannot connect to PostgreSQL: {str(error).strip()}",
                help="Check that the server runs at this host and port, that the database exists, "
                "and that the user and password are right. Try the same connection with `psql`.",
            ) from error

    def _configure(self, connection: Connection) -> None:
        self._connected = True
        self.connections_opened += 1
        connection.used_at = time.monotonic()
        connection.set_up(self._session, self._conninfo)
        self._state = None if connection.setup_error is not None else connection.state
