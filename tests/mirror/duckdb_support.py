"""Helpers for tests of DuckDB catalog files: query one with plain DuckDB, here or in a process."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from tests.oracles.states import Rows, arrow_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog

IDS = pa.schema([("id", pa.int64())])


@contextmanager
def opened(path: Path, time_zone: str = "UTC") -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a catalog file in a session with a time zone."""
    with duckdb.connect(str(path), read_only=True) as db:
        db.execute("SET TimeZone = $zone", {"zone": time_zone})
        yield db


def view_rows(path: Path, name: str) -> Rows:
    """Return the rows of a view in the normal form of the oracles."""
    with opened(path) as db:
        return arrow_rows(db.execute(f"SELECT * FROM {name}").to_arrow_table())


def elsewhere(path: Path, statement: str) -> list[Any]:
    """Run a query in plain DuckDB, in a process that does not import deltasql."""
    code = (
        "import duckdb, json, sys; db = duckdb.connect(sys.argv[1]); "
        "db.execute('SET enable_progress_bar = false'); "  # it prints to standard output
        "print(json.dumps(db.execute(sys.argv[2]).fetchall(), default=str)); "
        "assert not any(name.startswith('deltasql') for name in sys.modules)"
    )
    command = [sys.executable, "-I", "-c", code, str(path), statement]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return [tuple(row) for row in json.loads(result.stdout)]


def append(catalog: Catalog, name: str, *ids: int) -> None:
    """Append rows to a table with one column."""
    with catalog.begin() as tx:
        tx.write(name, pa.table({"id": pa.array(ids, pa.int64())}))


def views(path: Path) -> set[str]:
    """Return the views of a catalog file, with their schemas."""
    rows = elsewhere(path, "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal")
    return {f"{schema}.{name}" for schema, name in rows}
