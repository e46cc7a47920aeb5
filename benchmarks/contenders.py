"""Who takes part, by backend; deltasql joins as soon as it can be imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import ours
from benchmarks.floors import DuckdbFloor, PostgresFloor, PostgresRowLockFloor, SqliteFloor
from benchmarks.peers import Deltalake, DuckLake

if TYPE_CHECKING:
    from benchmarks.harness import Contender
    from benchmarks.workspace import Workspace

BACKENDS = ("sqlite", "postgres", "duckdb")


def floors(workspace: Workspace) -> list[Contender]:
    """Return the bare-SQL floors; PostgreSQL has two, one statement and one transaction."""
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
    """Return a new folder of stock Delta tables."""
    return Deltalake(workspace.new_folder("deltalake"))


def deltasql(workspace: Workspace, backend: str) -> list[Contender]:
    """Return deltasql on a backend, or nothing while it cannot be imported."""
    if not ours.available():
        return []
    if backend == "postgres":
        return [ours.Deltasql(backend, workspace.new_folder("ours"), workspace.new_database())]
    return [ours.Deltasql(backend, workspace.new_folder("ours"))]
