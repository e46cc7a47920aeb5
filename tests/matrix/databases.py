"""The databases of the matrix: PostgreSQL and what is in front of it, SQLite and DuckDB."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import sys
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import deltasql
from deltasql.exceptions import TxnLogStoreError
from tests.compat.environments import environment
from tests.hostile.tls import Authority
from tests.matrix import sqlite
from tests.matrix.behaviours import OK, check
from tests.matrix.cell import ROOT, Cell, Skipped, run_behaviours, run_module
from tests.matrix.postgres import (
    EMBEDDED,
    TOO_OLD,
    PostgresServer,
    debian,
    embedded,
    newest,
    own,
    running,
)
from tests.matrix.recovery import dump_results, point_in_time_results
from tests.matrix.replica import replica_results

if TYPE_CHECKING:
    from deltasql.uri import Pooler

Programs = Callable[[], Path]
DUCKDB = ("1.4.5", "1.5.6")
DUCKDB_REFUSED = ("1.3.2", "2.0.0")
_TLS_SETTINGS = {"ssl": "on", "ssl_cert_file": "localhost.pem", "ssl_key_file": "localhost.key"}
_ONLY_TLS = "hostssl all all 127.0.0.1/32 trust\n"


def cells() -> list[Cell]:
    """Return the cells of all databases."""
    servers: dict[str, Programs] = {_short(r): partial(embedded, r) for r in EMBEDDED}
    servers["15 of Debian"] = partial(debian, 15)
    servers["18"] = newest
    complete: dict[str, Programs] = {"15 of Debian": partial(debian, 15), "18": newest}
    poolers: dict[str, Pooler] = {"session": "none", "transaction": "transaction"}
    libraries = {sqlite.OLDEST: sqlite.OLDEST, sqlite3.sqlite_version: None}
    libraries[sqlite.NEWEST] = sqlite.NEWEST
    return [
        Cell("PostgreSQL", f"{_short(TOO_OLD)}, not supported", _old_postgres),
        *(Cell("PostgreSQL", release, partial(_postgres, of)) for release, of in servers.items()),
        *(
            Cell("PostgreSQL, read replica", release, partial(_on, replica_results, of))
            for release, of in complete.items()
        ),
        *(
            Cell("PostgreSQL, dump and restore", release, partial(_on, dump_results, of))
            for release, of in complete.items()
        ),
        *(
            Cell("PostgreSQL, point-in-time", release, partial(_on, point_in_time_results, of))
            for release, of in complete.items()
        ),
        Cell("PostgreSQL, TLS verify-full", "15 of Debian", _tls),
        *(
            Cell(f"PgBouncer, {mode} mode", "1.18 of Debian", partial(_pgbouncer, mode, pooler))
            for mode, pooler in poolers.items()
        ),
        Cell("SQLite", f"{sqlite.TOO_OLD}, not supported", _old_sqlite),
        *(Cell("SQLite", release, partial(_sqlite, of)) for release, of in libraries.items()),
        *(Cell("DuckDB", release, partial(_duckdb, release)) for release in DUCKDB),
        *(
            Cell("DuckDB", f"{release}, not supported", partial(_other_duckdb, release))
            for release in DUCKDB_REFUSED
        ),
    ]


def _short(release: str) -> str:
    return release.rpartition(".")[0]


def _postgres(programs: Programs, folder: Path) -> dict[str, str]:
    with running(programs(), folder / "server") as server:
        return _behaviours(server.uri().to_string(), folder)


def _old_postgres(folder: Path) -> dict[str, str]:
    with running(embedded(TOO_OLD), folder / "server") as server:
        uri = server.uri().to_string()
        found = run_module("tests.matrix.refused", ["PostgreSQL", uri], folder)
        count = server.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'dl\\_%'")
        check(count == [(0,)], "tables were created")
        return found


def _on(
    results: Callable[[Path, Path], dict[str, str]], programs: Programs, folder: Path
) -> dict[str, str]:
    return results(programs(), folder)


def _pgbouncer(mode: str, pooler: Pooler, folder: Path) -> dict[str, str]:
    from tests.pgbouncer import pgbouncer  # late import: it imports pytest

    if shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        raise Skipped("Debian's package pgbouncer is not installed")
    with (
        running(newest(), folder / "server") as server,
        pgbouncer(mode=mode, pooler=pooler, servers=20, address=server.address) as running_pooler,
    ):
        return _behaviours(running_pooler.uri(server.uri()).to_string(), folder)


def _tls(folder: Path) -> dict[str, str]:
    """Run a server that accepts only TLS, and verify its certificate and its name."""
    authority = Authority.new("Test CA")
    root = authority.write_root(folder / "root.pem")
    unknown = Authority.new("Test CA").write_root(folder / "unknown.pem")
    server = PostgresServer(debian(15), folder / "server", dict(_TLS_SETTINGS))
    server.create()
    authority.server_context(server.data, "localhost")
    for name in ("localhost.pem", "localhost.key"):
        (server.data / name).chmod(0o600)
        own(server.data / name)
    (server.data / "pg_hba.conf").write_text(_ONLY_TLS, "utf-8")
    server.start()
    try:
        verified = {"host": "localhost", "sslmode": "verify-full", "sslrootcert": root}
        for wrong in (
            {**verified, "sslrootcert": unknown},
            {**verified, "host": "127.0.0.1"},
            {"sslmode": "disable"},
        ):
            _is_refused(server, wrong)
        found = _behaviours(server.uri(**verified).to_string(), folder)
        return {**found, "wrong certificates refused": OK}
    finally:
        server.stop()


def _is_refused(server: PostgresServer, parts: Mapping[str, str]) -> None:
    try:
        with deltasql.connect(server.uri(**parts)) as catalog:
            catalog.tables()
    except TxnLogStoreError:
        return
    check(False, f"a connection with {parts} was accepted")


def _sqlite(library: str | None, folder: Path) -> dict[str, str]:
    return _behaviours(f"deltasql://sqlite/{folder}/meta.db", folder, **_library(library))


def _old_sqlite(folder: Path) -> dict[str, str]:
    uri = f"deltasql://sqlite/{folder}/meta.db"
    environment = _library(sqlite.TOO_OLD)
    found = run_module("tests.matrix.refused", ["SQLite", uri], folder, **environment)
    check(not (folder / "meta.db").exists(), "the database file was created")
    return found


def _library(release: str | None) -> dict[str, str]:
    return {} if release is None else {"LD_LIBRARY_PATH": str(sqlite.library_folder(release))}


def _duckdb(release: str, folder: Path) -> dict[str, str]:
    uri = f"deltasql://duckdb/{folder}/meta.duckdb"
    python = _with_duckdb(release)
    found = run_module("tests.matrix.duckdb_engine", [str(folder)], folder, python=python)
    return {**_behaviours(uri, folder, python=python), **found}


def _other_duckdb(release: str, folder: Path) -> dict[str, str]:
    uri = f"deltasql://duckdb/{folder}/meta.duckdb"
    python = _with_duckdb(release)
    found = run_module("tests.matrix.refused", ["DuckDB", uri], folder, python=python)
    check(not (folder / "meta.duckdb").exists(), "the database file was created")
    return found


def _with_duckdb(release: str) -> Path:
    """Return a Python with a release of DuckDB and the other packages of the lock file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = [re.split(r"[\[<>=]", each)[0] for each in project["dependencies"]]
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", lock, flags=re.MULTILINE))
    packages = [f"{name}=={pins[name]}" for name in names if name != "duckdb"]
    return environment(Path("duckdb") / release, [f"duckdb=={release}", *packages])


def _behaviours(
    catalog: str, folder: Path, *, python: Path | str = sys.executable, **environment: str
) -> dict[str, str]:
    location = str(folder / "lake")
    return run_behaviours(python, catalog, location, {}, folder, environment=environment)
