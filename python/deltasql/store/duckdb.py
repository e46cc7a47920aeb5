"""The dialect of DuckDB: only one process can open the file, and its threads write in turn."""

from __future__ import annotations

import os
import re
import threading
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltasql.exceptions import (
    MissingDriverError,
    StoreBusyError,
    StoreClosedError,
    StoreUnavailableError,
)
from deltasql.exceptions.releases import SUPPORTED, check_release
from deltasql.model.duckdb_results import arrow_table
from deltasql.storage.local_files import make_folders
from deltasql.store.dialect import AppendOne, Fault, Row, Session
from deltasql.store.migrations import ledger_if_exists
from deltasql.store.statements import (
    LIST_PARAMETER,
    PARAMETER,
    insert_many,
    insert_shape,
    list_parameter,
    statement,
)

try:
    import duckdb
except ImportError as error:
    raise MissingDriverError("DuckDB needs the package duckdb", extra="duckdb") from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from deltasql._core import IndexedFiles, LogRows
    from deltasql.config import Config

TYPES = {
    "text": "VARCHAR",
    "bigint": "BIGINT",
    "blob": "BLOB",
    "bool": "BOOLEAN",
    "true": "TRUE",
    "strict": "",
    "without_rowid": "",
    "hot_rows": "",
    "table_id_sequence": "CREATE SEQUENCE dl_table_ids;",
    "table_id_key": "BIGINT PRIMARY KEY DEFAULT nextval('dl_table_ids')",
    # DuckDB has no partial index. Instead, its scans skip row groups by their minimum and maximum.
    "live_path_index": "",
    "partition_index": "",
    "removed_index": "",
    "bytewise": "",
    "outside_index": "",
}

_SHORT_LIST = 16
_ARROW_FROM = 16  # from this many rows on, an Arrow table is faster than an INSERT of values
_PHYSICAL = {
    "BIGINT": pa.int64(),
    "VARCHAR": pa.string(),
    "BLOB": pa.binary(),
    "BOOLEAN": pa.bool_(),
}
# DuckDB may end the process if the disk becomes full during a COMMIT. If less space than this is
# free, no transaction is started.
_MIN_FREE_BYTES = 8 << 20
# One lock per database file. Without it, concurrent writers of this process would conflict at
# COMMIT.
_write_locks: dict[str, threading.RLock] = {}
_write_locks_guard = threading.Lock()


