"""The dialect of SQLite: WAL mode, many processes, one writer at a time."""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

from deltasql.exceptions import StoreUnavailableError
from deltasql.exceptions.releases import SUPPORTED, check_release
from deltasql.phases import reached
from deltasql.storage.local_files import make_folders
from deltasql.store.dialect import (
    PARTIAL_INDEXES,
    Appended,
    Fault,
    OneFilePlan,
    Row,
    Session,
    chunks,
)
from deltasql.store.migrations import ledger_if_exists
from deltasql.store.sqlite.connection import is_busy, open_connection, read_arrow
from deltasql.store.sqlite.pool import Pool
from deltasql.store.sqlite.queue import WriteQueue
from deltasql.store.statements import (
    LIST_PARAMETER,
    PARAMETER,
    insert_some,
    list_parameter,
    statement,
    with_inline_integers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
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
    **PARTIAL_INDEXES,
    "bytewise": "",
    "outside_index": "CREATE INDEX dl_add_files_outside ON dl_add_files (table_id) WHERE "
    "(substr(path, 1, 1) = '/' OR instr(path, ':/') > 0 OR instr(deletion_vector, '\"p\"') > 0);",
}

# SQLite allows 32,766 parameters. With fewer, more statements can be reused from its cache.
_LIST_CHUNK = 500
_FILE_MODE = 0o644  # permissions of a new database file, the same as SQLite's default
# A wait in the queue that is shorter than this is not subtracted from the timeout of SQLite's own
# lock.
_SHORT_WAIT_S = 0.01


class SqliteSession:
    """A SQLite connection in use."""

    _in_queue = False

    def __init__(self, connection: sqlite3.Connection, queue: WriteQueue) -> None:
        self._connection, self._queue = connection, queue

    def query(self, name: str, /, **params: Any) -> list[Row]:
        listed = list_parameter(name, "sqlite")
        if listed is None:
            bound = _as_json(params) if _takes_json(name) else params
            return self._connection.execute(_text(name), bound).fetchall()
        parts = list(chunks(params.pop(listed), _LIST_CHUNK))
        rows: list[Row] = []
        with self._one_state() if len(parts) > 1 else nullcontext():
            for part in parts:
                rows += self._connection.execute(*_expand(name, listed, part, params)).fetchall()
        return rows

    @contextmanager
    def _one_state(self) -> Iterator[None]:
        """Read one state of the database with several statements, like a single statement."""
        if self._connection.in_transaction:
            yield
            return
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def execute(self, name: str, /, **params: Any) -> int:
        listed = list_parameter(name, "sqlite")
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
        # Leave out the columns that are NULL in every row, because binding a NULL is slow.
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
        # One timeout limits the sum of the wait in the queue and the wait for SQLite's own lock.
        has_waited = self._queue.timeout_s - left_s > _SHORT_WAIT_S
        try:
            if has_waited:
                self._set_busy_timeout(left_s)
            # IMMEDIATE takes the write lock now, because upgrading a read lock later fails without
            # waiting.
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
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
        # If Ctrl-C arrived at the end of a `with` block, `rollback` may not have been called.
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


def append_one_file(
    session: Session, plan: OneFilePlan, sending: Callable[[], None]
) -> Appended | None:
    """Take the write lock, check the head, write the rows and COMMIT.

    This needs several statements, because a statement in SQLite can write to only one table.
    """
    table_id = plan.guard["table_id"]
    session.begin()
    rows = session.query("head_as_known", **plan.guard)
    if not rows:
        return None
    reached("locked")
    txn_id = plan.info["txn_id"]
    if plan.intents and session.execute("clear_staged_files", txn_id=txn_id) < plan.intents:
        return None  # the general path raises the error
    head_version, committed_at_ms, file_id = rows[0]
    version, next_file_id = head_version + 1, file_id + 1
    timestamp_ms = max(plan.now_ms, committed_at_ms + 1)
    sending()
    session.execute(
        "insert_add_file", table_id=table_id, file_id=file_id, added_version=version, **plan.file
    )
    if plan.stats:
        bounds = [(table_id, row[0], file_id, file_id, *row[3:]) for row in plan.stats]
        session.insert("insert_file_stats", bounds)
    session.execute(
        "insert_version",
        table_id=table_id,
        version=version,
        next_file_id=next_file_id,
        committed_at_ms=timestamp_ms,
        commit_timestamp=timestamp_ms,
        in_commit_timestamp=timestamp_ms if plan.in_commit_timestamps else None,
        group_size=1,
        is_blind_append=True,
        **plan.info,
    )
    session.execute(
        "move_head",
        table_id=table_id,
        version=version,
        committed_at_ms=timestamp_ms,
        next_file_id=next_file_id,
        metadata_version=plan.guard["metadata_version"],
        protocol_version=plan.guard["protocol_version"],
    )
    reached("committing")
    session.commit()
    return Appended(version, timestamp_ms)


class SqliteDialect:
    """A catalog in a SQLite file."""

    name = "sqlite"
    oldest_version: tuple[int, ...] = SUPPORTED["SQLite"][0]
    drivers: tuple[str, ...] = ()
    lists_transactions = False
    has_replicas = False
    connections_opened = 0  # there is no server that could restart
    types = TYPES
    has_live_file_index = True
    has_combined_writes = False
    limits_idle_transactions = False
    relaxes_durability: Literal["before begin"] | None
    bulk_files = 1_000
    append_one = staticmethod(append_one_file)

    def __init__(self, path: Path, config: Config) -> None:
        check_release("SQLite", sqlite3.sqlite_version)
        self.path, self._config = path, config
        self.relaxes_durability = "before begin" if config.store.synchronous == "full" else None
        self._queue = WriteQueue(str(path), config.store.busy_timeout_ms / 1000)
        pool = config.pool
        self._pool: Pool[sqlite3.Connection] = Pool(
            partial(open_connection, path, config.store),
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
                make_folders(str(self.path.parent))
            if not self.path.exists():
                self.path.touch(_FILE_MODE)
        except OSError as error:
            raise StoreUnavailableError(
                f"cannot create the SQLite database {str(self.path)!r}: {error}",
                help="Check the path, and that its folder is writable.",
            ) from error

    def session(self) -> AbstractContextManager[SqliteSession]:
        return _SessionContext(self._pool.connection(), self._queue)

    def arrow(self, name: str, /, **params: Any) -> pa.Table:
        text = with_inline_integers(name, "sqlite", params)
        with self._pool.connection() as connection:
            timeout = self._config.store.busy_timeout_ms
            return read_arrow(connection, self.path, text, busy_timeout_ms=timeout)

    def ledger(self, session: Session) -> list[Row] | None:
        return ledger_if_exists(session)

    def classify(self, error: BaseException) -> Fault:
        if is_busy(error):
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
def _takes_json(name: str) -> bool:
    return "json_each(" in _text(name)


def _as_json(params: dict[str, Any]) -> dict[str, Any]:
    # SQLite has no arrays, so a list is passed as JSON and read with json_each.
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
