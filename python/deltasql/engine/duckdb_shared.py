"""One DuckDB for all engines of a process: starting one takes longer than a small operation.

Each engine has a database of its own in it, which is gone with the engine.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from deltasql.engine.duckdb_connection import connect, prepare, told

if TYPE_CHECKING:
    import duckdb

    from deltasql.config import EngineSettings

_lock = threading.Lock()
_numbers = count(1)


@dataclass(slots=True)
class _Instance:
    root: duckdb.DuckDBPyConnection
    folder: str
    users: int = 0


_instances: dict[tuple[str | None, int | None], _Instance] = {}


@dataclass(slots=True)
class Lent:
    """A database of one engine; `cursor` opens further connections to it."""

    connection: duckdb.DuckDBPyConnection
    name: str
    _instance: _Instance = field(repr=False)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return one more connection, since one has one open answer."""
        cursor = self.connection.cursor()
        prepare(cursor)
        cursor.execute(f"USE {self.name}")
        return cursor

    def give_back(self) -> None:
        """Forget all that is in the database."""
        import duckdb

        with suppress(duckdb.Error):  # what is broken is not lent again
            self.connection.execute("USE memory")
            self.connection.execute(f"DETACH {self.name}")
        self.connection.close()
        with _lock:
            self._instance.users -= 1


def lend(settings: EngineSettings) -> Lent:
    """Lend a database of the DuckDB that has these settings; it is started if there is none."""
    import duckdb

    key = (settings.memory_limit, settings.threads)
    with _lock:
        if key in _instances:
            try:
                return _lend(_instances[key])
            except duckdb.Error:  # a fatal error made it unusable
                _close(_instances.pop(key))
        # DuckDB makes it when it has to put something there.
        folder = os.path.join(tempfile.gettempdir(), f"deltasql-{uuid.uuid4()}")
        _instances[key] = _Instance(connect(folder, settings), folder)
        with told():
            return _lend(_instances[key])


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


def _close(instance: _Instance) -> None:
    instance.root.close()
    shutil.rmtree(instance.folder, ignore_errors=True)


atexit.register(close_idle)
# The threads of a DuckDB are not there in a forked child, which would wait for them at its end.
os.register_at_fork(before=close_idle)
