"""DuckDB catalogs as targets: each table of a catalog is published there, those to come too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.mirror.publish.targets import DUCKDB, OWN, catalog_key, insert_target
from deltasql.model.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from deltasql.store.dialect import Session
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store


def add_catalog_target(
    store: Store,
    location: str,
    tables: Collection[TableRow] | None,
    shown: Mapping[int, int],
) -> None:
    """Publish these tables to a DuckDB catalog after each commit; None is all, also later ones.

    `shown` are the versions that it has already, by table.
    """
    name = f"{DUCKDB}:{location}"
    with store.change() as (session, _):
        session.execute("delete_catalog_target", key=catalog_key(location))
        session.execute("delete_view_targets", location=location)
        if tables is None:
            session.insert("insert_catalog_target", [(catalog_key(location), location)])
            join_catalog_targets(session)
        for table in tables or ():
            insert_target(session, table, OWN)
            insert_target(session, table, name, DUCKDB, location)
        for table_id, version in shown.items():
            session.execute(
                "set_published_version", table_id=table_id, target=name, version=version
            )
        session.execute("count_all_further_targets")


def join_catalog_targets(session: Session) -> None:
    """Let tables that are new be shown by the DuckDB catalogs that show all tables."""
    # Its own location comes first: without that row, a view would pass for it.
    session.execute("add_missing_targets")
    if session.execute("add_missing_views", prefix=catalog_key(""), now_ms=now_ms()):
        session.execute("count_all_further_targets")
