"""What a database must offer: connections, sessions, types, and a name for each kind of failure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pyarrow as pa

    from deltasql._core import IndexedFiles, LogRows
    from deltasql.store.append_one import OneFilePlan

Row = tuple[Any, ...]


class Fault(enum.Enum):
    """Why a statement failed, as far as the caller must act differently."""

    RETRY = "another transaction was in the way; the same work may succeed when tried again"
    BUSY = "a lock was not free, or a statement not done, within its limit"
    LOST = "the connection is gone; whether a COMMIT happened must be looked up"
    DUPLICATE = "a unique key is taken"
    OTHER = "the statement itself is wrong, or the database refuses it"


class Session(Protocol):
    """One connection while it is borrowed: statements by name, in or out of a transaction."""

    def query(self, name: str, /, **params: Any) -> list[Row]: ...

    def execute(self, name: str, /, **params: Any) -> int:
        """Run one statement and return how many rows it changed."""

    def insert(self, name: str, rows: Sequence[Row]) -> None:
        """Insert rows given in the block's column order, by the fastest way for their number."""

    def insert_files(
        self, files: IndexedFiles, table_id: int, partition_ids: list[int], version: int
    ) -> None:
        """Insert the files of a commit, `insert_add_file` for each of them."""

    def insert_log(self, name: str, rows: LogRows) -> None:
        """Insert rows that the core makes while they are sent."""

    def begin(self, *, is_bulk: bool = False) -> None:
        """Start a transaction that may write; in bulk, each statement may take longer."""

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Give up the transaction; does nothing when there is none."""

    def script(self, text: str) -> None:
        """Run several statements without parameters (migrations)."""

    def batch(self) -> AbstractContextManager[None]:
        """Statements inside need no answer before the end, so they may travel together."""


class Appended(NamedTuple):
    """What became of an append of one file."""

    version: int
    committed_at_ms: int


class AppendOne(Protocol):
    """Append one file; None when the head is not as known.

    `sending` is called before anything is written.
    """

    def __call__(
        self, session: Session, plan: OneFilePlan, sending: Callable[[], None]
    ) -> Appended | None: ...


class Dialect(Protocol):
    """One kind of database."""

    name: str
    types: dict[str, str]
    is_full: bool
    """Whether a commit waits for the disk."""
    bulk_files: int
    """From how many files on `arrow` is faster than `query`."""

    @property
    def connections_opened(self) -> int:
        """How often a server was connected to; more than before, it may have been restarted."""

    @property
    def append_one(self) -> AppendOne | None:
        """The short way to append one file, if there is one."""

    @property
    def path(self) -> Path | None:
        """The file of the database; None for a server and for memory."""

    def create_database(self) -> None:
        """Create the file of the database, where it is one; it may exist already."""

    def session(self) -> AbstractContextManager[Session]:
        """Borrow a connection from the pool; it creates no database."""

    def arrow(self, name: str, /, **params: Any) -> pa.Table:
        """Run a bulk read and return its rows as Arrow."""

    def ledger(self, session: Session) -> list[Row] | None:
        """Return (number, checksum) of the applied migrations; None in an empty database."""

    def classify(self, error: BaseException) -> Fault: ...

    def errors(self) -> tuple[type[BaseException], ...]:
        """The driver's exception classes, for `except`."""

    def usage(self) -> dict[str, int]:
        """How many connections are lent, idle, and allowed."""

    def write_turn(self) -> AbstractContextManager[None]:
        """Wait for this process's turn to write, where the database has no fair queue."""

    def close(self) -> None: ...


def chunks(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    """Split a list for databases that limit the number of parameters.

    >>> [list(part) for part in chunks([1, 2, 3], 2)]
    [[1, 2], [3]]
    """
    return (items[start : start + size] for start in range(0, len(items), size))
