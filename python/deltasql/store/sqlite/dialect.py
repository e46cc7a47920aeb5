"""The dialect of SQLite: WAL mode, many processes, one writer at a time."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import nullcontext, suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from deltasql.exceptions import StoreBusyError, StoreUnavailableError
from deltasql.store.dialect import Fault, Row, Session, chunks
from deltasql.store.migrations import ledger_if_there
from deltasql.store.pool import Pool
from deltasql.store.sqlite.append_one import append_one_file
from deltasql.store.sqlite.arrow import read_arrow
from deltasql.store.sqlite.queue import WriteQueue
from deltasql.store.statements import LIST_PARAMETER, PARAMETER, insert_some, statement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType

    import pyarrow as pa

    from deltasql._core import IndexedFiles, LogRows
    from deltasql.config import Config

TYPES = {
    "text": "TEXT",
    "bigint": "INTEGER",
    "blob": "BLOB",
    "bool": "INTEGER",
    "true": "1",
    "strict": " STRICT",
    "without_rowid": ", WITHOUT ROWID",
    "hot_rows": "",
    "table_id_sequence": "",
    "table_id_key": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "live_path_index": "CREATE UNIQUE INDEX dl_add_files_live ON dl_add_files (table_id, path_key) "
    "WHERE removed_version IS NULL;",
    "partition_index": "CREATE INDEX dl_add_files_partition ON dl_add_files "
    "(table_id, partition_id) WHERE partition_id > 0;",
    "removed_index": "CREATE INDEX dl_add_files_removed ON dl_add_files "
    "(table_id, removed_version) WHERE removed_version IS NOT NULL;",
    "bytewise": "",
    "outside_index": "CREATE INDEX dl_add_files_outside ON dl_add_files (table_id) WHERE "
    "(substr(path, 1, 1) = '/' OR instr(path, ':/') > 0 OR instr(deletion_vector, '\"p\"') > 0);",
}

# SQLite allows 32,766 parameters; with fewer, the same statement text is reused from its cache.
_LIST_CHUNK = 500
# The pause between two attempts to switch a new database to WAL mode.
_WAL_PAUSE_S = 0.005
_FILE_MODE = 0o644  # of a new database file, as SQLite would create it
# A shorter wait in the queue is not subtracted from the timeout of SQLite's own lock.
_SHORT_WAIT_S = 0.01


class SqliteSession:
    """A SQLite connection in use."""

    _in_queue = False

    def __init__(self, connection: sqlite3.Connection, queue: WriteQueue) -> None:
        self._connection, self._queue = connection, queue

    def query(self, name: str, /, **params: Any) -> list[Row]:
        listed = _list_parameter(name)
        if listed is None:
            bound = _as_json(params) if _takes_json(name) else params
            return self._connection.execute(_text(name), bound).fetchall()
        rows: list[Row] = []
        for part in chunks(params.pop(listed), _LIST_CHUNK):
            rows += self._connection.execute(*_expand(name, listed, part, params)).fetchall()
        return rows

    def execute(self, name: str, /, **params: Any) -> int:
        listed = _list_parameter(name)
        if listed is None:
            bound = _as_json(params) if _takes_json(name) else params
            return self._connection.execute(_text(name), bound).rowcount
        changed = 0
        for part in chunks(params.pop(listed), _LIST_CHUNK):
            changed += self._connection.execute(*_expand(name, listed, part, params)).rowcount
        return changed

    def insert(self, name: str, rows: Sequence[Row]) -> None:
        if len(rows) == 1:
            self._connection.execute(_positional(name), rows[0])
        else:
            self._connection.executemany(_positional(name), rows)

    def insert_files(
        self, files: IndexedFiles, table_id: int, partition_ids: list[int], version: int
    ) -> None:
        # Without the columns that are NULL in every row: binding a NULL is slow.
        columns = tuple(files.filled_columns())
        text = insert_some("insert_add_file", "sqlite", columns, "?")
        rows = files.plain_rows(table_id, partition_ids, version, columns)
        self._connection.executemany(text, rows)

    def insert_log(self, name: str, rows: LogRows) -> None:
        columns = tuple(rows.filled_columns())
        if columns:
            text = insert_some(name, "sqlite", columns, "?")
            self._connection.executemany(text, rows.plain_rows(columns))

    def begin(self, *, is_bulk: bool = False) -> None:
        self._in_queue = True  # before `acquire`, so that Ctrl-C after it cannot leave it locked
        left_s = self._queue.acquire()
        # The wait in the queue and the wait for SQLite's own lock share one timeout.
        has_waited = self._queue.timeout_s - left_s > _SHORT_WAIT_S
        try:
            if has_waited:
                self._set_busy_timeout(left_s)
            # IMMEDIATE: upgrading a read lock later fails without waiting.
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                raise
            raise self._queue.locked_out() from error
        finally:
            if has_waited:
                self._set_busy_timeout(self._queue.timeout_s)

    def _set_busy_timeout(self, seconds: float) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")

    def commit(self) -> None:
        self._connection.execute("COMMIT")
        self._leave_queue()

    def rollback(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        finally:
            self._leave_queue()

    def _leave_queue(self) -> None:
        if self._in_queue:
            self._queue.release()
            self._in_queue = False

    def __del__(self) -> None:
        # Ctrl-C at the end of a `with` block may have prevented the call of `rollback`.
        if self._in_queue:
            with suppress(sqlite3.ProgrammingError):  # the connection was closed
                self.rollback()

    def script(self, text: str) -> None:
        for part in text.split(";\n"):
            if part.strip():
                self._connection.execute(part)

    def batch(self) -> AbstractContextManager[None]:
        return nullcontext()


class _SessionContext:
    """A session for a block; an open transaction is rolled back at its end."""

    __slots__ = ("_pooled", "_queue", "_session")

    def __init__(
        self, pooled: AbstractContextManager[sqlite3.Connection], queue: WriteQueue
    ) -> None:
        self._pooled, self._queue = pooled, queue

    def __enter__(self) -> SqliteSession:
        self._session = SqliteSession(self._pooled.__enter__(), self._queue)
        return self._session

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._session.rollback()
        except BaseException as failure:
            self._pooled.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._pooled.__exit__(kind, error, traceback)


class SqliteDialect:
    """A catalog in a SQLite file."""

    name = "sqlite"
    oldest_version: tuple[int, ...] = (3, 37)  # the first with STRICT tables
    drivers: tuple[str, ...] = ()
    lists_transactions = False
    connections_opened = 0  # there is no server that could restart
    types = TYPES
    has_live_file_index = True
    has_combined_writes = False
    limits_idle_transactions = False
    relaxes_durability: Literal["before begin"] | None
    bulk_files = 1_000
    append_one = staticmethod(append_one_file)

    def __init__(self, path: Path, config: Config) -> None:
        self.path, self._config = path, config
        self._address = f"{path.as_uri()}?mode=rw"  # does not create a missing file
        self.relaxes_durability = "before begin" if config.store.synchronous == "full" else None
        self._queue = WriteQueue(str(path), config.store.busy_timeout_ms / 1000)
        pool = config.pool
        self._pool: Pool[sqlite3.Connection] = Pool(
            self._connect,
            sqlite3.Connection.close,
            _is_healthy,
            max_size=pool.max_size,
            timeout_s=pool.timeout_s,
            max_lifetime_s=pool.max_lifetime_s,
            check=pool.health_check,
        )

    def create_database(self) -> None:
        try:
            if not self.path.parent.is_dir():
                from deltasql.storage.local_files import make_folders  # slow: it imports Arrow

                make_folders(str(self.path.parent))
            if not self.path.exists():
                self.path.touch(_FILE_MODE)
        except OSError as error:
            raise StoreUnavailableError(
                f"cannot create the SQLite database {str(self.path)!r}: {error}",
                help="Check the path, and that its folder is writable.",
            ) from error

    def _connect(self) -> sqlite3.Connection:
        store = self._config.store
        try:
            connection = sqlite3.connect(
                self._address,
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
            if self.classify(error) is Fault.RETRY:
                raise StoreBusyError(
                    f"another program locked the SQLite database {str(self.path)!r} for "
                    f"{store.busy_timeout_ms} ms, also against readers",
                    help="Look for a shell, a repair or a copy that has it open; then retry.",
                ) from error
            raise StoreUnavailableError(
                f"cannot open the SQLite database {str(self.path)!r}: {error}",
                help="Check that the folder is writable and that the file is a SQLite database.",
            ) from error
        return connection

    def session(self) -> AbstractContextManager[SqliteSession]:
        return _SessionContext(self._pool.connection(), self._queue)

    def arrow(self, name: str, /, **params: Any) -> pa.Table:
        listed = _list_parameter(name)
        text = (
            _text(name) if listed is None else _inline_ints(_text(name), listed, params.pop(listed))
        )
        # Every parameter of a bulk read is an integer.
        text = PARAMETER.sub(lambda match: str(int(params[match[1]])), text)
        with self._pool.connection() as connection:
            timeout = self._config.store.busy_timeout_ms
            return read_arrow(connection, self.path, text, busy_timeout_ms=timeout)

    def ledger(self, session: Session) -> list[Row] | None:
        return ledger_if_there(session)

    def classify(self, error: BaseException) -> Fault:
        if _is_busy(error):
            return Fault.RETRY
        code = getattr(error, "sqlite_errorcode", 0) or 0
        if code in (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY):
            return Fault.DUPLICATE
        return Fault.OTHER

    def errors(self) -> tuple[type[BaseException], ...]:
        return (sqlite3.Error,)

    def write_turn(self) -> AbstractContextManager[None]:
        return nullcontext()  # `begin` waits in the queue

    def usage(self) -> dict[str, int]:
        return self._pool.usage()

    def close(self) -> None:
        self._pool.close()
        self._queue.close()


_SYNCHRONOUS = {
    "full": "PRAGMA synchronous = FULL",
    "normal": "PRAGMA synchronous = NORMAL",
    "off": "PRAGMA synchronous = OFF",
}


def _use_wal(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switch to WAL mode; SQLite does not wait by itself if another connection is switching."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > end:
                raise
            time.sleep(_WAL_PAUSE_S)


def _is_busy(error: BaseException) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) or 0
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _is_healthy(connection: sqlite3.Connection) -> bool:
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:  # the connection is closed
        return False


@cache
def _text(name: str) -> str:
    return statement(name, "sqlite")


@cache
def _positional(name: str) -> str:
    return PARAMETER.sub("?", _text(name))


@cache
def _list_parameter(name: str) -> str | None:
    match = LIST_PARAMETER.search(_text(name))
    return match[1] if match else None


@cache
def _takes_json(name: str) -> bool:
    return "json_each(" in _text(name)


def _as_json(params: dict[str, Any]) -> dict[str, Any]:
    # SQLite has no arrays: a list is passed as JSON and read with json_each.
    return {k: json.dumps(v) if type(v) is list else v for k, v in params.items()}


def _expand(
    name: str, listed: str, values: Sequence[Any], params: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    bound = {f"{listed}_{position}": value for position, value in enumerate(values)}
    return _expanded(name, listed, len(values)), {**params, **bound}


@lru_cache(maxsize=1024)
def _expanded(name: str, listed: str, count: int) -> str:
    names = ", ".join(f"${listed}_{position}" for position in range(count))
    return LIST_PARAMETER.sub(f"IN ({names})", _text(name))


def _inline_ints(text: str, listed: str, values: Sequence[int]) -> str:
    numbers = ", ".join(str(int(value)) for value in values)
    return LIST_PARAMETER.sub(f"IN ({numbers})", text)
