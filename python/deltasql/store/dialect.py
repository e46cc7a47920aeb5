"""The interface to a database: sessions, column types, bulk reads and kinds of failure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from deltasql.exceptions import StoreBusyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pyarrow as pa

    from deltasql._core import IndexedFiles, LogRows

Row = tuple[Any, ...]
PARTIAL_INDEXES = {
    "live_path_index": "CREATE UNIQUE INDEX dl_add_files_live ON dl_add_files (table_id, path_key) "
    "WHERE removed_version IS NULL;",
    "partition_index": "CREATE INDEX dl_add_files_partition ON dl_add_files "
    "(table_id, partition_id) WHERE partition_id > 0;",
    "removed_index": "CREATE INDEX dl_add_files_removed ON dl_add_files "
    "(table_id, removed_version) WHERE removed_version IS NOT NULL;",
}
"""Entries of `Dialect.types` for databases with partial indexes."""


class Fault(enum.Enum):
    """The kinds of failure that a caller handles in different ways."""

    RETRY = "a concurrent transaction interfered; a retry may succeed"
    BUSY = "a lock or a statement exceeded its timeout"
    LOST = "the connection was lost; the outcome of a COMMIT must be looked up"
    READ_ONLY = "the database accepts no writes, because it is a read replica"
    DUPLICATE = "a unique key already exists"
    OTHER = "the statement is invalid, or the database rejected it"


class Session(Protocol):
    """A connection from the pool, which runs statements by name, with or without a transaction."""

    def query(self, name: str, /, **params: Any) -> list[Row]: ...

    def execute(self, name: str, /, **params: Any) -> int:
        """Run one statement and return the number of rows it changed."""

    def insert(self, name: str, rows: Sequence[Row]) -> None:
        """Insert rows in the column order of the statement, with one statement or in bulk."""

    def insert_files(
        self, files: IndexedFiles, table_id: int, partition_ids: list[int], version: int
    ) -> None:
        """Insert the added files of a commit with the statement `insert_add_file`."""

    def insert_log(self, name: str, rows: LogRows) -> None:
        """Insert rows that the Rust core produces while they are sent."""

    def begin(self, *, is_bulk: bool = False) -> None:
        """Start a write transaction; a bulk transaction has a longer statement timeout."""

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Roll the transaction back; does nothing outside a transaction."""

    def script(self, text: str) -> None:
        """Run several statements without parameters (migrations)."""

    def batch(self) -> AbstractContextManager[None]:
        """Let the statements in the block be sent together; their results are not available."""


@dataclass(frozen=True, slots=True)
class OneFilePlan:
    """The values of one append, except for the version, file id and time, which need the head."""

    guard: dict[str, Any]
    """The id of the table, and the name and versions that its head must have at the commit."""
    file: dict[str, Any]
    info: dict[str, Any]
    stats: list[Row]
    now_ms: int
    in_commit_timestamps: bool
    intents: int


class Appended(NamedTuple):
    """The version and time of a ratified append of one file."""

    version: int
    committed_at_ms: int


class AppendOne(Protocol):
    """Ratify a blind append of one file; return None if the table changed after the planning.

    `sending` is called before anything is written.
    """

    def __call__(
        self, session: Session, plan: OneFilePlan, sending: Callable[[], None]
    ) -> Appended | None: ...


class Dialect(Protocol):
    """What deltasql needs to know about one kind of database."""

    name: str
    oldest_version: tuple[int, ...]
    """The oldest version of the database that deltasql supports."""
    drivers: tuple[str, ...]
    """The packages that connect to the database, except Python's standard library."""
    lists_transactions: bool
    """Whether `longest_transaction` finds transactions that other connections left open."""
    has_replicas: bool
    """Whether `replica_lag` finds that the database is a read replica."""
    types: dict[str, str]
    """Column types and clauses that are inserted into the migrations."""
    bulk_files: int
    """From this number of files on, `arrow` is faster than `query`."""
    has_live_file_index: bool
    """Whether a unique index rejects a file that is already live."""
    has_combined_writes: bool
    """Whether the statements `record_staged_files` and `record_published` exist."""
    limits_idle_transactions: bool
    """Whether the database ends a transaction that sends no statement for a while."""

    @property
    def relaxes_durability(self) -> Literal["before begin", "after begin"] | None:
        """When to run `relax_durability`; None if the database always waits for the disk."""

    @property
    def connections_opened(self) -> int:
        """The number of connections opened so far; a new one may mean that the server restarted."""

    @property
    def append_one(self) -> AppendOne | None:
        """The fast path for a blind append of one file; None if the database has none."""

    @property
    def path(self) -> Path | None:
        """The database file; None for a server and for a database in memory."""

    def create_database(self) -> None:
        """Create the database file if it is missing; does nothing on a server."""

    def session(self) -> AbstractContextManager[Session]:
        """Take a connection from the pool for a block. This does not create a missing database."""

    def arrow(self, name: str, /, **params: Any) -> pa.Table:
        """Run a bulk read and return its rows as Arrow."""

    def ledger(self, session: Session) -> list[Row] | None:
        """Return (number, checksum) of the applied migrations; None in an empty database."""

    def classify(self, error: BaseException) -> Fault: ...

    def errors(self) -> tuple[type[BaseException], ...]:
        """Return the driver's exception classes, for `except`."""

    def usage(self) -> dict[str, int]:
        """Return the number of connections in use ("lent"), idle ("idle") and allowed ("max")."""

    def write_turn(self) -> AbstractContextManager[None]:
        """Hold this process's write lock, if the database does not queue writers itself."""

    def close(self) -> None: ...


def no_free_connection(timeout_s: float) -> StoreBusyError:
    """Return the error for a call that got no connection from the pool in time."""
    return StoreBusyError(
        f"no connection became free within {timeout_s} s",
        help="Raise pool.max_size or pool.timeout_s, or close sessions that are no longer used.",
    )


def chunks(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    """Split a list into parts, for databases that limit the number of parameters.

    >>> [list(part) for part in chunks([1, 2, 3], 2)]
    [[1, 2], [3]]
    """
    return (items[start : start + size] for start in range(0, len(items), size))
