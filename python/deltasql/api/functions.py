"""Functions that open a catalog by its URI for one operation: import, export, rebuild, doctor."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from deltasql.api.catalog.catalog import Catalog
from deltasql.api.catalog.connect import is_new, open_existing, open_to_load, resolved, shared
from deltasql.config import Config
from deltasql.exceptions import (
    TxnLogConfigError,
    TxnLogError,
    TxnLogMirrorError,
    TxnLogTableNotFoundError,
    TxnLogUriError,
)
from deltasql.storage import absolute_location
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pyarrow as pa

    from deltasql.api.inspect.doctor import DoctorReport
    from deltasql.migrate.exporting.export import ExportReport
    from deltasql.migrate.importing.report import ImportReport, ImportSummary
    from deltasql.migrate.rebuild import RebuildReport
    from deltasql.model.progress import OnProgress
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
    on_progress: OnProgress | None = None,
    config: Config | None = None,
    **settings: Any,
) -> ImportReport:
    """Import a Delta table into a catalog, with its whole history; its files stay in place.

    The URI names the catalog, or the new table in it; see `Catalog.import_table`.

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
    on_progress: OnProgress | None = None,
    on_table: Callable[[ImportReport], None] | None = None,
    config: Config | None = None,
    **settings: Any,
) -> ImportSummary:
    """Import every Delta table below a folder into a catalog; see `Catalog.import_tables`."""
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


def export_table(
    uri: str | DeltaSqlUri,
    directory: str,
    *,
    version: int | None = None,
    from_version: int | None = None,
    with_data: bool = False,
    storage_options: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
    config: Config | None = None,
    **settings: Any,
) -> ExportReport:
    """Write versions of a table to an empty location, as a table that any Delta reader can open.

    `version` is the last version to export, by default the latest (or `?version=` of the URI);
    `from_version` is the first, by default the oldest that is available. With `with_data`, the data
    files are copied; otherwise the new table refers to the existing files by their URLs.
    `storage_options` are those of the destination.

    >>> import tempfile, pyarrow as pa
    >>> from deltasql import connect
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"deltasql://sqlite/{folder.name}/meta.db?table=sales"
    >>> with connect(uri) as catalog:
    ...     _ = catalog.create_table("sales", pa.schema([("id", pa.int64())]))
    >>> report = export_table(uri, f"{folder.name}/copy", with_data=True)
    >>> report.first_version, report.last_version
    (0, 0)
    """
    parsed = resolved(uri, config, **settings)
    if parsed.table is None:
        raise TxnLogUriError(
            "the URI names no table to export",
            part="table",
            help="Add ?table=name, or /name to the URI of a catalog in PostgreSQL.",
        )
    with open_existing(parsed, config, **settings) as catalog:
        return catalog.export_table(
            join_table_name(parsed.namespace, parsed.table),
            directory,
            version=parsed.version if version is None else version,
            from_version=from_version,
            with_data=with_data,
            storage_options=storage_options,
            on_progress=on_progress,
        )


def rebuild(
    uri: str | DeltaSqlUri | Catalog,
    *roots: str,
    config: Config | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    **settings: Any,
) -> RebuildReport:
    """Load every Delta table below the roots into a catalog, with all versions of its log.

    Use it if the database of a catalog was lost. The catalog may be empty or restored from an older
    backup; versions that it lacks are added. If the call is interrupted, repeat it. The default
    root is `table.data_root`. A Catalog object that is passed in stays open.

    >>> import tempfile, deltasql, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> with deltasql.begin(f"deltasql://sqlite/{folder.name}/lost.db") as tx:
    ...     metrics = tx.write("orders", pa.table({"id": [1]}))
    >>> report = rebuild(f"deltasql://sqlite/{folder.name}/new.db", f"{folder.name}/lost_data")
    >>> deltasql.DeltaTable(f"deltasql://sqlite/{folder.name}/new.db?table=orders").count()
    1
    """
    # lazy import: the other functions do not need it
    from deltasql.migrate.rebuild import rebuild_catalog

    if isinstance(uri, Catalog):
        opening: AbstractContextManager[Catalog] = nullcontext(uri)
    else:
        place = resolved(uri, config, **settings)
        opening = open_to_load(place, config, settings, dry_run=dry_run)
    with opening as catalog:
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
            "no folder to search for tables is configured",
            key="table.data_root",
            help="Pass the folders: deltasql.rebuild(uri, '/lake', 's3://bucket/lake').",
        )
    return [config.table.data_root]


