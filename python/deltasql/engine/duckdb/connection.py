"""Connect to DuckDB: to a private in-memory database, or to an instance that engines share.

No database has network access. Each uses UTC and spills to a folder. Instances are shared because
starting an instance takes longer than a small operation. Each engine has its own connection and
drops its tables when it is closed.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import shutil
import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from deltasql.engine.duckdb.scan import literal
from deltasql.engine.parquet.file_errors import DAMAGED_HELP, missing_file
from deltasql.exceptions import MissingDriverError, TxnLogEngineError
from deltasql.exceptions.releases import check_release
from deltasql.storage.platform import register_at_fork

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import duckdb

    from deltasql.config import EngineSettings

# Reentrant, because the garbage collector may close an engine while this thread holds the lock.
_lock = threading.RLock()
NUMBERS = count(1)
"""Counter for table names, which must be unique in the process."""


def require_duckdb() -> None:
    """Raise an error that says how to install DuckDB if it is missing or not supported."""
    try:
        import duckdb
    except ImportError as error:
        raise MissingDriverError(driver="duckdb", extra="duckdb") from error
    check_release("DuckDB", duckdb.__version__)


def connect(folder: str, settings: EngineSettings | None = None) -> duckdb.DuckDBPyConnection:
    """Open an in-memory database that spills to a folder."""
    require_duckdb()
    import duckdb

    options: dict[str, Any] = {
        # Never download extensions automatically: without a network, the download may hang.
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "temp_directory": folder,
        # Each file is read only once, so a cache of files would waste memory.
        "enable_external_file_cache": False,
    }
    if settings is not None and settings.memory_limit is not None:
        options["memory_limit"] = settings.memory_limit
    if settings is not None and settings.threads is not None:
        options["threads"] = settings.threads
    with duckdb_errors():
        connection = duckdb.connect(":memory:", config=options)
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        # A table name in a query must never resolve to a Python variable of the caller.
        connection.execute("SET GLOBAL python_enable_replacements = false")
        configure(connection)
    return connection


def configure(connection: duckdb.DuckDBPyConnection) -> None:
    """Apply the settings that DuckDB stores per connection, not per instance."""
    import duckdb

    # The progress bar would write to standard output. In a notebook without ipywidgets, DuckDB
    # has no progress bar and rejects the setting.
    with suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")


@contextmanager
def temporary_database(
    settings: EngineSettings | None = None,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an in-memory database; close it and delete its folder at the end of the block."""
    folder = tempfile.mkdtemp(prefix="deltasql-")
    try:
        connection = connect(folder, settings)
        try:
            with duckdb_errors():
                yield connection
        finally:
            connection.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def duckdb_errors() -> Iterator[None]:
    """Raise `MissingDataFilesError` or `TxnLogEngineError` instead of DuckDB's own errors."""
    require_duckdb()
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise TxnLogEngineError(
            str(error),
            engine="duckdb",
            help="Raise engine.memory_limit, or free disk space for temporary files.",
        ) from error
    except duckdb.IOException as error:
        message = str(error).partition("\n\nLINE ")[0]
        path = _file_in(message)
        is_temporary = path is not None and os.path.basename(path).startswith("duckdb_temp")
        if path is not None and not is_temporary and not os.path.exists(path):
            raise missing_file(path, None) from error
        raise TxnLogEngineError(
            message,
            engine="duckdb",
            help="Check the permissions of the file and the free disk space.",
        ) from error
    except duckdb.InvalidInputException as error:
        # DuckDB raises this error for damaged files, but also for invalid function arguments.
        help_ = f"If this message names a file, that file is damaged. {DAMAGED_HELP}"
        raise TxnLogEngineError(str(error), engine="duckdb", help=help_) from error
    except duckdb.Error as error:
        raise TxnLogEngineError(str(error), engine="duckdb") from error


def _file_in(message: str) -> str | None:
    """Return the local file that an error message names by its path or by its glob pattern.

    >>> _file_in('IO Error: No files found that match the pattern "/lake/a[*].parquet"')
    '/lake/a*.parquet'
    """
    found = re.search(r'"(/.+)"', message)
    return None if found is None else re.sub(r"\[([*?\[])\]", r"\1", found.group(1))


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
    _lock = threading.RLock()  # a thread of the parent may hold the old lock
    for instance in _instances.values():
        for connection in (*instance.idle, instance.root):
            _never_destroy(connection)
    _instances.clear()


def _never_destroy(connection: duckdb.DuckDBPyConnection) -> None:
    # Closing the connection would wait for threads that exist only in the parent process. Leak a
    # reference, so that Python never closes it.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


atexit.register(close_idle)
# Close idle instances before a fork: the child has no threads of DuckDB, so it would wait for them
# forever when it exits.
register_at_fork(before=close_idle, after_in_child=_forget_inherited)
