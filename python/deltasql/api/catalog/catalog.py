"""Catalog: the tables of one database, by name."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as fields_replaced
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from deltasql.api.catalog import registry
from deltasql.api.catalog.base import BaseCatalog, CatalogTable
from deltasql.api.catalog.mirror import Mirror
from deltasql.engine.query_limits import NO_LIMITS, QueryLimits
from deltasql.exceptions import TableExistsError, TxnLogTransactionError
from deltasql.model.clock import now_ms
from deltasql.model.counts import many
from deltasql.model.report import Report
from deltasql.snapshot.snapshot import snapshots_as_of
from deltasql.store.migrations import latest_version
from deltasql.uri import join_table_name, split_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType

    import pyarrow as pa

    from deltasql.api.changes import ChangeCursor
    from deltasql.api.inspect.inspector import Inspect
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.config import Config
    from deltasql.migrate.authority.cutover import CutoverReport
    from deltasql.migrate.authority.fence import FenceReport
    from deltasql.migrate.authority.follow import FollowReport
    from deltasql.migrate.authority.rollback import RollbackReport
    from deltasql.migrate.exporting.export import ExportReport
    from deltasql.migrate.importing.report import ImportReport, ImportSummary
    from deltasql.model.progress import OnProgress
    from deltasql.model.statements.parameters import Parameters
    from deltasql.operations.clone.clone import CloneReport
    from deltasql.operations.expire_history import ExpiredHistory
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.uri import DeltaSqlUri


@dataclass(frozen=True, slots=True)
class Health(Report):
    """The result of `Catalog.health`: whether the catalog can be used, and its state."""

    ok: bool
    backend: str
    schema_version: int
    tables: int
    pool: Mapping[str, int]


class Catalog(BaseCatalog):
    """The tables whose logs are in one database; use it as a context manager.

    >>> import tempfile, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Catalog(f"deltasql://sqlite/{folder.name}/meta.db") as catalog:
    ...     orders = catalog.create_table("orders", pa.schema([("id", pa.int64())]))
    ...     [table.name for table in catalog.tables()]
    ['orders']
    """

    def __init__(
        self, uri: str | DeltaSqlUri, config: Config | None = None, *, migrate: bool = True
    ) -> None:
        super().__init__(uri, config, migrate=migrate)
        self.mirror = Mirror(self)

    @cached_property
    def inspect(self) -> Inspect:
        """Reports on the catalog, which the command line and the console also show."""
        # lazy import: few processes need reports
        from deltasql.api.inspect.inspector import Inspect

        return Inspect(self, self.mirror)

    def __repr__(self) -> str:
        return f"Catalog({str(self.uri)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Publish all commits that are not published yet, and close every connection.

        A second call does nothing.
        """
        self.mirror.close()
        self.store.close()
        self.cache.clear()  # a closed catalog must not answer from its cache either

    # Tables

    def create_table(
        self,
        name: str,
        schema: object,
        *,
        location: str | None = None,
        partition_by: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        cluster_by: Sequence[str] = (),
        if_exists: str = "error",
        allow_nested_location: bool = False,
    ) -> CatalogTable:
        """Create an empty table at version 0.

        `schema` is a pyarrow, deltalake or Spark schema. OPTIMIZE sorts rows by the columns of
        `cluster_by`, so that rows with similar values are in the same files. With
        `if_exists="ignore"`, an existing table is returned unchanged. With `allow_nested_location`,
        the location may be inside another table's folder, or contain one.
        """
        if if_exists not in ("error", "ignore"):
            raise ValueError(f"if_exists must be 'error' or 'ignore', got {if_exists!r}")
        try:
            with self.begin() as tx:
                tx.create_table(
                    name,
                    schema,
                    location=location,
                    partition_by=partition_by,
                    properties=properties,
                    description=description,
                    cluster_by=cluster_by,
                    allow_nested_location=allow_nested_location,
                )
        except TableExistsError:
            if if_exists == "error":
                raise
        return self.table(name)

    def clone(
        self,
        source: str,
        target: str,
        *,
        shallow: bool = False,
        version: int | None = None,
        timestamp: datetime | None = None,
        replace: bool = False,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        on_progress: OnProgress | None = None,
    ) -> CloneReport:
        """Create a table with the rows, schema and properties of a version of another table.

        The arguments are those of `MultiTableTransaction.clone`, which can clone several tables in
        one transaction.
        """
        with self.begin() as tx:
            report = tx.clone(
                source,
                target,
                shallow=shallow,
                version=version,
                timestamp=timestamp,
                replace=replace,
                location=location,
                properties=properties,
                on_progress=on_progress,
            )
        return fields_replaced(report, version=tx.versions[target])

    def rename(self, name: str, new_name: str) -> CatalogTable:
        """Change the name or the namespace of a table; its files stay where they are."""
        registry.rename(self, name, new_name)
        self.mirror.names_changed()
        return self.table(new_name)

    def drop(self, name: str) -> None:
        """Drop a table from the catalog; no file is deleted, and `undrop` restores the table."""
        registry.drop(self, name)
        self.mirror.names_changed()

    def undrop(self, name: str) -> CatalogTable:
        """Restore the most recently dropped table of this name.

        Raises an error if another writer has added commits to the table's log since the drop.
        """
        registry.undrop(self, name)
        self.mirror.names_changed()
        return self.table(name)

    def describe(self, name: str) -> dict[str, Any]:
        """Return location, version, schema, protocol and totals of a table."""
        return self.table(name).describe()

    # Namespaces

    def namespaces(self) -> list[str]:
        """List all namespaces: those that were created, and those of tables."""
        return [row[0] for row in self.store.query("list_namespaces")]

    def create_namespace(self, namespace: str) -> None:
        """Create a namespace, unless it exists. A new table creates its namespace by itself."""
        split_table_name(join_table_name(namespace, "t"))  # checks the namespace
        self.store.create()
        with self.store.change() as (session, _):
            session.insert("insert_namespace", [(namespace, now_ms())])

    def drop_namespace(self, namespace: str) -> None:
        """Drop an empty namespace."""
        names = [table.name for table in self.tables(namespace)]
        if names:
            raise TxnLogTransactionError(
                f"namespace {namespace} is not empty: it has {many(len(names), 'table')}: "
                f"{', '.join(names[:5])}",
                help="Drop or rename its tables first.",
            )
        with self.store.change() as (session, _):
            session.execute("delete_namespace", namespace=namespace)

    # Transactions and time

    def begin(self, *, one_table: bool = False) -> MultiTableTransaction:
        """Start a transaction over any number of tables, all seen at the same point in time.

        With `one_table`, the transaction uses only one table, and does not look up the versions of
        the other tables.
        """
        # lazy import: commands that only read need no operations
        from deltasql.api.transaction.transaction import MultiTableTransaction

        return MultiTableTransaction(self, self.mirror, one_table=one_table)

    def as_of(self, timestamp: datetime) -> dict[str, Snapshot]:
        """Return a snapshot of every table at a timestamp, by table name."""
        snapshots = snapshots_as_of(self.store, self.cache, timestamp)
        return {join_table_name(s.table.namespace, s.table.name): s for s in snapshots}

    # Maintenance

    def optimize(self, name: str, *, z_order: Sequence[str] = (), **options: Any) -> dict[str, Any]:
        """Rewrite small files as fewer, larger ones, and sort rows by `z_order`; returns metrics.

        `options` are those of `MultiTableTransaction.optimize`.
        """
        with self.begin(one_table=True) as tx:
            if z_order:
                return tx.z_order(name, z_order, **options)
            return tx.optimize(name, **options)

    def purge(self, name: str, **options: Any) -> dict[str, Any]:
        """Rewrite the files that have a deletion vector, and no others; returns metrics.

        `options` are those of `MultiTableTransaction.purge`.
        """
        with self.begin(one_table=True) as tx:
            return tx.purge(name, **options)

    def vacuum(self, name: str, **options: Any) -> list[str]:
        """Delete files that no retained version of a table needs; returns their names.

        `options` are those of `deltalake.DeltaTable.vacuum`; by default it is a dry run.
        `engine="spark"` lists the files of a `full` vacuum on Spark executors. `on_progress` is
        called with a `Progress`.
        """
        from deltasql.api.catalog.vacuum import vacuum  # lazy import: needed only to read logs

        def commit(operate: Callable[[MultiTableTransaction], None]) -> None:
            with self.begin(one_table=True) as tx:
                operate(tx)

        return vacuum(self, self.resolve(name, fresh=True), commit, **options)

    def expire_history(
        self,
        name: str,
        *,
        retention_hours: float | None = None,
        before_version: int | None = None,
        dry_run: bool = True,
        on_progress: OnProgress | None = None,
    ) -> ExpiredHistory:
        """Delete old versions of a table from the database; by default it is a dry run.

        Versions older than the retention are deleted: by default the longer one of
        `delta.logRetentionDuration` and `delta.deletedFileRetentionDuration`. With
        `before_version`, that version and all later ones stay. A version also stays if it is not
        published yet, if the published log still has it, or if the last vacuum kept it. Data files
        are not deleted: `vacuum` does that.
        """
        # lazy import: few processes need it
        from deltasql.operations.expire_history import expire_history

        return expire_history(
            self.store,
            self.resolve(name, fresh=True),
            self.config,
            self.cache,
            retention_hours=retention_hours,
            before_version=before_version,
            dry_run=dry_run,
            on_progress=on_progress,
        )

    def vacuum_uncommitted(self, *, dry_run: bool = True) -> list[str]:
        """Delete files of transactions that never committed and whose table does not exist.

        A process that is killed while it creates a table leaves such files. Files whose intent was
        recorded within the last hour are kept. Returns the paths of the files; by default it is a
        dry run.
        """
        # lazy import: few processes need it
        from deltasql.api.catalog.vacuum import vacuum_uncommitted

        return vacuum_uncommitted(self, dry_run=dry_run)

    def health(self) -> Health:
        """Query the database, and return whether the catalog can be used."""
        rows = self.store.query("applied_migrations")
        tables = self.store.query("count_tables")[0][0]
        version = max((row[0] for row in rows), default=0)
        pool = self.store.report_pool_usage()
        return Health(
            ok=version == latest_version(),
            backend=self.store.dialect.name,
            schema_version=version,
            tables=tables,
            pool=pool,
        )

    def migrate(self) -> list[int]:
        """Upgrade the database schema to this release; returns the applied migrations.

        Also records the locations of tables that a process of an older release created after the
        upgrade.
        """
        self.store.check_exists()
        applied = self.store.migrate()
        self.store.record_locations()
        return applied

    # Rows

    def query(
        self,
        sql: str,
        *,
        limit: int | None = None,
        timeout: float | None = None,
        batch_rows: int | None = None,
        limits: QueryLimits = NO_LIMITS,
    ) -> pa.RecordBatchReader:
        """Run a read-only SQL query over tables by name.

        `crm.sales` is a table of a namespace, `sales@3` a version, `sales@'2024-05-01'` a
        timestamp. See `deltasql.api.catalog.query.query`.
        """
        from deltasql.api.catalog.query import query  # lazy import: loads the SQL parser

        return query(self, sql, limit=limit, timeout=timeout, batch_rows=batch_rows, limits=limits)

    def sql(self, statement: str, parameters: Parameters = None) -> pa.Table:
        """Run one SQL statement, such as MERGE or ALTER TABLE, in one commit; returns its rows.

        `parameters` are the values of `:name` (a dict) or of `?` (a list). See
        `deltasql docs sql` for the statements, and `SqlSession` for BEGIN and COMMIT.
        """
        from deltasql.api.sql.session import run_once  # lazy import: loads the SQL parser

        return run_once(self, statement, parameters)

    def changes(
        self,
        table: str,
        from_version: int,
        to_version: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
    ) -> pa.RecordBatchReader:
        """Stream the rows that a range of versions inserted and deleted.

        The table does not need change data feed. Both ends of the range are included. See
        `deltasql.api.changes.changes`.
        """
        from deltasql.api.changes import changes  # lazy import: needed only to read rows

        row = self.resolve(table, fresh=True)
        return changes(self, row, from_version, to_version, columns=columns, predicate=predicate)

    def cursor(
        self,
        table: str,
        start: str | int = "snapshot",
        *,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
    ) -> ChangeCursor:
        """Return a cursor that reads a table's rows, and then the changes of new versions.

        `start` is "snapshot", the first version to read, or the `position` of another cursor.
        """
        from deltasql.api.changes import ChangeCursor  # lazy import: needed only to read rows

        row = self.resolve(table, fresh=True)
        return ChangeCursor(self, row, start, columns=columns, predicate=predicate)

    # Import and export

    def import_table(
        self,
        source: str,
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
    ) -> ImportReport:
        """Import a Delta table with its history; its files stay where they are.

        If the table was imported before, only the new commits of its log are loaded.

        - `since`: the first version to load, for a table that is not in the catalog yet
        - `up_to_version`: the last version to load
        - `batch_size`: the number of actions in one SQL transaction
        - `force`: drop a table of this name or location that prevents the import, and import the
          table even if data files are missing
        - `dry_run`: only report what would be imported
        - `allow_nested_location`: the table may be inside another table's folder, or contain one

        See `deltasql docs migrating`.
        """
        from deltasql.api.catalog import importing  # lazy import: few processes import a table

        options = importing.import_options(
            self,
            name,
            namespace,
            force=force,
            dry_run=dry_run,
            up_to_version=up_to_version,
            since=since,
            batch_size=batch_size,
            verify=verify,
            engine=engine,
            allow_nested_location=allow_nested_location,
        )
        return importing.import_table(
            self,
            self.mirror,
            source,
            options,
            storage_options=storage_options,
            on_progress=on_progress,
        )

    def import_tables(
        self,
        root: str,
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
    ) -> ImportSummary:
        """Import every Delta table below a folder; if one fails, the others are still imported.

        All tables get `namespace`; without it, the folders above a table determine its namespace.
        """
        from deltasql.api.catalog import importing  # lazy import: few processes import a table

        options = importing.import_options(
            self,
            None,
            namespace,
            force=force,
            dry_run=dry_run,
            batch_size=batch_size,
            verify=verify,
            engine=engine,
            allow_nested_location=allow_nested_location,
        )
        return importing.import_tables(
            self,
            self.mirror,
            root,
            options,
            storage_options=storage_options,
            on_progress=on_progress,
            on_table=on_table,
        )

    def export_table(
        self,
        name: str,
        directory: str,
        *,
        version: int | None = None,
        from_version: int | None = None,
        with_data: bool = False,
        storage_options: Mapping[str, str] | None = None,
        on_progress: OnProgress | None = None,
    ) -> ExportReport:
        """Write versions of a table to an empty location, as a table that any Delta reader opens.

        `storage_options` are those of the destination. See `deltasql.export_table`.
        """
        # lazy import: few processes export a table
        from deltasql.api.catalog.importing import storage_settings_at
        from deltasql.migrate.exporting.export import export_table

        return export_table(
            self.store,
            self.resolve(name, fresh=True),
            directory,
            settings=storage_settings_at(directory, self.config.storage, storage_options),
            checkpoint_interval=self.config.mirror.checkpoint_interval,
            version=version,
            from_version=from_version,
            with_data=with_data,
            on_progress=on_progress,
        )

    # Authority

    def follow(
        self,
        source: str,
        *,
        name: str | None = None,
        namespace: str | None = None,
        batch_size: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> FollowReport:
        """Add a read-only index of a Delta table that other programs write, or update the index.

        The first call loads the whole log, later calls load only new commits. Nothing is ever
        written to the log or the data. `source` is the table's location, or the name of a table
        that is already followed.
        """
        from deltasql.api.catalog import authority  # lazy import: few tables are followed

        return authority.follow(
            self,
            self.mirror,
            source,
            name=name,
            namespace=namespace,
            batch_size=batch_size,
            on_progress=on_progress,
        )

    def refresh(
        self,
        name: str,
        *,
        batch_size: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> FollowReport:
        """Load the commits that were added to the log of a followed table."""
        from deltasql.api.catalog import authority  # lazy import: few tables are followed

        return authority.refresh(
            self, self.mirror, name, batch_size=batch_size, on_progress=on_progress
        )

    def cutover(
        self,
        name: str,
        *,
        verify: bool = True,
        fence: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
    ) -> CutoverReport:
        """Make the database the authority of a table that was followed or imported.

        Loads the rest of the log, compares it with the database, and then enables in-commit
        timestamps with one commit. This commit makes stock Delta writers fail when they write to
        the table's path. With `fence`, the table is also fenced, so that delta-spark and DuckDB
        fail, too. If the call is interrupted, repeat it.
        """
        # lazy import: needed once in the life of a table
        from deltasql.api.catalog import authority

        return authority.cutover(
            self,
            self.mirror,
            name,
            verify=verify,
            fence=fence,
            dry_run=dry_run,
            on_progress=on_progress,
        )

    def fence(self, name: str) -> FenceReport:
        """Make other engines fail when they commit to the path of a table.

        Adds a writer feature that only deltasql knows. Readers are unaffected. delta-spark jobs
        with deltasql's LogStore fail, too.
        """
        from deltasql.api.catalog import authority  # lazy import: few tables are fenced

        return authority.set_fence(self, self.mirror, name, on=True)

    def unfence(self, name: str) -> FenceReport:
        """Remove the fence of a table, so that engines that support its features can write."""
        from deltasql.api.catalog import authority  # lazy import: few tables are fenced

        return authority.set_fence(self, self.mirror, name, on=False)

    def rollback(
        self,
        name: str,
        *,
        verify: bool = True,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
    ) -> RollbackReport:
        """Make `_delta_log` the authority of a table again, and remove it from the catalog.

        Publishes all versions first, so that other writers can continue after the latest one. If
        deltasql had enabled in-commit timestamps, which make stock writers fail, they are
        disabled. No file is deleted. If the call is interrupted, repeat it.
        """
        # lazy import: needed once in the life of a table
        from deltasql.api.catalog import authority

        return authority.rollback(
            self, self.mirror, name, verify=verify, dry_run=dry_run, on_progress=on_progress
        )
