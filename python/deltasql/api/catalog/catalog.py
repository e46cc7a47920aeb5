"""Catalog: the tables of one database, by name."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from deltasql.api.catalog.export_verbs import ExportVerbs
from deltasql.api.catalog.import_verbs import ImportVerbs
from deltasql.api.catalog.migration import MigrationVerbs
from deltasql.api.catalog.mirror import Mirror
from deltasql.api.catalog.query_verbs import QueryVerbs
from deltasql.api.table import CatalogTable
from deltasql.api.transaction.transaction import MultiTableTransaction
from deltasql.commit.build import follows_another_log
from deltasql.commit.log_ahead import LogAheadCheck
from deltasql.commit.transaction import Committer
from deltasql.config import Config
from deltasql.exceptions import (
    TableExistsError,
    TxnLogConfigError,
    TxnLogTableNotFoundError,
    TxnLogTransactionError,
)
from deltasql.model.clock import now_ms
from deltasql.model.counts import many
from deltasql.operations.create import refuse_log_of_others, stage_create
from deltasql.snapshot.cache import FileCache
from deltasql.snapshot.snapshot import snapshots_as_of
from deltasql.storage import absolute_location, join_location
from deltasql.store.append import live_name
from deltasql.store.dialect import Fault, Session
from deltasql.store.locations import (
    drop_table,
    refuse_nested_location,
    refuse_shared_location,
    tables_at,
)
from deltasql.store.migrations import latest_version
from deltasql.store.records import TableRow
from deltasql.store.store import open_store
from deltasql.uri import join_table_name, parse_uri, split_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType

    from deltasql.api.inspect.inspector import Inspect
    from deltasql.commit.staged import Staged
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.uri import DeltaSqlUri


def absolute(uri: DeltaSqlUri) -> DeltaSqlUri:
    """Return the URI with a path that means the same file wherever the process goes."""
    if uri.backend == "postgres" or uri.is_memory:
        return uri
    return replace(uri, database=str(Path(uri.database).absolute()))


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a catalog can be used, and what was found."""

    ok: bool
    backend: str
    schema_version: int
    tables: int
    pool: Mapping[str, int]