def mirror_duckdb(
    catalog: str | DeltaSqlUri | Catalog, path: str | Path, *, tables: Sequence[str] | None = None
) -> dict[str, int]:
    """Create a DuckDB file in which every table is a view of its current rows.

    Any DuckDB client can read the file. Like the published log, it is updated after each commit.
    With `tables`, the file has views of these tables only, otherwise of all tables, including those
    created later. Returns the version of each view by table.

    >>> import tempfile, deltasql, duckdb, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"deltasql://sqlite/{folder.name}/meta.db"
    >>> deltasql.write_deltalake(f"{uri}?table=sales", pa.table({"id": [1, 2]}))
    >>> mirror_duckdb(uri, f"{folder.name}/catalog.duckdb")
    {'sales': 0}
    >>> with duckdb.connect(f"{folder.name}/catalog.duckdb", read_only=True) as db:
    ...     db.execute("SELECT sum(id) FROM sales").fetchall()
    [(3,)]
    """
    # lazy import: DuckDB is optional
    from deltasql.mirror.duckdb.refresh import Choice, refresh
    from deltasql.mirror.publish.targets import add_catalog_file

    opened = catalog if isinstance(catalog, Catalog) else shared(catalog, Config.load())
    opened.store.check_exists()
    location = absolute_location(str(path))
    rows = None if tables is None else [opened.resolve(name, fresh=True) for name in tables]
    chosen = None if rows is None else frozenset(row.table_id for row in rows)
    shown = refresh(opened.store, location, opened.config, Choice(chosen))
    # Register the file last: if it cannot be written now, later commits must not try to update it.
    add_catalog_file(opened.store, location, rows, shown.versions)
    if shown.errors:
        names = ", ".join(sorted(str(error.table) for error in shown.errors.values()))
        first = next(iter(shown.errors.values()))
        raise TxnLogMirrorError(
            f"the views of {names} could not be created (all other views were): {first.message}",
            table=names,
            location=location,
            help="The next commit tries to create them again.",
        ) from first
    return {shown.names[table_id]: version for table_id, version in shown.versions.items()}


def sql(
    catalog: str | DeltaSqlUri | Catalog,
    statement: str,
    parameters: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    config: Config | None = None,
    **settings: Any,
) -> pa.Table:
    """Run one SQL statement on the tables of a catalog, given by URI, by name or as a Catalog.

    The statement is one commit. `parameters` are the values of `:name` (a dict) or of `?` (a list).
    Statements are written in Spark's SQL; see `deltasql docs sql`. `SqlSession` runs several
    statements in one transaction.

    >>> import tempfile, deltasql
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"deltasql://sqlite/{folder.name}/catalog.db"
    >>> result = deltasql.sql(uri, "CREATE TABLE sales (id BIGINT, day DATE)")
    >>> result = deltasql.sql(uri, "INSERT INTO sales VALUES (1, '2024-05-01'), (2, NULL)")
    >>> result = deltasql.sql(uri, "DELETE FROM sales WHERE id = :id", {"id": 2})
    >>> deltasql.sql(uri, "SELECT id FROM sales").to_pylist()
    [{'id': 1}]
    """
    if isinstance(catalog, Catalog):
        return catalog.sql(statement, parameters)
    chosen = Config.load(**settings) if settings else config or Config.load()
    return shared(catalog, chosen).sql(statement, parameters)


def examine(
    uri: str | DeltaSqlUri,
    config: Config | None = None,
    *,
    table: str | None = None,
    fast: bool = False,
) -> DoctorReport:
    """Check the catalog of a URI for problems, without creating or migrating it.

    With `fast`, only the database and its schema are checked.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> [check.detail for check in examine(f"deltasql://sqlite/{folder.name}/meta.db").checks]
    ['there is no catalog yet']
    """
    # lazy import: few processes need reports
    from deltasql.api.inspect.checks import FAILURE, Check, unreachable
    from deltasql.api.inspect.doctor import DoctorReport, check_database, doctor

    chosen = Config.load() if config is None else config
    place = resolved(uri, chosen)
    try:
        if not place.is_memory and is_new(place, chosen):
            found = Check(
                "connectivity", FAILURE, "there is no catalog yet", "Create it: deltasql init."
            )
            return DoctorReport((found,))
        with Catalog(place, chosen, migrate=False) as catalog:
            return check_database(catalog) if fast else doctor(catalog, table)
    except TxnLogTableNotFoundError:
        raise
    except TxnLogError as error:
        return DoctorReport((unreachable(error),))
