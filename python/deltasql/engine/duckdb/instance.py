"""DuckDB instances that the engines of a process share.

Instances are shared because starting an instance takes longer than a small operation. Each engine
has its own connection and drops its tables when it is closed.
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

from deltasql.engine.duckdb.connection import configure, connect, duckdb_errors, require_duckdb
from deltasql.engine.duckdb.scan import literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb

    from deltasql.config import EngineSettings

# Reentrant, because the garbage collector may close an engine while this thread holds the lock.
_lock = threading.RLock()
NUMBERS = count(1)
"""Counter for table names, which must be unique in the process."""


@dataclass(slots=True, eq=False)
class _Instance:
    root: duckdb.DuckDBPyConnection
    folder: str
    users: int = 0
    idle: list[duckdb.DuckDBPyConnection] = field(default_factory=list)
    """Released connections, to be reused: the first statement on a new connection takes 0.5 ms."""


_instances: dict[tuple[str | None, int | None], _Instance] = {}
"""Shared instances by settings. A failed instance is removed, and its last user closes it."""


@dataclass(slots=True)
class EngineDatabase:
    """The connection of one engine; `cursor` opens more connections to the same instance."""

    connection: duckdb.DuckDBPyConnection
    _instance: _Instance = field(repr=False)
    _process: int = field(default_factory=os.getpid, repr=False)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Open another connection, because a connection can have only one open result."""
        cursor = self.connection.cursor()
        configure(cursor)
        return cursor

    def release(self, objects: Mapping[str, str] = MappingProxyType({})) -> None:
        """Drop the objects of an engine, and release its connection for reuse.

        `objects` maps names to DROP statements. The statement is empty for registered Arrow data.
        """
        import duckdb

        if os.getpid() != self._process:
            _never_destroy(self.connection)
            return
        works = True
        try:
            for name, drop in objects.items():
                if not drop:
                    self.connection.unregister(name)
            drops = [drop for drop in objects.values() if drop]
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
                _retire(self._instance)
            elif not self._instance.users:
                _close(self._instance)


def open_database(settings: EngineSettings) -> EngineDatabase:
    """Return a connection to the shared instance with these settings.

    The instance is started if there is none.
    """
    require_duckdb()
    import duckdb

    key = (settings.memory_limit, settings.threads)
    with _lock, duckdb_errors():
        if key in _instances:
            try:
                return _borrow(_instances[key])
            except (duckdb.FatalException, duckdb.InternalException):  # the instance is invalidated
                _retire(_instances[key])
        _instances[key] = _start(settings)
        return _borrow(_instances[key])


def open_sandbox(settings: EngineSettings, folders: Sequence[str]) -> EngineDatabase:
    """Start a private instance, which can open files only in these folders."""
    with duckdb_errors():
        instance = _start(settings)
        allowed = ", ".join(map(literal, folders))
        instance.root.execute(f"SET GLOBAL allowed_directories = [{allowed}]")
        # A query cannot enable access again. DuckDB can still spill to the temporary folder.
        instance.root.execute("SET GLOBAL enable_external_access = false")
        return _borrow(instance)


def _start(settings: EngineSettings) -> _Instance:
    # Create the folder here: every user of the machine could read a folder that DuckDB creates.
    folder = tempfile.mkdtemp(prefix="deltasql-")
    try:
        root = connect(folder, settings)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return _Instance(root, folder)


def _borrow(instance: _Instance) -> EngineDatabase:
    if instance.idle:
        connection = instance.idle.pop()
    else:
        connection = instance.root.cursor()
        configure(connection)
    instance.users += 1
    return EngineDatabase(connection, instance)


def close_idle() -> None:
    """Close the instances that no engine uses."""
    with _lock:
        for key in [key for key, each in _instances.items() if not each.users]:
            _close(_instances.pop(key))


def _retire(instance: _Instance) -> None:
    """Stop sharing an instance; its last user closes it."""
    for key in [key for key, each in _instances.items() if each is instance]:
        del _instances[key]
    if not instance.users:
        _close(instance)


def _close(instance: _Instance) -> None:
    for connection in (*instance.idle, instance.root):
        connection.close()
    shutil.rmtree(instance.folder, ignore_errors=True)


def _forget_inherited() -> None:
    """In a forked child, forget the instances of the parent process without closing them."""
    global _lock
    _lock = threading.RLock()  # a thread of the parent may hold the old one
    for instance in _instances.values():
        for connection in (*instance.idle, instance.root):
            _never_destroy(connection)
    _instances.clear()


def _never_destroy(connection: duckdb.DuckDBPyConnection) -> None:
    # Closing the connection would wait for threads that exist only in the parent process. Leak a
    # reference, so that Python never closes it.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


atexit.register(close_idle)
# A forked child does not have DuckDB's threads, and would wait for them forever when it exits.
os.register_at_fork(before=close_idle, after_in_child=_forget_inherited)
