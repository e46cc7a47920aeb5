"""Connections to PostgreSQL: one at hand, psycopg's pool behind it, anew after a fork.

Most processes use one connection at a time. That one is opened by the thread that needs it;
the pool and its own threads start when a second is wanted.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8Dumper
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from deltasql.exceptions import StoreBusyError, StoreClosedError, StoreUnavailableError
from deltasql.store.dialect import Row, Told
from deltasql.store.postgres_handed import collect, hand_over
from deltasql.store.postgres_wire import wait

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType

    from deltasql.config.sections import PoolSettings

Connection = psycopg.Connection[Row]

_CHECK_AFTER_IDLE_S = 1.0
# The pool tries to connect in the background and keeps its errors; after this long we look.
_PROBE_AFTER_S = 1.0
_LAST_ANSWER_MS = 1_000
# While the pool cannot connect it logs what is raised here; Python prints it without a handler.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
# Pools of the parent process: closing them in a forked child would end the parent's sessions.
_inherited: list[object] = []


class _Note:
    """A statement that was handed over: by whom, and whether its answer was taken."""

    def __init__(self, name: str, params: dict[str, Any], told: Told | None) -> None:
        self.name, self.params, self.told = name, params, told
        self.sender = threading.get_ident()
        self.settled = threading.Event()


class _Home:
    """The connection at hand, and whether somebody has it."""

    def __init__(self) -> None:
        self.taken = threading.Lock()
        self.connection: Connection | None = None
        self.born = 0.0
        self.note: _Note | None = None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        self.forget_note()

    def answers_within(self, timeout_ms: int) -> bool:
        """Tell whether the server answers in time to what was handed over."""
        if self.note is None or self.connection is None or self.connection.closed:
            return False
        return wait(self.connection.pgconn, timeout_ms=timeout_ms)

    def forget_note(self) -> None:
        """Let go on whoever waits for the answer to what was handed over."""
        if self.note is not None:
            self.note.settled.set()
        self.note = None


class _Lending:
    """The block of `lend`: a class, since small appends would notice a generator."""

    __slots__ = ("_at_hand", "_from_pool", "_home", "_pool")

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool
        self._home: _Home | None = None
        self._from_pool: AbstractContextManager[Connection] | None = None

    def __enter__(self) -> Connection:
        pool = self._pool
        pool._check_usable()
        home = pool._home
        if pool._take(home):
            self._home = home
            try:
                pool._settle(home)
                at_hand = pool._at_home(home)
                if at_hand is not None:
                    self._at_hand = at_hand
                    return at_hand
                return self._from_the_pool()
            except BaseException:
                pool._release(home)
                raise
        return self._from_the_pool()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._from_pool is None:
                self._pool._give_back(self._at_hand)
            else:
                self._from_pool.__exit__(kind, error, traceback)
        finally:
            if self._home is not None:
                self._pool._release(self._home)

    def _from_the_pool(self) -> Connection:
        self._from_pool = self._pool._lend_from_pool()
        return self._from_pool.__enter__()


class PostgresPool:
    """Lend connections to one database."""

    def __init__(self, conninfo: str, settings: PoolSettings, *, max_size: int) -> None:
        self._conninfo, self._settings, self._max_size = conninfo, settings, max_size
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._pool: ConnectionPool[Connection] | None = None
        self._home = _Home()
        self._closed = self._connected = False
        self._lost_at = 0.0

    def lend(self) -> AbstractContextManager[Connection]:
        """Lend a connection that works."""
        return _Lending(self)

    def _take(self, home: _Home) -> bool:
        """Take the connection at hand, if nobody else has it and another may be lent instead."""
        alone = self._max_size == 1
        if home.taken.acquire(timeout=self._settings.timeout_s if alone else 0):
            return True
        if alone:
            raise self._too_busy()
        note = home.note
        # What this thread handed over comes first; whoever has the connection settles it.
        if (
            note is not None
            and note.sender == threading.get_ident()
            and not note.settled.wait(self._settings.timeout_s)
        ):
            raise self._too_busy()
        return False

    def _release(self, home: _Home) -> None:
        home.taken.release()
        if self._closed:  # meanwhile, and could not take what we had
            self._close_home(home)

    def hand_over(self, name: str, params: dict[str, Any], told: Told | None = None) -> bool:
        """Send a statement for whose answer nobody waits; False when no connection is at hand.

        Whoever uses the connection next takes the answer, and calls `told` with it.
        """
        self._check_usable()
        home = self._home
        if not home.taken.acquire(blocking=False):
            return False
        try:
            self._settle(home)
            connection = self._at_home(home)
            if connection is None:
                return False
            connection.__dict__["_deltasql_used"] = time.monotonic()
            home.note = _Note(name, params, told)
            is_sent = False
            try:
                is_sent = hand_over(connection, name, params)
            except psycopg.OperationalError:
                self._lose(connection)  # the next who asks for one finds out why
            except BaseException:
                self._lose(connection)  # half of it may be sent
                raise
            finally:
                if not is_sent:
                    home.forget_note()
            return is_sent
        finally:
            self._release(home)

    def _settle(self, home: _Home) -> None:
        """Take the answer to what was handed over; a connection without it is of no more use."""
        connection, note = home.connection, home.note
        if note is None:
            return
        rows = None
        try:
            if connection is not None and not connection.closed:
                rows = collect(connection, note.name, note.params)
        except BaseException as error:
            if connection is not None:
                self._lose(connection)
            if not isinstance(error, psycopg.OperationalError):
                raise
        finally:
            if note.told is not None:
                note.told(rows)
            home.forget_note()

    def _lose(self, connection: Connection) -> None:
        connection.close()
        self._lost_at = time.monotonic()

    @contextmanager
    def _lend_from_pool(self) -> Iterator[Connection]:
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
        self._check_usable()
        stats = self._pool.get_stats() if self._pool is not None else {}
        idle, lent = stats.get("pool_available", 0), stats.get("pool_size", 0)
        lent -= idle
        home = self._home
        if home.connection is not None and not home.connection.closed:
            idle, lent = idle + (not home.taken.locked()), lent + home.taken.locked()
        return {"lent": lent, "idle": idle, "max": self._max_size}

    def close(self) -> None:
        """Close every connection; those that are lent when they come back."""
        self._closed = True
        if self._pid != os.getpid():
            return
        if self._pool is not None:
            self._pool.close()
        self._pool = None
        self._close_home(self._home)

    def _close_home(self, home: _Home) -> None:
        """Close the connection at hand; one that is lent is closed when it comes back."""
        if self._pid == os.getpid() and home.taken.acquire(blocking=False):
            try:
                if home.answers_within(_LAST_ANSWER_MS):
                    self._settle(home)  # who looks afterwards finds what was handed over
            finally:
                home.close()
                home.taken.release()

    def _check_usable(self) -> None:
        """Refuse when closed; forget the parent's connections after a fork."""
        self.check_open()
        if self._pid != os.getpid():
            _inherited.extend((self._pool, self._home))
            self._pool, self._home = None, _Home()
            self._lock, self._pid = threading.Lock(), os.getpid()

    def _at_home(self, home: _Home) -> Connection | None:
        """Return the connection at hand, opened if need be; None when the server does not answer.

        The pool then keeps trying for a while, and says why when that fails too.
        """
        connection, settings, now = home.connection, self._settings, time.monotonic()
        if connection is not None and not connection.closed:
            used = connection.__dict__["_deltasql_used"]
            expired = now - used > settings.max_idle_s or now - home.born > settings.max_lifetime_s
            try:
                if not expired:
                    if settings.health_check:
                        self._check(connection)
                    return connection
            except psycopg.OperationalError:
                self._lost_at = now
            connection.close()
        try:
            connection = Connection.connect(self._conninfo, autocommit=True)
        except psycopg.OperationalError:
            return None
        self._configure(connection)
        connection.__dict__["_deltasql_used"] = now
        home.connection, home.born = connection, now
        if settings.min_size > 1:
            self._open()
        return connection

    def _give_back(self, connection: Connection) -> None:
        now = connection.__dict__["_deltasql_used"] = time.monotonic()
        if self._pid != os.getpid():
            return  # lent before a fork: it is the parent's
        if connection.closed:
            self._lost_at = now
        elif self._closed or connection.pgconn.transaction_status != TransactionStatus.IDLE:
            connection.close()

    def _open(self) -> ConnectionPool[Connection]:
        self.check_open()
        if self._pool is not None:
            return self._pool
        with self._lock:
            if self._pool is None:
                settings = self._settings
                self._pool = ConnectionPool(
                    self._conninfo,
                    connection_class=Connection,
                    kwargs={"autocommit": True},
                    # The connection at hand is one of those that are allowed.
                    min_size=max(0, min(settings.min_size, self._max_size) - 1),
                    max_size=max(1, self._max_size - 1),
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
            raise self._too_busy() from error

    def _too_busy(self) -> StoreBusyError:
        return StoreBusyError(
            f"no connection became free within {self._settings.timeout_s} s",
            help="Raise pool.max_size or pool.timeout_s, "
            "or close sessions that are no longer used.",
        )

    def _probe(self) -> None:
        """Connect once more in the open, for the error that the pool keeps to itself."""
        try:
            psycopg.connect(self._conninfo).close()
        except psycopg.OperationalError as error:
            raise StoreUnavailableError(
                f"cannot connect to PostgreSQL: {str(error).strip()}",
                help="Check that the server runs at this address, that the database is there, and "
                "user and password; `psql` with the same says the same.",
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
