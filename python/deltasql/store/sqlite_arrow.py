"""Bulk reads of a SQLite file as Arrow.

The Arrow driver brings a copy of SQLite of its own. When a process closes any descriptor of a
file, POSIX drops all its locks on that file: a copy that closes strips the other of its locks,
and another process may then take the log away from under it. So all stores of a process share
one reader per file, which is closed after the last connection of the last store.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING
from urllib.parse import quote

from deltasql.store import fork
from deltasql.store.adbc import AdbcReader

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

_readers: dict[str, ArrowReader] = {}
_guard = threading.Lock()
_inherited: list[object] = []


class ArrowReader:
    """The one connection of the Arrow driver to a file."""

    def __init__(self, key: str) -> None:
        self.key, self.users = key, 0
        self._lock = threading.Lock()
        self._connection: AdbcReader | None = None
        fork.watch(self, after_pools=True)

    def read(self, text: str) -> pa.Table:
        """Run one read; it sees what was committed before."""
        with self._lock:
            if self._connection is None:
                self._connection = _connect(self.key)
            return self._connection.read(text)

    def close(self) -> None:
        """Close the connection; the next read opens it again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def before_fork(self, *, quiet: bool) -> bool:
        self._lock.acquire()
        if quiet:
            self._close()
        return quiet

    def after_fork(self, *, in_child: bool) -> None:
        if in_child and self._connection is not None:
            _inherited.append(self._connection)
            self._connection = None
        self._lock.release()


def open_reader(path: Path) -> ArrowReader:
    """Return the reader of a file and count one more store that uses it."""
    key = os.fspath(path.resolve())
    with _guard:
        reader = _readers.get(key)
        if reader is None:
            reader = _readers[key] = ArrowReader(key)
        reader.users += 1
    return reader


def release_reader(reader: ArrowReader, *, in_use: bool) -> None:
    """Count one store less; the last one closes, unless it still has connections `in_use`."""
    with _guard:
        reader.users -= 1
        if reader.users == 0 and not in_use:
            _readers.pop(reader.key, None)
            reader.close()


def _connect(path: str) -> AdbcReader:
    import adbc_driver_sqlite  # needed by bulk reads only

    return AdbcReader(adbc_driver_sqlite, f"file:{quote(path)}?mode=ro")
