"""The store: one catalog's log in one database.

It guarantees that a commit over any number of tables is one SQL transaction, that a version
number is taken once, and that a transaction id is recorded once.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltasql import telemetry
from deltasql.exceptions import (
    CatalogNotFoundError,
    StoreBusyError,
    StoreUnavailableError,
    TxnLogStoreError,
    TxnLogUriError,
)
from deltasql.model.clock import now_ms
from deltasql.store import append, migrations
from deltasql.store.append_one import plan_one
from deltasql.store.dialect import Appended, Dialect, Fault, Row, Session
from deltasql.store.records import (
    Commit,
    Head,
    OneFile,
    SkippingColumn,
    TableRow,
    load,
    metadata_from_row,
    protocol_from_row,
)
from deltasql.store.sqlite.dialect import SqliteDialect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    import pyarrow as pa

    from deltasql.config import Config
    from deltasql.model.actions import Metadata, Protocol
    from deltasql.telemetry import TableGauge
    from deltasql.uri import DeltaSqlUri


def open_store(uri: DeltaSqlUri, config: Config, *, migrate: bool = True) -> Store:
    """Open the store of a URI and bring the schema of its catalog up to date.

    Where there is no catalog, none is created: `Store.create` does that. In memory there is one
    from the start.
    """
    store = Store(_dialect(uri, config), uri)
    if migrate:
        try:
            store.create() if uri.is_memory else store.bring_up_to_date()
        except BaseException:
            store.close()  # a pool would go on trying to connect
            raise
    return store


class Store:
    """Statements and transactions over one database, with what never changes kept in memory."""

    def __init__(self, dialect: Dialect, uri: DeltaSqlUri) -> None:
        self.dialect, self._uri = dialect, uri
        # The file that the catalog was found in, () on a server; None until it is found.
        self._database_id: tuple[int, ...] | None = None
        self._names: dict[str, TableRow] = {}
        self._metadata: dict[tuple[int, int], Metadata] = {}
        self._protocols: dict[tuple[int, int], Protocol] = {}
        self._skipping: dict[tuple[int, int], list[SkippingColumn]] = {}
        self._partitions: dict[int, dict[str, int]] = {}
        self._told: set[str] = set()
        self._guard = threading.Lock()

    # Life cycle

    def create(self) -> None:
        """Create the catalog, the file of its database included; nothing if there is one."""
        if not self.is_found:
            self.migrate()

    @property
    def is_found(self) -> bool:
        """Whether there was a catalog when it was last looked for."""
        return self._database_id is not None

    def exists(self) -> bool:
        """Tell whether there is a catalog; once found, it is not looked for again."""
        return self.is_found or self.ledger() is not None

    def check_exists(self) -> None:
        """Raise CatalogNotFoundError where there is no catalog."""
        if not self.exists():
            raise self.not_found()

    def not_found(self) -> CatalogNotFoundError:
        """Return the error of a call that needs a catalog where there is none."""
        place = self._uri.catalog()
        return CatalogNotFoundError(
            f"there is no catalog yet at {place}: `deltasql init` makes one",
            catalog=str(place),
            help=_help_with_path(self._uri, self.dialect.path),
        )

    def is_replaced(self) -> bool:
        """Tell whether the file that the catalog was found in was deleted, or is another one."""
        found = self._database_id
        return found is not None and found != _file_id(self.dialect.path)

    def migrate(self, *, up_to: int | None = None) -> list[int]:
        """Apply missing migrations, all of them where there is no catalog; return their numbers."""
        with self._translated():
            self.dialect.create_database()
            applied = migrations.migrate(self.dialect, up_to=up_to)
        self._database_id = _file_id(self.dialect.path)
        return applied

    def bring_up_to_date(self) -> None:
        """Apply missing migrations; nothing is created where there is no catalog."""
        if self.schema_version() not in (None, migrations.latest_version()):
            self.migrate()

    def schema_version(self) -> int | None:
        """Return the version of the schema; None without a catalog, an error if it is newer."""
        return migrations.version_of(self.ledger())

    def ledger(self) -> list[Row] | None:
        """Return (number, checksum) of the applied migrations; None where there is no catalog."""
        database_id = _file_id(self.dialect.path)
        if database_id is None:
            return None
        with self._translated(), self.dialect.session() as session:
            found = self.dialect.ledger(session)
        if found is not None:
            self._database_id = database_id
        return found

    def close(self) -> None:
        """Close every connection; safe to call twice."""
        self.dialect.close()

    def tell_pool(self) -> dict[str, int]:
        """Return how the connections are used, and publish it as a metric."""
        usage = self.dialect.usage()
        for state in ("lent", "idle", "max"):
            telemetry.gauge("pool_connections", usage[state], state=state)
        return usage

    def tell_table(self, name: TableGauge, value: float, table: str) -> None:
        """Publish a number of a table."""
        if telemetry.is_enabled():
            self._told.add(table)
            telemetry.gauge(name, value, table=table)

    def forget_tables(self, *, but: Iterable[str]) -> None:
        """Publish no more numbers of tables that were dropped or have another name now."""
        for table in self._told.difference(but):
            self._told.discard(table)
            telemetry.forget("mirror_lag_seconds", table=table)
            telemetry.forget("files_active", table=table)

    def session(self) -> AbstractContextManager[Session]:
        """Borrow a connection to the catalog; CatalogNotFoundError where there is none."""
        if self._database_id is None:
            self.check_exists()
        return self.dialect.session()

    def classify(self, error: BaseException) -> Fault:
        return self.dialect.classify(error)

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """The driver's exception classes."""
        return self.dialect.errors()

    def _translated(self) -> AbstractContextManager[None]:
        """Turn a driver's error into ours."""
        return _Translated(self)

    def translate(self, error: BaseException) -> TxnLogStoreError:
        """Return our error for a driver's: lost, busy, or refused for a reason of its own."""
        kinds = {
            Fault.LOST: StoreUnavailableError,
            Fault.RETRY: StoreBusyError,
            Fault.BUSY: StoreBusyError,
        }
        kind = kinds.get(self.classify(error), TxnLogStoreError)
        text = str(error).strip() or type(error).__name__
        notes = getattr(error, "__notes__", ())  # who holds the lock
        return kind(
            "; ".join([f"{self.dialect.name} failed: {text}", *notes]), backend=self.dialect.name
        )

    @contextmanager
    def change(
        self, table_ids: Sequence[int] = (), *, is_bulk: bool = False
    ) -> Iterator[tuple[Session, dict[int, Head]]]:
        """Change the catalog itself in one transaction, with the heads of these tables locked.

        In bulk, the database may take longer for a statement, and the caller between two.
        """
        with self._translated(), self.dialect.write_turn(), self.session() as session:
            heads = self.begin_locked(session, table_ids, is_bulk=is_bulk)
            if is_bulk and self.dialect.name == "postgres":
                session.execute("allow_pauses")
            yield session, heads
            session.commit()

    @contextmanager
    def relaxed(self) -> Iterator[Session]:
        """Write in one transaction that may be lost with the power, never torn."""
        name = self.dialect.name
        with self._translated(), self.dialect.write_turn(), self.session() as session:
            # SQLite changes it between transactions, PostgreSQL within one.
            is_full = name == "sqlite" and self.dialect.is_full
            if is_full:
                session.query("relax_durability")
            try:
                session.begin()
                if name == "postgres":
                    session.execute("relax_durability")
                yield session
                session.commit()
            finally:
                try:
                    session.rollback()
                finally:
                    if is_full:
                        session.query("restore_durability")

    # Reads

    def query(self, name: str, /, **params: Any) -> list[Row]:
        """Run one read on a connection of its own, once more if the connection was dead."""
        try:
            with self.session() as session:
                return session.query(name, **params)
        except self.dialect.errors() as error:
            if self.classify(error) is not Fault.LOST:
                raise self.translate(error) from error
        with self._translated(), self.session() as session:
            return session.query(name, **params)

    def arrow(self, name: str, /, **params: Any) -> pa.Table:
        """Run one bulk read and return Arrow."""
        if self._database_id is None:
            self.check_exists()
        with self._translated():
            return self.dialect.arrow(name, **params)

    def find_table(self, namespace: str, name: str, *, fresh: bool = False) -> TableRow | None:
        """Return a live table by name; the lock of a commit checks a remembered answer again."""
        live_name = append.live_name(namespace, name)
        if not fresh and (known := self._names.get(live_name)) is not None:
            return known
        rows = self.query("table_by_name", live_name=live_name)
        if not rows:
            self._names.pop(live_name, None)
            return None
        table = TableRow.from_row(rows[0])
        self._names[live_name] = table
        return table

    def find_head(self, namespace: str, name: str) -> tuple[TableRow, Head] | None:
        """Return a live table with its head, as they are now: one statement for both."""
        live_name = append.live_name(namespace, name)
        backend = self.dialect.name
        with (
            telemetry.span("open", table=name),
            telemetry.timed("metadata_open_latency_ms", backend=backend),
        ):
            rows = self.query("table_and_head", live_name=live_name)
        if not rows:
            self._names.pop(live_name, None)
            return None
        table = self._names[live_name] = TableRow.from_row(rows[0][:8])
        return table, Head(table.table_id, *rows[0][8:])

    def forget_table(self, table: TableRow) -> None:
        """Forget a name that turned out to be renamed or dropped."""
        self._names.pop(append.live_name(table.namespace, table.name), None)

    def head(self, table_id: int) -> Head | None:
        """Return the head row: one indexed read, whatever the size of the log."""
        backend = self.dialect.name
        with (
            telemetry.span("open", table_id=table_id),
            telemetry.timed("metadata_open_latency_ms", backend=backend),
        ):
            rows = self.query("read_head", table_id=table_id)
        return Head(*rows[0]) if rows else None

    def metadata(self, table_id: int, version: int, session: Session | None = None) -> Metadata:
        """Return the metadata written by exactly this version (see Head.metadata_version)."""
        key = (table_id, version)
        found = self._metadata.get(key)
        if found is None:
            row = self._one("metadata_of", session, table_id=table_id, version=version)
            found = self._metadata[key] = metadata_from_row(row)
        return found

    def protocol(self, table_id: int, version: int, session: Session | None = None) -> Protocol:
        """Return the protocol written by exactly this version (see Head.protocol_version)."""
        key = (table_id, version)
        found = self._protocols.get(key)
        if found is None:
            row = self._one("protocol_of", session, table_id=table_id, version=version)
            found = self._protocols[key] = protocol_from_row(row)
        return found

    def skipping_columns(
        self, table_id: int, metadata_version: int, session: Session | None = None
    ) -> list[SkippingColumn]:
        """Return the indexed columns as the metadata of that version left them."""
        key = (table_id, metadata_version)
        found = self._skipping.get(key)
        if found is None:
            params = {"table_id": table_id}
            rows = (
                session.query("skipping_columns", **params)
                if session
                else self.query("skipping_columns", **params)
            )
            found = [SkippingColumn(r[0], tuple(load(r[1])), r[2], r[3], r[4]) for r in rows]
            if session is None:
                self._skipping[key] = found
        return found

    def partition_values(self, table_id: int) -> dict[int, str]:
        """Return every partition of a table as id → canonical JSON."""
        return dict(self.query("partitions", table_id=table_id))

    def _one(self, name: str, session: Session | None, /, **params: Any) -> Row:
        rows = session.query(name, **params) if session else self.query(name, **params)
        return rows[0]

    # Commits

    def begin_locked(
        self, session: Session, table_ids: Sequence[int], *, is_bulk: bool = False
    ) -> dict[int, Head]:
        """Start the commit's transaction and lock the heads, in id order: none can deadlock."""
        session.begin(is_bulk=is_bulk)
        if not table_ids:
            return {}
        rows = session.query("lock_heads", table_ids=sorted(table_ids))
        return {row[0]: Head(*row) for row in rows}

    @property
    def has_shortcut(self) -> bool:
        """Whether a blind append of one file has a way of its own."""
        return self.dialect.append_one is not None

    def append_one_file(self, one: OneFile, sending: Callable[[], None]) -> Appended | None:
        """Ratify a blind append of one file by the short way, where the database has one.

        Calls `sending` before anything is written. None when nothing was done: the table is no
        longer as it is remembered.
        """
        plan = plan_one(one, self._partitions.get(one.table.table_id, {}))
        append_one = self.dialect.append_one
        if plan is None or append_one is None:
            return None
        with self.session() as session:
            return append_one(session, plan, sending)

    def append_commits(self, session: Session, commits: Sequence[Commit], *, careful: bool) -> None:
        """Write every commit and COMMIT: after this returns they are ratified.

        `careful` looks for files that are added while already live, which the fast way leaves
        to a unique index where the database has one.
        """
        known = {c.table.table_id: self._partitions.get(c.table.table_id, {}) for c in commits}
        plans = [
            append.prepare(session, commit, known[commit.table.table_id], careful=careful)
            for commit in commits
        ]
        append.write(session, plans)
        for plan in plans:
            self._learn(plan)

    def _learn(self, plan: append.Plan) -> None:
        # Only what is ratified may be remembered: a rolled-back partition id would be reused.
        table = plan.commit.table
        with self._guard:
            self._partitions.setdefault(table.table_id, {}).update(plan.partitions)
            self._names[append.live_name(table.namespace, table.name)] = table

    def record_intents(self, txn_id: str, table_id: int, paths: Sequence[str]) -> None:
        """Note files before they are written, so that one without a commit is known as such."""
        # A note that is lost with the power leaves a file that only a full vacuum finds.
        if paths and self.dialect.name == "postgres":
            intents: dict[str, Any] = {"txn_id": txn_id, "table_id": table_id, "now_ms": now_ms()}
            self.query("note_staged_files", **intents, paths=list(paths))
        elif paths:
            rows = [(txn_id, table_id, path, now_ms()) for path in paths]
            with self.relaxed() as session:
                session.insert("insert_staged_file", rows)

    def intents_before(self, before_ms: int) -> list[tuple[str, int, str, int]]:
        """List (txn id, table id, path, time) of files noted before a moment and not adopted."""
        rows = self.query("staged_files_before", before_ms=before_ms)
        return [(row[0], row[1], row[2], row[3]) for row in rows]

    def adopt_intents(self, session: Session, txn_id: str) -> int:
        """End the intents of a transaction with its commit; returns how many there were.

        A vacuum takes them over before it deletes: whoever misses some looks for one.
        """
        return session.execute("clear_staged_files", txn_id=txn_id)

    def clear_intents(self, txn_id: str) -> None:
        """Forget the intents of a transaction whose files are gone."""
        with self._translated(), self.dialect.write_turn(), self.session() as session:
            session.execute("clear_staged_files", txn_id=txn_id)


class _Translated:
    """A block whose errors of the driver become ours."""

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        self._store = store

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and isinstance(error, self._store.errors):
            raise self._store.translate(error) from error


def _help_with_path(uri: DeltaSqlUri, path: Path | None) -> str:
    """Tell what of a path is missing, and what one with a single slash means."""
    default = CatalogNotFoundError.default_help
    if path is None:
        return default
    missing = "" if path.parent.is_dir() else f"the folder {path.parent} does not exist; "
    given = Path(uri.database)
    if given.is_absolute():
        return missing + default
    meant = replace(uri.catalog(), database=f"/{uri.database}")
    return (
        f"the path is below {path.parents[len(given.parts) - 1]}: one that begins at the root has "
        f"two slashes, {meant}; {missing}{default}"
    )


def _file_id(path: Path | None) -> tuple[int, ...] | None:
    """Tell a file from another one that is put in its place; None where there is none."""
    try:
        found = None if path is None else path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        found = None  # the database says why it cannot be opened
    return () if found is None else (found.st_dev, found.st_ino)


def _dialect(uri: DeltaSqlUri, config: Config) -> Dialect:
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
