"""Bulk reads from PostgreSQL as Arrow, on one ADBC connection.

This module uses ADBC's low-level classes, because its DB-API layer imports pandas and polars.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltasql.exceptions import StoreBusyError, StoreUnavailableError
from deltasql.store.dialect import Fault
from deltasql.store.postgres.connection import classify, find_lock_holders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql.store.postgres.connection import SessionState
    from deltasql.store.postgres.pool import PostgresPool

# References to the parent's connections in a forked child. Closing them would end the parent's
# sessions.
_inherited: list[object] = []


class ArrowReader:
    """Runs bulk reads on one connection, opened on first use and reopened if it is lost."""

    def __init__(self, conninfo: str, pool: PostgresPool) -> None:
        self._conninfo, self._pool = conninfo, pool
        self._lock = threading.Lock()
        self._connection: _AdbcConnection | None = None
        self._pid = os.getpid()

    def read(self, text: str) -> pa.Table:
        """Run one query and return its rows, with the timeouts of bulk work."""
        self._pool.check_open()
        if self._pid != os.getpid():
            _inherited.append(self._connection)
            self._lock, self._connection, self._pid = threading.Lock(), None, os.getpid()
        with self._lock:
            is_reused = self._connection is not None
            try:
                return self._read(text)
            except StoreUnavailableError:
                if not is_reused:
                    raise
            return self._read(text)  # the connection may have been lost while it was idle

    def close(self) -> None:
        """Close the connection, unless it belongs to the parent process."""
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            with suppress(*_errors()):
                connection.close()

    def _read(self, text: str) -> pa.Table:
        state = self._pool.state()
        holders: list[str | None] = []
        try:
            if self._connection is None:
                self._connection = _AdbcConnection(self._conninfo)
            connection = self._connection
            # Read in a transaction, so that the settings apply to this read only, also behind a
            # pooler.
            connection.read("BEGIN READ ONLY")
            settings = f"{state.use_settings(is_bulk=True)}, pg_backend_pid() AS pid"
            pid = connection.read(settings)["pid"][0].as_py()

            def look_up() -> None:
                holders.append(find_lock_holders(self._conninfo, pid))

            with _during_lock_wait(state, look_up):
                found = connection.read(text)
            connection.read("COMMIT")
            return found
        except _errors() as error:
            self.close()
            if classify(error) is Fault.BUSY:
                raise StoreBusyError(
                    "; ".join([f"postgres failed: {error}", *filter(None, holders)]),
                    backend="postgres",
                ) from error
            raise StoreUnavailableError(
                f"postgres failed: {error}",
                help="Check that the server is reachable and that this user may read the tables.",
            ) from error


class _AdbcConnection:
    """A connection that runs statements and returns Arrow."""

    def __init__(self, conninfo: str) -> None:
        # Imported here, because their shared libraries load slowly.
        import adbc_driver_manager as adbc
        import adbc_driver_postgresql
        from adbc_driver_manager._reader import AdbcRecordBatchReader

        self._adbc, self._reader = adbc, AdbcRecordBatchReader
        self._database: Any = adbc_driver_postgresql.connect(conninfo)
        try:
            self._connection: Any = adbc.AdbcConnection(self._database)
        except BaseException:
            self._database.close()
            raise

    def read(self, text: str) -> pa.Table:
        statement = self._adbc.AdbcStatement(self._connection)
        try:
            statement.set_sql_query(text)
            handle, _ = statement.execute_query()
            # Unlike Arrow's own reader, this one keeps the SQLSTATE of an error that occurs between
            # batches.
            with self._reader._import_from_c(handle.address) as reader:
                table: pa.Table = reader.read_all()
                return table
        finally:
            statement.close()

    def close(self) -> None:
        self._connection.close()
        self._database.close()


@contextmanager
def _during_lock_wait(state: SessionState, look_up: Callable[[], None]) -> Iterator[None]:
    """Call `look_up` in a thread if the block waits long for a lock."""
    if not state.look_up_holders_after_s:
        yield
        return
    timer = threading.Timer(state.look_up_holders_after_s, look_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _errors() -> tuple[type[Exception], ...]:
    import adbc_driver_manager as adbc

    return (adbc.Error, pa.ArrowException, OSError)
