"""Create tables for tests of DML statements, and read their rows, files and change data."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql.api.deltalake_compat.handle.raw_table import RawTable
from deltasql.store.records import cdc_from_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.operations.table_stage import TableStage


def make(catalog: Catalog, *parts: pa.Table, name: str = "t", **options: Any) -> RawTable:
    """Write a table, one commit and one file per part, and return a handle on it."""
    for place, part in enumerate(parts):
        with catalog.begin() as tx:
            tx.write(name, part, **(options if place == 0 else {}))
    return handle(catalog, name)


def handle(catalog: Catalog, name: str = "t") -> RawTable:
    """Open a table at its latest version."""
    return RawTable(catalog, catalog.resolve(name))


@contextmanager
def opened(catalog: Catalog, name: str = "t") -> Iterator[TableStage]:
    """Open a table in a transaction that is rolled back."""
    tx = catalog.begin()
    try:
        yield tx.target(name)
    finally:
        tx.rollback()


def sorted_rows(catalog: Catalog, name: str = "t") -> list[dict[str, Any]]:
    """Return the rows of a table, sorted."""
    with opened(catalog, name) as target:
        return read(target)


def read(target: TableStage) -> list[dict[str, Any]]:
    """Return the rows that a transaction sees."""
    found = target.engine.collect(target.engine.scan(target.live(target.files())))
    return ordered(found.to_pylist())


def ordered(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows sorted by their representation."""
    return sorted(rows, key=repr)


def paths(catalog: Catalog, name: str = "t") -> set[str]:
    """Return the paths of a table's live files."""
    with opened(catalog, name) as target:
        return set(target.files()["path"].to_pylist())


def changes(catalog: Catalog, name: str = "t") -> list[dict[str, Any]]:
    """Return the change data of a table's latest version."""
    row = catalog.resolve(name)
    version = handle(catalog, name).snapshot.version
    files = catalog.store.query(
        "cdc_between", table_id=row.table_id, after=version - 1, last=version
    )
    found: list[dict[str, Any]] = []
    for action in map(cdc_from_row, files):
        table = pq.ParquetFile(f"{row.location}/{unquote(action.path)}").read()
        found += [{**action.partition_values, **each} for each in table.to_pylist()]
    return ordered(found)
