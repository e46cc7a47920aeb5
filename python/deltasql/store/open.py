"""Open the store of a URI: choose the dialect of its database and upgrade its schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogUriError
from deltasql.store.sqlite.dialect import SqliteDialect
from deltasql.store.store import Store

if TYPE_CHECKING:
    from deltasql.config import Config
    from deltasql.store.dialect import Dialect
    from deltasql.store.postgres.aio import AsyncPostgres
    from deltasql.uri import DeltaSqlUri


def open_store(uri: DeltaSqlUri, config: Config, *, migrate: bool = True) -> Store:
    """Open the store of a URI and upgrade the schema of its catalog.

    A missing catalog is not created here, but by `Store.create`. Only a catalog in memory is always
    created.
    """
    store = Store(_dialect(uri, config), uri)
    if migrate:
        try:
            store.create() if uri.is_memory else store.upgrade()
        except BaseException:
            store.close()  # otherwise the pool would keep trying to connect
            raise
    return store


def open_async(store: Store, uri: DeltaSqlUri, config: Config) -> AsyncPostgres | None:
    """Open async connections to the database of a store; None if its driver has none."""
    if uri.backend != "postgres":
        return None
    from deltasql.store.postgres.aio import AsyncPostgres  # lazy import: an optional driver

    return AsyncPostgres(store, uri, config)


def _dialect(uri: DeltaSqlUri, config: Config) -> Dialect:
    # The drivers of PostgreSQL and DuckDB are optional, and slow to import.
    if uri.backend == "postgres":
        from deltasql.store.postgres.dialect import PostgresDialect

        return PostgresDialect(uri, config)
    if uri.backend == "duckdb":
        from deltasql.store.duckdb import DuckdbDialect

        return DuckdbDialect(None if uri.is_memory else Path(uri.database).absolute(), config)
    if uri.is_memory:
        raise TxnLogUriError(
            "SQLite in memory cannot be shared between connections",
            help="Name a file, or use deltasql://duckdb/:memory:.",
        )
    return SqliteDialect(Path(uri.database).absolute(), config)
