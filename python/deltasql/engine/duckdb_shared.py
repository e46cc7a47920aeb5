"""One DuckDB for all engines of a process: starting one takes longer than a small operation.

Each engine has a database of its own in it, which is gone with the engine.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from deltasql.engine.duckdb_connection import connect, prepare, require_duckdb, told
from deltasql.engine.duckdb_scan import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

    from deltasql.config import EngineSettings

# A thread may take it again: the garbage collector closes engines in the middle of anything.
_lock = threading.RLock()
_numbers = count(1)
_LEAST_MEMORY = "1MB"


@dataclass(slots=True, eq=False)
class _Instance:
    root: duckdb.DuckDBPyConnection
    folder: str
    memory_limit: str
    """As it was given, or as DuckDB told it first: in round figures, each time a bit less."""
    users: int = 0


_instances: dict[tuple[str | None, int | None], _Instance] = {}
"""Those that are lent; one that failed is not here, and goes with its last user."""


@dataclass(slots=True)
class Lent:
    """A database of one engine; `cursor` opens further connections to it."""

    connection: duckdb.DuckDBPyConnection
    name: str
    _instance: _Instance = field(repr=False)
    _process: int = field(default_factory=os.getpid, repr=False)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return one more connection, since one has one open answer."""
        cursor = self.connection.cursor()
        prepare(cursor)
        cursor.execute(f"USE {self.name}")
        return cursor

    def give_back_memory(self) -> None:
        """Let the system have what queries freed, which DuckDB keeps for later ones."""
        # DuckDB does so whenever its limit is set, be it to what it is; nothing else asks for it.
        self._limit_memory(self._instance.memory_limit)

    def set_aside(self) -> None:
        """Put tables on disk until they are asked for, unless others use the same DuckDB."""
        with _lock:
            if self._instance.users == 1:
                self._limit_memory(_LEAST_MEMORY)
            self.give_back_memory()

    def _limit_memory(self, limit: str) -> None:
        import duckdb

        with suppress(duckdb.Error):  # it may hold more than that just now
            self.connection.execute(f"SET GLOBAL memory_limit = {literal(limit)}")

    def give_back(self) -> None:
        """Forget all that is in the database."""
        import duckdb

        if os.getpid() != self._process:
            _never_destroy(self.connection)
            return
        works = True
        try:
            self.connection.execute("USE memory")
            self.connection.execute(f"DETACH {self.name}")
        except duckdb.Error:
            works = False
        self.connection.close()
        with _lock:
            self._instance.users -= 1
            if not works:
                _take_out(self._instance)
            elif not self._instance.users and self._instance not in _instances.values():
                _close(self._instance)


def lend(settings: EngineSettings) -> Lent:
    """Lend a database of the DuckDB that has these settings; it is started if there is none."""
    require_duckdb()
    import duckdb

    key = (settings.memory_limit, settings.threads)
    with _lock, told():
        if key in _instances:
            try:
                return _lend(_instances[key])
            except (duckdb.FatalException, duckdb.InternalException):  # no good any more
                _take_out(_instances[key])
        _instances[key] = _start(settings)
        return _lend(_instances[key])


def lend_confined(settings: EngineSettings, folders: Sequence[str]) -> Lent:
    """Lend a DuckDB that nobody else has and that opens files only in some folders."""
    with told():
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
        limit = settings.memory_limit
        if limit is None:
            [(limit,)] = root.execute("SELECT current_setting('memory_limit')").fetchall()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return _Instance(root, folder, str(limit))


def _lend(instance: _Instance) -> Lent:
    name = f"engine_{next(_numbers)}"
    connection = instance.root.cursor()
    prepare(connection)
    connection.execute(f"ATTACH ':memory:' AS {name}")
    connection.execute(f"USE {name}")
    instance.users += 1
    return Lent(connection, name, instance)


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
    instance.root.close()
    shutil.rmtree(instance.folder, ignore_errors=True)


def _forget_inherited() -> None:
    """Set aside, in a forked child, what belongs to its parent."""
    global _lock
    _lock = threading.RLock()  # a thread that is not here may have it
    for instance in _instances.values():
        _never_destroy(instance.root)
    _instances.clear()


def _never_destroy(connection: duckdb.DuckDBPyConnection) -> None:
    # Its end would wait for threads that only the parent has.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


atexit.register(close_idle)
# The threads of a DuckDB are not there in a forked child, which would wait for them at its end.
os.register_at_fork(before=close_idle, after_in_child=_forget_inherited)
