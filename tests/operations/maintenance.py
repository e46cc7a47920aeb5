"""Helpers for tests of table maintenance: a table with a published log, and readers of that log."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import duckdb_extensions
import pyarrow as pa

import deltasql
from deltasql.api.catalog.connect import close_all
from deltasql.api.deltalake_compat.delta_table import DeltaTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("text", pa.string())])


def numbers(first: int, last: int, part: str = "a") -> pa.Table:
    """Return rows with the ids first..last-1."""
    ids = range(first, last)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "part": pa.array([part] * len(ids), pa.string()),
            "text": pa.array([f"t{i}" for i in ids], pa.string()),
        }
    )


@contextmanager
def open_lake(uri: DeltaSqlUri, folder: Path, **settings: Any) -> Iterator[Catalog]:
    """Open a catalog that publishes every commit."""
    chosen: dict[str, Any] = {"mirror": {"mode": "sync"}, **settings}
    with deltasql.connect(uri, table={"data_root": str(folder / "lake")}, **chosen) as catalog:
        yield catalog
    close_all()  # catalogs that DeltaTable opened by URI


def opened(catalog: Catalog, name: str = "t") -> DeltaTable:
    """Return a DeltaTable at the latest version."""
    found = catalog.table(name)
    return DeltaTable(catalog.uri.with_table(found.name, found.namespace).to_string())


def published(catalog: Catalog, name: str = "t", version: int | None = None) -> Any:
    """Return deltalake's DeltaTable of the published log."""
    return deltalake.DeltaTable(catalog.table(name).location, version=version)


def stock_rows(catalog: Catalog, name: str = "t", version: int | None = None) -> list[Any]:
    """Return the rows that deltalake scans, sorted."""
    return in_order(pa.table(published(catalog, name, version).scan()))


def duckdb_rows(catalog: Catalog, name: str = "t") -> list[Any]:
    """Return the rows that DuckDB's delta extension reads, sorted."""
    found = _duckdb().execute("FROM delta_scan(?)", [catalog.table(name).location])
    return in_order(found.to_arrow_table())


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    duckdb_extensions.import_extension("delta")
    connection = duckdb.connect()
    connection.execute("LOAD delta; SET TimeZone = 'UTC'")
    return connection


def own_rows(catalog: Catalog, name: str = "t", version: int | None = None) -> list[Any]:
    """Return the rows that our DeltaTable reads, sorted."""
    table = opened(catalog, name)
    if version is not None:
        table.load_as_version(version)
    return in_order(table.to_pyarrow_table())


def in_order(rows: pa.Table) -> list[Any]:
    """Return rows as dicts, in an order that does not depend on the engine."""
    return sorted(rows.to_pylist(), key=lambda row: [(v is not None, str(v)) for v in row.values()])


def agree(catalog: Catalog, name: str = "t") -> list[Any]:
    """Return the rows; assert that we, deltalake and DuckDB read the same ones."""
    rows = own_rows(catalog, name)
    assert rows == stock_rows(catalog, name) == duckdb_rows(catalog, name)
    return rows


def data_files(catalog: Catalog, name: str = "t") -> set[str]:
    """Return the names of the files in the table's folder, without its log."""
    root = Path(catalog.table(name).location)
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in found if not str(path).startswith("_delta_log")}
