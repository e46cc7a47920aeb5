"""Helpers: tables whose files do not exist, and reading all pages of a list."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltasql.model.actions import AddFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.inspect.page import Page


SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


def add(name: str, day: str | None, size: int, records: int | None, **more: Any) -> AddFile:
    stats = None if records is None else json.dumps({"numRecords": records})
    path = f"day={day}/{name}.parquet"
    return AddFile(path, {"day": day}, size, 0, True, stats=stats, **more)


def commit(catalog: Catalog, *actions: Any, table: str = "sales") -> int:
    with catalog.begin() as tx:
        tx.stage_table(table, list(actions))
    return tx.versions[table]


def pages(call: Callable[..., Page[Any]], **options: Any) -> list[Any]:
    """Read a list page by page and return all its items."""
    found, cursor = [], None
    while True:
        page = call(**options, cursor=cursor)
        assert len(page.items) <= options["limit"]
        found += page.items
        cursor = page.next
        if cursor is None:
            return found
