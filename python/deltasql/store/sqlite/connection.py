"""Connections to a SQLite file: opening them, and bulk reads as Arrow."""

from __future__ import annotations

import sqlite3
import time
from functools import cache
from typing import TYPE_CHECKING

from deltasql import _core
from deltasql.exceptions import StoreBusyError, StoreUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from deltasql.config import StoreSettings

# The pause between two attempts to switch a new database to WAL mode.
_WAL_PAUSE_S = 0.005
# The number of rows fetched as Python objects at a time, small enough for the processor's cache.
_CHUNK = 2_000
_SYNCHRONOUS = {
    "full": "PRAGMA synchronous = FULL",
    "normal": "PRAGMA synchronous = NORMAL",
    "off": "PRAGMA synchronous = OFF",
}


def open_connection(path: Path, store: StoreSettings) -> sqlite3.Connection:
    """Open an existing database in WAL mode; raise if the file does not exist."""
    try:
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw",  # does not create a missing file
            uri=True,
            timeout=store.busy_timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        _use_wal(connection, store.busy_timeout_ms / 1000)
        connection.execute(_SYNCHRONOUS[store.synchronous])
        connection.execute("PRAGMA cache_size = -65536")
    except sqlite3.Error as error:
        if is_busy(error):
            raise StoreBusyError(
                f"another program locked the SQLite database {str(path)!r} for "
                f"{store.busy_timeout_ms} ms, also against readers",
                help="Look for a program that has the file open, such as a SQLite shell or a "
                "backup; then retry.",
            ) from error
        raise StoreUnavailableError(
            f"cannot open the SQLite database {str(path)!r}: {error}",
            help="Check that it is a SQLite database and that it and its folder are writable.",
        ) from error
    return connection


def _use_wal(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switch to WAL mode. If another connection is switching, SQLite does not wait, so retry."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > end:
                raise
            time.sleep(_WAL_PAUSE_S)


def is_busy(error: BaseException) -> bool:
    """Return whether an error means that another connection held a lock until the timeout."""
    code = getattr(error, "sqlite_errorcode", 0) or 0
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def read_arrow(
    connection: sqlite3.Connection, path: Path, text: str, *, busy_timeout_ms: int
) -> pa.Table:
    """Run one read and return its rows; a column without values has the type int64.

    This uses the same SQLite library as Python. A driver with its own copy of SQLite must not open
    the same file. POSIX locks belong to the process, so neither copy sees the locks of the other,
    and each releases the locks of both. Then one copy can reset the write-ahead log while the other
    uses it, which damages the file. So the Rust core calls the library that Python's `sqlite3` is
    linked to. If that library exports no functions, `sqlite3` fetches the rows.
    """
    library = _library()
    if library is not None:
        try:
            return _table(library.read(str(path), text, busy_timeout_ms))
        except OSError:
            pass  # fall back to `sqlite3`, which also raises the driver's own errors
    return _table(_rows(connection, text))


def _rows(connection: sqlite3.Connection, text: str) -> _core.ArrowRows:
    cursor = connection.execute(text)
    found = _core.ArrowRows([column[0] for column in cursor.description])
    while rows := cursor.fetchmany(_CHUNK):
        found.append(rows)
    return found


def _table(found: _core.ArrowRows) -> pa.Table:
    import pyarrow as pa  # lazy import: start-up time

    return pa.RecordBatchReader.from_stream(found).read_all()


@cache
def _library() -> _core.SqliteLibrary | None:
    import _sqlite3

    if sqlite3.Connection is not _sqlite3.Connection:
        return None  # another package with its own copy of SQLite replaced `sqlite3`
    module = getattr(_sqlite3, "__file__", None)  # None if it is built into the interpreter
    return None if module is None else _core.SqliteLibrary.behind(module)