class DuckdbSession:
    """A DuckDB cursor in use."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: Path | None = None) -> None:
        self._connection, self._path = connection, path
        self._in_transaction = False

    def query(self, name: str, /, **params: Any) -> list[Row]:
        return self._connection.execute(*_bound(name, params)).fetchall()

    def execute(self, name: str, /, **params: Any) -> int:
        row = self._connection.execute(*_bound(name, params)).fetchone()
        return int(row[0]) if row and isinstance(row[0], int) else 0

    def insert(self, name: str, rows: Sequence[Row]) -> None:
        if len(rows) < _ARROW_FROM:
            text = insert_many(name, "duckdb", len(rows), "?")
            self._connection.execute(text, [value for row in rows for value in row])
            return
        table, columns = insert_shape(name, "duckdb")
        types = self._column_types(table)
        arrays = [
            pa.array(values, _PHYSICAL[types[column]])
            for column, values in zip(columns, zip(*rows, strict=True), strict=True)
        ]
        self._connection.register("dl_rows", pa.table(arrays, names=list(columns)))
        try:
            self._connection.execute(_from_arrow(name))
        finally:
            self._connection.unregister("dl_rows")

    def insert_files(
        self, files: IndexedFiles, table_id: int, partition_ids: list[int], version: int
    ) -> None:
        self.insert("insert_add_file", files.rows(table_id, partition_ids, version))

    def insert_log(self, name: str, rows: LogRows) -> None:
        if rows:
            self.insert(name, list(rows))

    def _column_types(self, table: str) -> dict[str, str]:
        rows = self._connection.execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = $table",
            {"table": table},
        ).fetchall()
        return dict(rows)

    def begin(self, *, is_bulk: bool = False) -> None:
        if self._path is not None:
            _check_free_space(self._path)
        self._connection.execute("BEGIN TRANSACTION")
        self._in_transaction = True

    def commit(self) -> None:
        # Set this first: COMMIT may raise a conflict, and it ends the transaction in any case.
        self._in_transaction = False
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        if self._in_transaction:
            self._in_transaction = False
            self._connection.execute("ROLLBACK")

    def script(self, text: str) -> None:
        self._connection.execute(text)

    def batch(self) -> AbstractContextManager[None]:
        return nullcontext()


class DuckdbDialect:
    """A catalog in a DuckDB file or in memory."""

    name = "duckdb"
    oldest_version: tuple[int, ...] = SUPPORTED["DuckDB"][0]
    drivers: tuple[str, ...] = ("duckdb",)
    lists_transactions = False
    has_replicas = False
    types = TYPES
    has_live_file_index = False  # DuckDB has no partial index
    has_combined_writes = False
    limits_idle_transactions = False
    relaxes_durability = None
    bulk_files = 1_000
    connections_opened = 0
    append_one: AppendOne | None = None

    def __init__(self, path: Path | None, config: Config) -> None:
        check_release("DuckDB", duckdb.__version__)
        self.path = path
        self._busy_timeout_ms = config.store.busy_timeout_ms
        self._pid = os.getpid()
        self._opened: duckdb.DuckDBPyConnection | None = None
        self._opening = threading.Lock()
        key = str(path.resolve()) if path else f":memory:{id(self)}"
        with _write_locks_guard:
            self._write_lock = _write_locks.setdefault(key, threading.RLock())
        self._closed = False

    def create_database(self) -> None:
        try:
            if self.path is not None:
                make_folders(str(self.path.parent))
        except OSError as error:
            raise StoreUnavailableError(
                f"cannot create the DuckDB database {str(self.path)!r}: {error}",
                help="Check the path, and that its folder is writable.",
            ) from error
        self._open()

    def _open(self) -> duckdb.DuckDBPyConnection:
        """Return the only connection, opened on first use; DuckDB creates a missing file."""
        try:
            with self._opening:
                if self._opened is None:
                    self._opened = duckdb.connect(str(self.path) if self.path else ":memory:")
                return self._opened
        except (duckdb.IOException, duckdb.ConnectionException) as error:
            raise StoreUnavailableError(
                f"cannot open the DuckDB database {str(self.path)!r}: {error}",
                help="Only one process can open a DuckDB file: close the other one, "
                "or use a catalog in SQLite or PostgreSQL.",
            ) from error

    @contextmanager
    def session(self) -> Iterator[DuckdbSession]:
        if self._closed:
            raise StoreClosedError
        if self._pid != os.getpid():
            raise StoreUnavailableError(
                "this DuckDB database was opened before a fork and belongs to the parent process",
                help="Open the catalog after the fork, or use one in SQLite or PostgreSQL.",
            )
        if self._opened is None and self.path is not None and not self.path.exists():
            raise StoreUnavailableError(f"the DuckDB database {str(self.path)!r} does not exist")
        session = DuckdbSession(self._open().cursor(), self.path)
        try:
            yield session
        finally:
            session.rollback()
            session._connection.close()

    def arrow(self, name: str, /, **params: Any) -> pa.Table:
        with self.session() as session:
            return arrow_table(session._connection.execute(*_bound(name, params)))

    def ledger(self, session: Session) -> list[Row] | None:
        return ledger_if_exists(session)

    def classify(self, error: BaseException) -> Fault:
        if isinstance(error, duckdb.TransactionException):
            return Fault.RETRY
        if isinstance(error, duckdb.ConstraintException):
            return Fault.DUPLICATE
        return Fault.OTHER

    def errors(self) -> tuple[type[BaseException], ...]:
        return (duckdb.Error,)

    @contextmanager
    def write_turn(self) -> Iterator[None]:
        if not self._write_lock.acquire(timeout=self._busy_timeout_ms / 1000):
            raise StoreBusyError(
                f"did not get the write lock of the DuckDB file within {self._busy_timeout_ms} ms: "
                "another thread of this process holds it",
            )
        try:
            yield
        finally:
            self._write_lock.release()

    def usage(self) -> dict[str, int]:
        return {"lent": 0, "idle": 0, "max": 0}

    def close(self) -> None:
        if self._opened is not None and not self._closed and self._pid == os.getpid():
            self._opened.close()
        self._closed = True


def _check_free_space(path: Path) -> None:
    if not hasattr(os, "statvfs"):
        return
    disk = os.statvfs(path.parent)
    free = disk.f_bavail * disk.f_frsize
    if free < _MIN_FREE_BYTES:
        raise StoreUnavailableError(
            f"the disk of the DuckDB database {str(path)!r} is full: {free} bytes are free",
            help=f"Free some space: a commit needs at least {_MIN_FREE_BYTES >> 20} MiB.",
        )


@cache
def _text(name: str) -> str:
    return LIST_PARAMETER.sub(r"IN (SELECT unnest($\1))", statement(name, "duckdb"))


@cache
def _parameters(name: str) -> frozenset[str]:
    return frozenset(PARAMETER.findall(_text(name)))


def _bound(name: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    # DuckDB rejects parameters that the statement does not use.
    wanted = _parameters(name)
    used = params if len(wanted) == len(params) else {k: params[k] for k in wanted}
    listed = list_parameter(name, "duckdb")
    if listed is None or len(used[listed]) > _SHORT_LIST:
        return _text(name), used
    # DuckDB plans a statement with a few single values faster than one with a list.
    few = {f"{listed}_{number}": value for number, value in enumerate(used[listed])}
    rest = {key: value for key, value in used.items() if key != listed}
    return _short_text(name, len(few)), {**rest, **few}


@cache
def _short_text(name: str, count: int) -> str:
    def in_list(match: re.Match[str]) -> str:
        return "IN (" + ", ".join(f"${match[1]}_{number}" for number in range(count)) + ")"

    return LIST_PARAMETER.sub(in_list, statement(name, "duckdb"))


@cache
def _from_arrow(name: str) -> str:
    columns = insert_shape(name, "duckdb")[1]
    listed = ", ".join(columns)
    head = statement(name, "duckdb").partition("VALUES")[0]
    return f"{head}SELECT {listed} FROM dl_rows"  # noqa: S608  (names of our own schema)
