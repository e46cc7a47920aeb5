"""`deltasql.rebuild`: a catalog from the lake, when its database is lost."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from deltasql.api.catalog.catalog import Catalog
from deltasql.api.catalog.connect import open_to_load, resolved
from deltasql.exceptions import TxnLogConfigError
from deltasql.migrate.rebuild import rebuild_catalog

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from deltasql.config import Config
    from deltasql.migrate.rebuild import RebuildReport, RebuiltTable
    from deltasql.uri import DeltaSqlUri


def rebuild(
    uri: str | DeltaSqlUri | Catalog,
    *roots: str,
    config: Config | None = None,
    dry_run: bool = False,
    on_progress: Callable[[RebuiltTable], None] | None = None,
    **settings: Any,
) -> RebuildReport:
    """Load every Delta table below the roots into a catalog, with all versions of its log.

    The catalog may be empty, or restored from an older backup: what it has is kept, what it
    lacks is added. A run that was interrupted is simply repeated. Without roots it looks below
    `table.data_root`. A catalog that is open is used as it is, and stays open.

    >>> import tempfile, deltasql, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> with deltasql.begin(f"deltasql://sqlite/{folder.name}/lost.db") as tx:
    ...     metrics = tx.write("orders", pa.table({"id": [1]}))
    >>> report = rebuild(f"deltasql://sqlite/{folder.name}/new.db", f"{folder.name}/lost_data")
    >>> deltasql.DeltaTable(f"deltasql://sqlite/{folder.name}/new.db?table=orders").count()
    1
    """
    if isinstance(uri, Catalog):
        held: AbstractContextManager[Catalog] = nullcontext(uri)
    else:
        held = open_to_load(resolved(uri, config, **settings), config, settings, dry_run=dry_run)
    with held as catalog:
        return rebuild_catalog(
            catalog.store,
            roots or _configured_root(catalog.config),
            settings=catalog.config.storage,
            dry_run=dry_run,
            on_progress=on_progress,
        )


def _configured_root(config: Config) -> list[str]:
    if config.table.data_root is None:
        raise TxnLogConfigError(
            "there is no folder to look for tables in",
            key="table.data_root",
            help="Name the roots of the lake: deltasql.rebuild(uri, '/lake', 's3://bucket/lake').",
        )
    return [config.table.data_root]
