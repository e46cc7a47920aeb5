"""One DuckDB for all engines of a process: starting one takes longer than a small operation.

Each engine has a connection of its own to it, and drops its tables when it ends.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import tempfile
import threading
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING

from deltasql.engine.duckdb.connection import connect, duckdb_errors, prepare, require_duckdb
from deltasql.engine.duckdb.scan import literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb

    from deltasql.config import EngineSettings

# A thread may take it again: the garbage collector closes engines in the middle of anything.
_lock = threading.RLock()
NUMBERS = count(1)
"""For the names of tables, which are those of the whole process."""


@dataclass(slots=True, eq=False)
class _Instance:
    root: duckdb.DuckDBPyConnection
    folder: str
    users: int = 0
    idle: list[duckdb.DuckDBPyConnection] = field(default_factory=list)
    """Connections that were given back: the first statement of a new one takes 0.5 ms."""


_instances: dict[tuple[str | None, int | None], _Instance] = {}
"""Those that are lent; one that failed is not here, and goes with its last user."""


@dataclass(slots=True)
class EngineDatabase:
    """The connection of one engine; `cursor` opens further ones to the same DuckDB."""

    connection: duckdb.DuckDBPyConnection
    _instance: _Instance = field(repr=False)
    _process: int = field(default_factory=os.getpid, repr=False)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return one more connection, since one has one open answer."""
        cursor = self.connection.cursor()
        prepare(cursor)
        return cursor

    def release(self, held: Mapping[str, str] = MappingProxyType({})) -> None:
        """Drop what the engine made, by name and statement; Arrow rows have no statement."""
        import duckdb

        if os.getpid() != self._process:
            _never_destroy(self.connection)
            return
        works = True
        try:
            for name, drop in held.items():
                if not drop:
                    self.connection.unregister(name)
            drops = [drop for drop in held.values() if drop]
            if drops:
                self.connection.execute(";".join(drops))
        except duckdb.Error:
            works = False
        with _lock:
            self._instance.users -= 1
            if works and self._instance in _instances.values():
                self._instance.idle.append(self.connection)
                return
            self.connection.close()
            if not works:
                _take_out(self._instance)
            elif not self._instance.users:
                _close(self._instance)


def open_database(settings: EngineSettings) -> EngineDatabase:
    """Lend a connection to the DuckDB that has these settings, which is started if need be."""
    require_duckdb()
    import duckdb

    key = (settings.memory_limit, settings.threads)
    with _lock, duckdb_errors():
        if key in _instances:
            try:
                return _lend(_instances[key])
            except (duckdb.FatalException, duckdb.InternalException):  # no good any more
                _take_out(_instances[key])
        _instances[key] = _start(settings)
        return _lend(_instances[key])


def open_sandbox(settings: EngineSettings, folders: Sequence[str]) -> EngineDatabase:
    """Lend a DuckDB that nobody else has and that opens files only in some folders."""
    with duckdb_errors():
        instance = _start(settings)
        allowed = ", ".join(map(literal, folders))
        instance.root.execute(f"SET GLOBAL allowed_directories = [{allowed}]")
        # It cannot be turned on again. What is put on disk for want of memory is still allowed.
        instance.root.execute("SET GLOBAL enable_external_access = false")
        return _lend(instance)


def _start(settings: EngineSettings) -> _Instance:
    # DuckDB would make one that every user of the machine may read.
    folder = tempfile.mkdtemp(prefix="deltasql-")
    try:
        root = connect(folder, settings)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return _Instance(root, folder)


def _lend(instance: _Instance) -> EngineDatabase:
    if instance.idle:
        connection = instance.idle.pop()
    else:
        connection = instance.root.cursor()
        prepare(connection)
    instance.users += 1
    return EngineDatabase(connection, instance)


def close_idle() -> None:
    """Close what no engine uses."""
    with _lock:
        for key in [key for key, each in _instances.items() if not each.users]:
            _close(_instances.pop(key))


def _take_out(instance: _Instance) -> None:
    """Lend an instance no more; its last user closes it."""
    for key in [key for key, each in _instances.items() if each is instance]:
        del _instances[key]
    if not instance.users:
        _close(instance)


def _close(instance: _Instance) -> None:
    for connection in (*instance.idle, instance.root):
        connection.close()
    shutil.rmtree(instance.folder, ignore_errors=True)


def _forget_inherited() -> None:
    """Set aside, in a forked child, what belongs to its parent."""
    global _lock
    _lock = threading.RLock()  # a thread that is not here may have it
    for instance in _instances.values():
        for connection in (*instance.idle, instance.root):
            _never_destroy(connection)
    _instances.clear()


def _never_destroy(connection: duckdb.DuckDBPyConnection) -> None:
    # Its end would wait for threads that only the parent has.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


atexit.register(close_idle)
# The threads of a DuckDB are not there in a forked child, which would wait for them at its end.
os.register_at_fork(before=close_idle, after_in_child=_forget_inherited)
