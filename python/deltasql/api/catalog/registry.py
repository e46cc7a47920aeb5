"""Names and locations of a catalog's tables: create, rename, drop and undrop."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TableExistsError, TxnLogConfigError, TxnLogTableNotFoundError
from deltasql.operations import create
from deltasql.storage import absolute_location, join_location
from deltasql.store.dialect import Fault, Session
from deltasql.store.locations import (
    drop_table,
    reject_nested_location,
    reject_replica,
    reject_shared_location,
    tables_at,
)
from deltasql.store.records import live_name
from deltasql.uri import split_table_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.commit.staged import Staged
    from deltasql.store.records import TableRow


def stage_create(
    catalog: BaseCatalog,
    name: str,
    schema: object,
    location: str | None,
    *,
    allow_nested_location: bool = False,
    **options: Any,
) -> Staged:
    """Stage a new table at its location, and create the catalog if there is none."""
    namespace, short = split_table_name(name)
    catalog.store.create()
    place = absolute_location(location or _default_location(catalog, namespace, short))
    allow_nested = allow_nested_location or catalog.config.table.allow_nested_location
    reject_shared_location(catalog.store.query, place, allow_nested=allow_nested)
    if catalog.config.mirror.mode != "off":
        create.reject_existing_log(place, catalog.config)
    return create.stage_create(
        namespace,
        short,
        schema,
        location=place,
        config=catalog.config,
        allow_nested_location=allow_nested,
        **options,
    )


def rename(catalog: BaseCatalog, name: str, new_name: str) -> None:
    """Change the name or the namespace of a table."""
    split_table_name(new_name)  # raises for an invalid name, before the table is locked
    with _locked(catalog, name) as (session, table):
        _set_name(catalog, session, "rename_table", table, new_name)


def drop(catalog: BaseCatalog, name: str) -> None:
    """Mark a table as dropped."""
    with _locked(catalog, name) as (session, table):
        drop_table(session, table.table_id)


def undrop(catalog: BaseCatalog, name: str) -> None:
    """Restore the most recently dropped table of this name."""
    # lazy import: needed only to read logs
    from deltasql.migrate.authority.rollback import check_undrop

    table = _last_dropped(catalog, name)
    check_undrop(catalog.store, table, catalog.config.storage)
    allow_nested = catalog.config.table.allow_nested_location
    if not allow_nested:
        reject_nested_location(catalog.store.query, table.location)
    reject_replica(catalog.store.query, table.location, allow_nested=allow_nested)
    with catalog.store.change([table.table_id]) as (session, _):
        _set_name(catalog, session, "undrop_table", table, name)
        session.execute("take_location", table_id=table.table_id)


def _last_dropped(catalog: BaseCatalog, name: str) -> TableRow:
    key = split_table_name(name)
    for table in catalog.dropped():
        if (table.namespace, table.name) == key:
            return table
    raise TxnLogTableNotFoundError(
        f"no dropped table is called {name}",
        table=name,
        help="List them with catalog.dropped() or `deltasql table list --dropped`.",
    )


def _default_location(catalog: BaseCatalog, namespace: str, name: str) -> str:
    root, uri = catalog.config.table.data_root, catalog.uri
    if root is None and not uri.is_file:
        raise TxnLogConfigError(
            "a new table needs a location: this catalog has no data root",
            help="Give the table a location (--location on the command line, location= in Python), "
            "or set DELTASQL_TABLE__DATA_ROOT to the folder of all new tables.",
        )
    if root is None:
        database = Path(uri.database)
        root = str(database.with_name(f"{database.stem}_data"))
    base = join_location(root, namespace, name)
    # The files of two tables must not be mixed, so choose a folder that no table owns, not even a
    # dropped one.
    place, number = base, 1
    while tables_at(catalog.store.query, place):
        number += 1
        place = f"{base}-{number}"
    return place


@contextmanager
def _locked(catalog: BaseCatalog, name: str) -> Iterator[tuple[Session, TableRow]]:
    """Lock a table's head, so that no commit runs while its name changes."""
    table = catalog.resolve(name, fresh=True)
    with catalog.store.change([table.table_id]) as (session, heads):
        head = heads.get(table.table_id)
        catalog.store.forget_table(table)
        if head is None or head.live_name != table.live_name:
            raise TxnLogTableNotFoundError(f"table {name} was renamed or dropped", table=name)
        yield session, table


def _set_name(
    catalog: BaseCatalog, session: Session, statement: str, table: TableRow, name: str
) -> None:
    """Set the name of a table; `statement` renames or restores it."""
    namespace, short = split_table_name(name)
    try:
        session.execute(
            statement,
            table_id=table.table_id,
            namespace=namespace,
            name=short,
            live_name=live_name(namespace, short),
        )
    except catalog.store.errors as error:
        if catalog.store.classify(error) is not Fault.DUPLICATE:
            raise
        raise TableExistsError(f"table {name} already exists", table=name) from error
