"""`mirror_duckdb`: a catalog's tables as views in a DuckDB file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.api.catalog.catalog import Catalog
from deltasql.api.catalog.connect import shared
from deltasql.config import Config
from deltasql.exceptions import TxnLogMirrorError
from deltasql.mirror.duckdb.refresh import Choice, refresh
from deltasql.mirror.publish.targets import add_catalog_file
from deltasql.storage import absolute_location

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri


def mirror_duckdb(
    catalog: str | DeltaSqlUri | Catalog, path: str | Path, *, tables: Sequence[str] | None = None
) -> dict[str, int]:
    """Keep a DuckDB file in which every table is a view over its current rows.

    The file is made now and follows each commit from then on, like the published log; plain
    DuckDB reads it. Returns the versions shown by table. With `tables` it shows only these,
    otherwise all, also those created later.

    >>> import tempfile, deltasql, duckdb, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"deltasql://sqlite/{folder.name}/meta.db"
    >>> deltasql.write_deltalake(f"{uri}?table=sales", pa.table({"id": [1, 2]}))
    >>> mirror_duckdb(uri, f"{folder.name}/catalog.duckdb")
    {'default.sales': 0}
    >>> with duckdb.connect(f"{folder.name}/catalog.duckdb", read_only=True) as db:
    ...     db.execute("SELECT sum(id) FROM sales").fetchall()
    [(3,)]
    """
    opened = catalog if isinstance(catalog, Catalog) else shared(catalog, Config.load())
    opened.store.check_exists()
    location = absolute_location(str(path))
    rows = None if tables is None else [opened.resolve(name, fresh=True) for name in tables]
    chosen = None if rows is None else frozenset(row.table_id for row in rows)
    shown = refresh(opened.store, location, opened.config, Choice(chosen))
    # Told to the catalog last: a place that cannot be written is not tried after every commit.
    add_catalog_file(opened.store, location, rows, shown.versions)
    if shown.errors:
        names = ", ".join(sorted(str(error.table) for error in shown.errors.values()))
        first = next(iter(shown.errors.values()))
        raise TxnLogMirrorError(
            f"the views of {names} could not be made, the others are there: {first.message}",
            table=names,
            location=location,
            help="They are tried again with the next commit.",
        ) from first
    return {shown.names[table_id]: version for table_id, version in shown.versions.items()}