class Catalog(QueryVerbs, ImportVerbs, ExportVerbs, MigrationVerbs):
    """Every table whose log lives in one database; use it as a context manager.

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
        parsed = parse_uri(uri) if isinstance(uri, str) else uri
        self.uri = absolute(parsed.catalog())
        self.config = config if config is not None else Config.load()
        self.store = open_store(parsed, self.config, migrate=migrate)
        self.cache = FileCache(self.config.cache.max_bytes, self.config.cache.max_entries)
        self.mirror = Mirror(self)
        self.committer = Committer(self.store, self.config)
        self.log_ahead = LogAheadCheck(self.store, self.config)

    @cached_property
    def inspect(self) -> Inspect:
        """What the command line and the console show of the catalog."""
        from deltasql.api.inspect.inspector import Inspect  # late: it measures, compares, advises

        return Inspect(self)

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
        """Publish what waits for it, give back every connection; safe to call twice."""
        self.mirror.close()
        self.store.close()
        self.cache.clear()  # what is remembered is not to be had from a closed catalog either

    # Tables

    def tables(self, namespace: str | None = None) -> list[CatalogTable]:
        """List live tables by namespace and name, with one statement."""
        rows = self.store.query("list_tables", namespace=namespace)
        return [CatalogTable(self, TableRow.from_row(row)) for row in rows]

    def table(self, name: str) -> CatalogTable:
        """Return a table by name: `sales`, or `crm.sales` in another namespace."""
        return CatalogTable(self, self.resolve(name, fresh=True))

    def exists(self, name: str) -> bool:
        """Tell whether a live table has this name; without a catalog none has."""
        key = split_table_name(name)
        return self.store.exists() and self.store.find_table(*key, fresh=True) is not None

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

        `schema` is a pyarrow, deltalake or Spark schema. OPTIMIZE keeps rows together that are near
        in the columns of `cluster_by`. `if_exists="ignore"` returns the table that is there.
        `allow_nested_location` accepts a location inside another table's folder, or around one.
        """
        if if_exists not in ("error", "ignore"):
            raise ValueError(f"if_exists is 'error' or 'ignore', got {if_exists!r}")
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

    def rename(self, name: str, new_name: str) -> CatalogTable:
        """Give a table another name or namespace; its files stay where they are."""
        namespace, short = split_table_name(new_name)
        with self._locked(name) as (session, table):
            params = {
                "namespace": namespace,
                "name": short,
                "live_name": live_name(namespace, short),
            }
            self._taking_name(session, "rename_table", new_name, table_id=table.table_id, **params)
        self.mirror.names_changed()
        return self.table(new_name)

    def drop(self, name: str) -> None:
        """Take a table out of the catalog; `undrop` brings it back, no file is deleted."""
        with self._locked(name) as (session, table):
            drop_table(session, table.table_id)
        self.mirror.names_changed()

    def undrop(self, name: str) -> CatalogTable:
        """Bring back the table that was dropped last under this name, unless its log went on."""
        from deltasql.migrate.authority.rollback import refuse_undrop  # late: it reads logs

        namespace, short = split_table_name(name)
        for table in self.dropped():
            if (table.namespace, table.name) == (namespace, short):
                break
        else:
            raise TxnLogTableNotFoundError(
                f"no dropped table is called {name}",
                table=name,
                help="catalog.dropped(), or `deltasql table list --dropped`, lists them.",
            )
        refuse_undrop(self.store, table, self.config.storage)
        if not self.config.table.allow_nested_location:
            refuse_nested_location(self.store.query, table.location)
        with self.store.change([table.table_id]) as (session, _):
            params = {
                "namespace": namespace,
                "name": short,
                "live_name": live_name(namespace, short),
            }
            self._taking_name(session, "undrop_table", name, table_id=table.table_id, **params)
            session.execute("take_location", table_id=table.table_id)
        self.mirror.names_changed()
        return self.table(name)

    def dropped(self) -> list[TableRow]:
        """List dropped tables, the last one first."""
        rows = (TableRow.from_row(row) for row in self.store.query("list_dropped"))
        return [row for row in rows if not row.is_loading]

    def describe(self, name: str) -> dict[str, Any]:
        """Return what is known of a table: location, version, schema, protocol, totals."""
        return self.table(name).describe()

    # Namespaces

    def namespaces(self) -> list[str]:
        """List namespaces that were created or hold a table."""
        return [row[0] for row in self.store.query("list_namespaces")]

    def create_namespace(self, namespace: str) -> None:
        """Create a namespace; creating it again does nothing. Tables also create theirs."""
        split_table_name(join_table_name(namespace, "t"))  # the same rules as for a table's name
        self.store.create()
        with self.store.change() as (session, _):
            session.insert("insert_namespace", [(namespace, now_ms())])

    def drop_namespace(self, namespace: str) -> None:
        """Drop an empty namespace."""
        names = [table.name for table in self.tables(namespace)]
        if names:
            raise TxnLogTransactionError(
                f"namespace {namespace} still holds {many(len(names), 'table')}: "
                f"{', '.join(names[:5])}",
                help="Drop or rename its tables first.",
            )
        with self.store.change() as (session, _):
            session.execute("delete_namespace", namespace=namespace)

    # Transactions and time

    def begin(self, *, one_table: bool = False) -> MultiTableTransaction:
        """Start a transaction over any number of tables, seen as they are at one moment.

        `one_table` promises that it is about a single one, and spares it a look at the others.
        """
        return MultiTableTransaction(self, one_table=one_table)

    def as_of(self, timestamp: datetime) -> dict[str, Snapshot]:
        """Return every table as it was at one moment."""
        snapshots = snapshots_as_of(self.store, self.cache, timestamp)
        return {join_table_name(s.table.namespace, s.table.name): s for s in snapshots}

    # Care

    def optimize(self, name: str, *, z_order: Sequence[str] = (), **options: Any) -> dict[str, Any]:
        """Make few large files of many small ones, sorted by columns if wanted; returns metrics.

        `options` are those of `MultiTableTransaction.optimize`.
        """
        with self.begin(one_table=True) as tx:
            if z_order:
                return tx.z_order(name, z_order, **options)
            return tx.optimize(name, **options)

    def vacuum(self, name: str, **options: Any) -> list[str]:
        """Delete what no retained version of a table needs; returns the files.

        `options` are those of `deltalake.DeltaTable.vacuum`; by default nothing is deleted yet.
        `engine="spark"` lists on executors for `full`; `on_progress` gets a `Progress`.
        """
        from deltasql.api.catalog.vacuum import vacuum  # late: it reads logs

        def commit(operate: Callable[[MultiTableTransaction], None]) -> None:
            with self.begin(one_table=True) as tx:
                operate(tx)

        return vacuum(self, self.resolve(name, fresh=True), commit, **options)

    def vacuum_uncommitted(self, *, dry_run: bool = True) -> list[str]:
        """Delete files of transactions that never committed and whose table does not exist.

        A process that was killed while it created a table leaves them. Files that were announced
        within the last hour stay. Returns their paths; by default nothing is deleted yet.
        """
        from deltasql.api.catalog.uncommitted import (
            vacuum_uncommitted,  # late: few processes need it
        )

        return vacuum_uncommitted(self, dry_run=dry_run)

    def health(self) -> Health:
        """Ask the database for an answer and return what was found."""
        rows = self.store.query("applied_migrations")
        tables = self.store.query("count_tables")[0][0]
        version = max((row[0] for row in rows), default=0)
        pool = self.store.tell_pool()
        return Health(
            ok=version == latest_version(),
            backend=self.store.dialect.name,
            schema_version=version,
            tables=tables,
            pool=pool,
        )

    def migrate(self) -> list[int]:
        """Bring the schema up to date; returns the numbers of the migrations applied."""
        self.store.check_exists()
        return self.store.migrate()

    # For the rooms of the API

    def resolve(self, name: str, *, fresh: bool = False) -> TableRow:
        """Return a live table's row, or an error that names the nearest one.

        A read needs a fresh answer, since others may have renamed or replaced the table; a commit
        finds that out under its lock.
        """
        found = self.store.find_table(*split_table_name(name), fresh=fresh)
        if found is None:
            known = [join_table_name(t.row.namespace, t.row.name) for t in self.tables()]
            near = get_close_matches(name, known, n=1)
            raise TxnLogTableNotFoundError(
                f"table {name} does not exist in {self.uri}",
                table=name,
                help=f"Did you mean {near[0]}?" if near else TxnLogTableNotFoundError.default_help,
            )
        return found

    def writable(self, name: str) -> TableRow:
        """Return a live table's row, or an error when it follows a log of others."""
        found = self.resolve(name, fresh=True)
        if found.is_following:
            raise follows_another_log(found)
        return found

    def stage_create(
        self,
        name: str,
        schema: object,
        location: str | None,
        *,
        allow_nested_location: bool = False,
        **options: Any,
    ) -> Staged:
        """Stage a new table at its location, and create the catalog if there is none."""
        namespace, short = split_table_name(name)
        self.store.create()
        place = absolute_location(location or self._default_location(namespace, short))
        allow_nested = allow_nested_location or self.config.table.allow_nested_location
        refuse_shared_location(self.store.query, place, allow_nested=allow_nested)
        if self.config.mirror.mode != "off":
            refuse_log_of_others(place, self.config)
        return stage_create(
            namespace,
            short,
            schema,
            location=place,
            config=self.config,
            allow_nested_location=allow_nested,
            **options,
        )

    def _default_location(self, namespace: str, name: str) -> str:
        root = self.config.table.data_root
        if root is None and (self.uri.backend == "postgres" or self.uri.is_memory):
            raise TxnLogConfigError(
                "a new table needs a location: this catalog has no data root",
                help="Pass location=, add ?location= to the URI, or set table.data_root "
                "(DELTASQL_TABLE__DATA_ROOT).",
            )
        if root is None:
            database = Path(self.uri.database)
            root = str(database.with_name(f"{database.stem}_data"))
        base = join_location(root, namespace, name)
        # A dropped table may still own the plain folder: its files must not be mixed with ours.
        place, number = base, 1
        while tables_at(self.store.query, place):
            number += 1
            place = f"{base}-{number}"
        return place

    @contextmanager
    def _locked(self, name: str) -> Iterator[tuple[Session, TableRow]]:
        """Lock a table's head, so that no commit is under way while its name changes."""
        table = self.resolve(name, fresh=True)
        with self.store.change([table.table_id]) as (session, heads):
            head = heads.get(table.table_id)
            self.store.forget_table(table)
            if head is None or head.live_name != live_name(table.namespace, table.name):
                raise TxnLogTableNotFoundError(f"table {name} was renamed or dropped", table=name)
            yield session, table

    def _taking_name(self, session: Session, statement: str, name: str, /, **params: Any) -> None:
        try:
            session.execute(statement, **params)
        except self.store.errors as error:
            if self.store.classify(error) is not Fault.DUPLICATE:
                raise
            raise TableExistsError(f"table {name} already exists", table=name) from error
