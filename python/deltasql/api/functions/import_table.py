"""`deltasql.import_table`: a Delta table that exists becomes a table of a catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.api.catalog.connect import open_to_load, resolved

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deltasql.config import Config
    from deltasql.migrate.importing.report import ImportProgress, ImportReport, ImportSummary
    from deltasql.uri import DeltaSqlUri


def import_table(
    source: str,
    uri: str | DeltaSqlUri,
    *,
    name: str | None = None,
    namespace: str | None = None,
    force: bool = False,
    dry_run: bool = False,
    up_to_version: int | None = None,
    since: int | None = None,
    batch_size: int | None = None,
    verify: bool = True,
    engine: object = None,
    allow_nested_location: bool = False,
    storage_options: Mapping[str, str] | None = None,
    on_progress: Callable[[ImportProgress], None] | None = None,
    config: Config | None = None,
    **settings: Any,
) -> ImportReport:
    """Take a Delta table over into a catalog, with its whole history; its files stay in place.

    The URI names the catalog, or the table that it becomes; see `Catalog.import_table`.

    >>> import tempfile, deltalake, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> deltalake.write_deltalake(f"{folder.name}/sales", pa.table({"id": [1, 2]}))
    >>> report = import_table(f"{folder.name}/sales", f"deltasql://sqlite/{folder.name}/meta.db")
    >>> report.table, report.state, report.last_version
    ('sales', 'imported', 0)
    """
    chosen = resolved(uri, config, **settings)
    by_uri = chosen.table is not None and name is None
    with open_to_load(chosen, config, settings, dry_run=dry_run) as catalog:
        return catalog.import_table(
            source,
            name=chosen.table if by_uri else name,
            namespace=namespace or (chosen.namespace if by_uri else None),
            force=force,
            dry_run=dry_run,
            up_to_version=up_to_version,
            since=since,
            batch_size=batch_size,
            verify=verify,
            engine=engine,
            allow_nested_location=allow_nested_location,
            storage_options=storage_options,
            on_progress=on_progress,
        )


def import_tables(
    root: str,
    uri: str | DeltaSqlUri,
    *,
    namespace: str | None = None,
    force: bool = False,
    dry_run: bool = False,
    batch_size: int | None = None,
    verify: bool = True,
    engine: object = None,
    allow_nested_location: bool = False,
    storage_options: Mapping[str, str] | None = None,
    on_progress: Callable[[ImportProgress], None] | None = None,
    on_table: Callable[[ImportReport], None] | None = None,
    config: Config | None = None,
    **settings: Any,
) -> ImportSummary:
    """Take every Delta table below a folder over into a catalog; see `Catalog.import_tables`."""
    chosen = resolved(uri, config, **settings)
    with open_to_load(chosen, config, settings, dry_run=dry_run) as catalog:
        return catalog.import_tables(
            root,
            namespace=namespace,
            force=force,
            dry_run=dry_run,
            batch_size=batch_size,
            verify=verify,
            engine=engine,
            allow_nested_location=allow_nested_location,
            storage_options=storage_options,
            on_progress=on_progress,
            on_table=on_table,
        )
