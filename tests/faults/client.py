"""A client that commits to its tables, and the faults that are injected on the way."""

from __future__ import annotations

import errno
import os
import random
import signal
import sqlite3
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd  # noqa: F401  pyarrow imports it with its first array: before the fork is cheaper
import psycopg
import pyarrow as pa

import deltasql
import deltasql.api.catalog.catalog
import deltasql.engine.duckdb.engine
import deltasql.operations.merge.merge
from deltasql.phases import hooked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from deltasql import Catalog, MultiTableTransaction
    from deltasql.uri import DeltaSqlUri
    from tests.faults.cells import Cell, Operation

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64())])
Rows = dict[int, int]
"""Values by id: every id occurs once, so that a duplicated row is noticed."""
FIRST: Rows = dict.fromkeys(range(10), 0)
WARM_UP: Rows = {50: 0}
ANOTHER: Rows = {90: 9}
CHANGE: dict[Operation, Rows] = {
    "append": dict.fromkeys(range(100, 105), 1),
    "merge": dict.fromkeys(range(5, 15), 1),
    "overwrite": dict.fromkeys(range(200, 205), 1),
}
_SOON_S = 0.006


def changed(rows: Rows, operation: Operation) -> Rows:
    """Return the rows of a table after the operation."""
    return CHANGE[operation] | ({} if operation == "overwrite" else rows | CHANGE[operation])


def arrow(rows: Rows) -> pa.Table:
    """Return rows as an Arrow table."""
    return pa.table({"id": list(rows), "value": list(rows.values())}, SCHEMA)


def open_client(uri: DeltaSqlUri, folder: Path, mirror: str = "sync") -> Catalog:
    """Open a catalog whose mirror retries without a backoff."""
    return deltasql.connect(
        uri,
        mirror={"mode": mirror, "initial_backoff_s": 0, "max_backoff_s": 0},
        table={"data_root": str(folder / "lake")},
        retry={"initial_backoff_ms": 1},
    )


def change(tx: MultiTableTransaction, tables: Sequence[str], operation: Operation) -> None:
    """Apply the operation to every table."""
    rows = arrow(CHANGE[operation])
    for table in tables:
        if operation == "merge":
            merger = tx.merge(table, rows, "s.id = t.id", "s", "t")
            merger.when_matched_update_all().when_not_matched_insert_all().execute()
        else:
            tx.write(table, rows, mode=operation)


def append(catalog: Catalog, tables: Sequence[str], rows: Rows) -> None:
    """Append rows to every table, in one commit."""
    with catalog.begin() as tx:
        for table in tables:
            tx.write(table, arrow(rows))


@dataclass(slots=True)
class Strike:
    """A hook that acts once, at the nth time that this thread reaches a point."""

    cell: Cell
    act: Callable[[], None]
    seen: int = 0
    thread: int = field(default_factory=threading.get_ident)

    def __call__(self, phase: str) -> None:
        if phase == self.cell.point and threading.get_ident() == self.thread:
            self.seen += 1
            if self.seen == self.cell.nth:
                self.act()

    @property
    def has_struck(self) -> bool:
        return self.seen >= self.cell.nth


def run_commit(catalog: Catalog, cell: Cell, tables: Sequence[str], strike: Strike) -> None:
    """Commit with the fault injected."""
    if cell.way == "warm":
        append(catalog, tables, WARM_UP)
    with hooked(strike), catalog.begin() as tx:
        change(tx, tables, cell.operation)


def commit_and_die(
    _: Any,
    uri: DeltaSqlUri,
    folder: Path,
    cell: Cell,
    tables: list[str],
    acknowledgement: Path,
    seed: str,
) -> None:
    """Commit in a separate process and die; write to the file once it is acknowledged."""
    end = _end if cell.fault == "kill" else _end_soon(random.Random(seed).uniform(0, _SOON_S))
    with open_client(uri, folder) as catalog:
        strike = Strike(cell, end)
        run_commit(catalog, cell, tables, strike)
        acknowledgement.write_text("acknowledged")
        assert strike.has_struck, f"{cell.point} was not reached"
        threading.Event().wait(30)  # the kill follows


def commit_on_message(
    uri: DeltaSqlUri, folder: Path, operation: Operation, tables: list[str], pipe: Any
) -> None:
    """Stage the changes, report that they are ready, and commit on a message."""
    with open_client(uri, folder) as catalog, catalog.begin() as tx:
        change(tx, tables, operation)
        pipe.send("ready")
        pipe.recv()
        tx.commit()
        pipe.send("acknowledged")


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _end_soon(wait_s: float) -> Callable[[], None]:
    def end() -> None:
        time.sleep(wait_s)
        _end()

    # The thread exists before the fault: creating it then would take too long.
    return threading.Thread(target=end, daemon=True).start


def fault_of(cell: Cell) -> BaseException:
    """Return the error to raise at the point."""
    if cell.fault == "error":
        return OSError(errno.EIO, "the disk is broken")
    if cell.backend == "postgres":
        return psycopg.OperationalError("the connection was lost")
    if cell.backend == "duckdb":
        return duckdb.TransactionException("Conflict on update")
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return busy
