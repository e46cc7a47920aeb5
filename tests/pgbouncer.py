"""Runs PgBouncer in front of the PostgreSQL server of the tests."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.uri import DeltaSqlUri, Pooler

SETTINGS = """
[databases]
{database} = host={host} port={port} dbname={database} user={user} {password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {servers}
logfile = {folder}/log
{more}
"""


class PgBouncer:
    """A running PgBouncer."""

    def __init__(self, port: int, pooler: Pooler | None) -> None:
        self._port, self._pooler = port, pooler

    def uri(self, uri: DeltaSqlUri, **changes: object) -> DeltaSqlUri:
        """Return the URI of the same catalog through PgBouncer."""
        place = {"host": "127.0.0.1", "port": self._port, "sslmode": "disable"}
        changed = {**place, "pooler": self._pooler, **changes}
        return replace(uri, **changed)  # type: ignore[arg-type]


@contextmanager
def pgbouncer(
    *,
    mode: str = "transaction",
    pooler: Pooler | None = None,
    servers: int = 2,
    more: str = "",
    address: str | None = None,
) -> Iterator[PgBouncer]:
    """Run PgBouncer during a block; skip the test if it is not installed.

    `pooler` is the value of that parameter in the catalog URIs. `address` is the server, by default
    that of the tests.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed: install the package pgbouncer")
    with psycopg.connect(address or os.environ["TEST_DATABASE_URL"]) as connection:
        server = {
            "database": connection.info.dbname,
            "host": connection.info.host,
            "port": connection.info.port,
            "user": connection.info.user,
            "password": f"password={connection.info.password}" if connection.info.password else "",
        }
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="deltasql-bouncer-") as name:
        folder = Path(name)
        text = SETTINGS.format(
            **server, listen_port=port, mode=mode, servers=servers, folder=folder, more=more
        )
        (folder / "pgbouncer.ini").write_text(text, "utf-8")
        owner = _owner(str(server["host"]))
        if owner is not None:
            for path in (folder, folder / "pgbouncer.ini"):
                os.chown(path, owner, -1)
        process = subprocess.Popen(
            [program, "--quiet", str(folder / "pgbouncer.ini")], user=owner, cwd=folder
        )
        try:
            _wait_for(port, process)
            yield PgBouncer(port, pooler)
        finally:
            process.terminate()
            process.wait(timeout=10)


def _owner(host: str) -> int | None:
    """Return the user to run as: PgBouncer refuses root; the owner of the socket can connect."""
    if os.getuid() != 0:
        return None
    owner = os.stat(host).st_uid if host.startswith("/") else 0
    return owner or pwd.getpwnam("nobody").pw_uid


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(500):
        assert process.poll() is None, "PgBouncer ended"
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.01)
        else:
            return
    raise TimeoutError("PgBouncer does not listen")
