"""Find the catalog and the table of a URI."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from deltasql.api.catalog.connect import shared, with_storage_options
from deltasql.exceptions import TxnLogUriError
from deltasql.uri import DeltaSqlUri, is_deltasql_uri, parse_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.config import Config
    from deltasql.store.records import TableRow

    TableUri = str | os.PathLike[str] | DeltaSqlUri


def find_table(
    uri: DeltaSqlUri, storage_options: Mapping[str, str] | None = None
) -> tuple[Catalog, TableRow]:
    """Return the catalog and the row of a table; runs one SQL statement."""
    catalog = catalog_with(uri, with_storage_options(storage_options))
    return catalog, catalog.resolve(str(uri.table_name), fresh=True)


def catalog_with(uri: DeltaSqlUri, config: Config) -> Catalog:
    """Return the catalog of a URI; raises CatalogNotFoundError if the database has none."""
    catalog = shared(uri, config)
    catalog.store.check_exists()
    return catalog


def parse_table_uri(table_uri: TableUri) -> DeltaSqlUri:
    """Parse a URI; one without a table name is refused.

    >>> parse_table_uri("deltasql://sqlite//data/meta.db?table=sales").table
    'sales'
    """
    if isinstance(table_uri, os.PathLike):
        raise TxnLogUriError(
            f"{os.fspath(table_uri)} is a path, where a URI loses its double slashes",
            help="Pass the URI as text.",
        )
    uri = table_uri if isinstance(table_uri, DeltaSqlUri) else parse_uri(table_uri)
    if uri.table_name is None:
        raise TxnLogUriError(
            f"{uri} names a catalog, not a table", help="Add ?table=name, or /table for PostgreSQL."
        )
    return uri


def is_ours(table_uri: object) -> bool:
    """Return whether this is a `deltasql://` URI, also one that was converted to a path.

    >>> from pathlib import Path
    >>> is_ours("deltasql://sqlite/meta.db?table=t"), is_ours(Path("/lake/sales"))
    (True, False)
    """
    if isinstance(table_uri, os.PathLike):
        return str(os.fspath(table_uri)).startswith("deltasql:/")
    return is_deltasql_uri(table_uri)
