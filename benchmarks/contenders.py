"""Create the systems that are compared, for each backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.ducklake import DuckLake
from benchmarks.floors import DuckdbFloor, PostgresFloor, PostgresRowLockFloor, SqliteFloor
from benchmarks.ours import Deltasql
from benchmarks.peers import Deltalake

if TYPE_CHECKING:
    from benchmarks.harness import Contender
    from benchmarks.workspace import Workspace

BACKENDS = ("sqlite", "postgres", "duckdb")


def floors(workspace: Workspace) -> list[Contender]:
    """Return the plain SQL floors; for PostgreSQL, one statement and one transaction."""
    return [
        SqliteFloor(workspace.new_folder("floor-sqlite")),
        PostgresFloor(workspace.new_database()),
        PostgresRowLockFloor(workspace.new_database()),
        DuckdbFloor(workspace.new_folder("floor-duckdb")),
    ]


def ducklake(workspace: Workspace, backend: str, style: str = "inline") -> DuckLake:
    """Return a new DuckLake catalog on a backend."""
    lake = DuckLake(backend, workspace.new_folder(f"ducklake-{backend}"), style=style)
    return lake.on_database(workspace.new_database()) if backend == "postgres" else lake


def deltalake(workspace: Workspace) -> Deltalake:
    """Return a new folder with tables of deltalake."""
    return Deltalake(workspace.new_folder("deltalake"))


def deltasql(workspace: Workspace, backend: str, *, mirror: str = "off") -> Deltasql:
    """Return a new deltasql catalog on a backend."""
    database = workspace.new_database() if backend == "postgres" else ""
    folder = workspace.new_folder(f"deltasql-{backend}")
    return Deltasql(backend, folder, database, mirror=mirror)
