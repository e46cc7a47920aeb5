"""DuckDB catalogs as targets: each table of a catalog is published there, those to come too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.mirror.targets import DUCKDB, OWN, insert_target
from deltasql.store.records import TableRow

if TYPE_CHECKING:
    from collections.abc import Collection

    from deltasql.store.dialect import Session
    from deltasql.store.store import Store

_KEY = "duckdb_catalog:"


def add_catalog_target(
    store: Store, location: str, tables: Collection[TableRow] | None = None
) -> None:
    """Publish these tables to a DuckDB catalog after each commit; None is all, also later ones."""
    with store.change() as (session, _):
        session.execute("delete_catalog_target", key=_KEY + location)
        if tables is None:
            session.insert("insert_catalog_target", [(_KEY + location, location)])
            rows = session.query("list_tables", namespace=None)
            members = [TableRow.from_row(row) for row in rows]
        else:
            session.execute("delete_view_targets", location=location)
            members = list(tables)
        for table in members:
            _insert(session, table, location)
        session.execute("count_all_further_targets")


def join_catalog_targets(session: Session, table: TableRow) -> None:
    """Let a new table be shown by the DuckDB catalogs that show all tables."""
    for (location,) in session.query("catalog_targets", prefix=_KEY):
        _insert(session, table, location)
        session.execute("count_further_targets", table_id=table.table_id)


def catalog_locations(store: Store) -> list[str]:
    """Return every DuckDB catalog that some table is published to."""
    return [row[0] for row in store.query("view_locations")]


def _insert(session: Session, table: TableRow, location: str) -> None:
    insert_target(session, table, OWN)
    insert_target(session, table, f"{DUCKDB}:{location}", DUCKDB, location)
