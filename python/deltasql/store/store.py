"""The store: the logs of all tables of a catalog, in one database.

It guarantees that a commit over any number of tables is one SQL transaction, and that a version
number and a transaction id are used only once.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltasql import telemetry
from deltasql.exceptions import (
    CatalogNotFoundError,
    SchemaVersionError,
    StoreBusyError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TxnLogStoreError,
    VersionNotFoundError,
)
from deltasql.model.clock import now_ms
from deltasql.store import append, migrations
from deltasql.store.dialect import Appended, Dialect, Fault, Row, Session
from deltasql.store.locations import record_locations
from deltasql.store.logged_session import logged, logs_statements, timed_statement
from deltasql.store.records import (
    Commit,
    Head,
    OneFile,
    SkippingColumn,
    TableRow,
    live_name,
    metadata_from_row,
    protocol_from_row,
)
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    import pyarrow as pa

    from deltasql.model.actions import Metadata, Protocol
    from deltasql.telemetry import TableGauge
    from deltasql.uri import DeltaSqlUri

    Intent = tuple[str, str]  # transaction id, path of the file


_MOST_CACHED = 1_000  # entries of a cache with one entry per version


class Store:
    """Statements and transactions on one database, with a cache of rows that never change."""

    def __init__(self, dialect: Dialect, uri: DeltaSqlUri) -> None:
        self.dialect, self._uri = dialect, uri
        # Device and inode of the database file; () on a server; None until the catalog is found.
        self._database_id: tuple[int, ...] | None = None
        self._names: dict[str, TableRow] = {}
        self._metadata: dict[tuple[int, int], Metadata] = {}
        self._protocols: dict[tuple[int, int], Protocol] = {}
        self._skipping: dict[tuple[int, int], list[SkippingColumn]] = {}
        self._partitions: dict[int, dict[str, int]] = {}
        self._tables_with_gauges: set[str] = set()
        self._guard = threading.Lock()

    # Life cycle

    def create(self) -> None:
        """Create the catalog and its database file, unless the catalog exists."""
        if not self.is_found:
            self.migrate()

    @property
    def is_found(self) -> bool:
        """Whether an earlier call found that the catalog exists."""
        return self._database_id is not None

    def exists(self) -> bool:
        """Return whether the catalog exists; the database is not queried again once it is found."""
        return self.is_found or self.ledger() is not None

    def check_exists(self) -> None:
        """Raise CatalogNotFoundError if the catalog does not exist."""
        if not self.exists():
            raise self.not_found()

    def not_found(self) -> CatalogNotFoundError:
        """Return the error for a call that needs the catalog if it does not exist."""
        place = self._uri.catalog()
        return CatalogNotFoundError(
            f"there is no catalog yet at {place}: `deltasql init` creates one",
            catalog=str(place),
            help=_help_with_path(self._uri, self.dialect.path),
        )

    def is_replaced(self) -> bool:
        """Return whether the database file was deleted or replaced since the catalog was found."""
        found = self._database_id
        return found is not None and found != _file_id(self.dialect.path)

    def migrate(self, *, up_to: int | None = None) -> list[int]:
        """Apply pending migrations and return their numbers; create a missing catalog."""
        with self._translated():
            self.dialect.create_database()
            applied = migrations.migrate(self.dialect, up_to=up_to)
        self._database_id = _file_id(self.dialect.path)
        return applied

    def record_locations(self) -> int:
        """Record the locations of tables that an older release created or dropped.

        A process of 0.1.0 that runs during the upgrade does not record them. Returns the number of
        such tables; nothing is written if there are none.
        """
        if not self.query("unrecorded_locations"):
            return 0
        with self.change() as (session, _):
            session.query("lock_schema")  # if two processes do this, the second finds nothing
            return record_locations(session)

    def upgrade(self) -> None:
        """Apply pending migrations; does nothing if the catalog does not exist."""
        found, needed = self.schema_version(), migrations.latest_version()
        if found in (None, needed):
            return
        try:
            self.migrate()
        except TxnLogStoreError as error:
            if type(error) is not TxnLogStoreError:  # its help says what to do
                raise
            raise SchemaVersionError(
                f"the catalog has schema version {found}, this release needs {needed}, and it "
                f"cannot be upgraded here: {error.message}",
                found=found,
                supported=needed,
                help="Run `deltasql migrate` as a user who may change the schema, then try again.",
            ) from error

    def schema_version(self) -> int | None:
        """Return the schema version, None without a catalog; raise if the schema is newer."""
        return migrations.version_of(self.ledger())

    def ledger(self) -> list[Row] | None:
        """Return (number, checksum) of the applied migrations; None without a catalog."""
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

    def report_pool_usage(self) -> dict[str, int]:
        """Set the metric for the connections of the pool, and return its values."""
        usage = self.dialect.usage()
        for state in ("lent", "idle", "max"):
            telemetry.gauge("pool_connections", usage[state], state=state)
        return usage

    def set_table_gauge(self, name: TableGauge, value: float, table: str) -> None:
        """Set a metric of a table."""
        if telemetry.is_enabled():
            self._tables_with_gauges.add(table)
            telemetry.gauge(name, value, table=table)

    def remove_table_gauges(self, *, but: Iterable[str]) -> None:
        """Remove the metrics of all tables except these: the others were dropped or renamed."""
        for table in self._tables_with_gauges.difference(but):
            self._tables_with_gauges.discard(table)
            telemetry.forget("mirror_lag_seconds", table=table)
            telemetry.forget("files_active", table=table)

    def session(self) -> AbstractContextManager[Session]:
        """Take a connection for a block; raise CatalogNotFoundError without a catalog."""
        if self._database_id is None:
            self.check_exists()
        sessions = self.dialect.session()
        return logged(sessions) if logs_statements() else sessions

    def classify(self, error: BaseException) -> Fault:
        return self.dialect.classify(error)

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """The driver's exception classes."""
        return self.dialect.errors()

    def _translated(self) -> AbstractContextManager[None]:
        """Convert driver errors of a block to our error classes."""
        return _Translated(self)

    def translate(self, error: BaseException) -> TxnLogStoreError:
        """Return our error for a driver error: connection lost, busy, or another failure."""
        kinds = {
            Fault.LOST: StoreUnavailableError,
            Fault.RETRY: StoreBusyError,
            Fault.BUSY: StoreBusyError,
            Fault.READ_ONLY: StoreReadOnlyError,
        }
        kind = kinds.get(self.classify(error), TxnLogStoreError)
        text = str(error).strip() or type(error).__name__
        notes = getattr(error, "__notes__", ())  # the session that holds the lock
        return kind(
            "; ".join([f"{self.dialect.name} failed: {text}", *notes]), backend=self.dialect.name
        )

    @contextmanager
    def change(
        self, table_ids: Sequence[int] = (), *, is_bulk: bool = False
    ) -> Iterator[tuple[Session, dict[int, Head]]]:
        """Change the catalog in one transaction, with the heads of these tables locked.

        A bulk transaction has longer timeouts for a statement and between two statements.
        """
        with self._translated(), self.dialect.write_turn(), self.session() as session:
            heads = self.begin_locked(session, table_ids, is_bulk=is_bulk)
            if is_bulk and self.dialect.limits_idle_transactions:
                session.execute("allow_idle")
            yield session, heads
            session.commit()

    @contextmanager
    def relaxed(self) -> Iterator[Session]:
        """Write in one transaction without waiting for the disk.

        After its COMMIT, a power failure may lose the whole transaction, but never a part of it.
        """
        relaxed = self.dialect.relaxes_durability
        with self._translated(), self.dialect.write_turn(), self.session() as session:
            if relaxed == "before begin":
                session.query("relax_durability")
            try:
                session.begin()
                if relaxed == "after begin":
                    session.execute("relax_durability")
                yield session
                session.commit()
            finally:
                try:
                    session.rollback()
                finally:
                    if relaxed == "before begin":
                        session.query("restore_durability")

    # Reads

    def query(self, name: str, /, **params: Any) -> list[Row]:
        """Run one read by name; repeat it if the connection was lost."""
        try:
            with self.session() as session:
                return session.query(name, **params)
        except self.dialect.errors() as error:
            if self.classify(error) is not Fault.LOST:
                raise self.translate(error) from error
        with self._translated(), self.session() as session:
            return session.query(name, **params)

    def arrow(self, name: str, /, **params: Any) -> pa.Table:
        """Run one bulk read and return its rows as Arrow."""
        if self._database_id is None:
            self.check_exists()
        with self._translated(), timed_statement(name) as fields:
            found = self.dialect.arrow(name, **params)
            fields["rows"] = found.num_rows
        return found

    def find_table(self, namespace: str, name: str, *, fresh: bool = False) -> TableRow | None:
        """Return a live table by name. A cached row may be out of date; a commit checks it."""
        key = live_name(namespace, name)
        if not fresh and (known := self._names.get(key)) is not None:
            return known
        rows = self.query("table_by_name", live_name=key)
        if not rows:
            self._names.pop(key, None)
            return None
        table = TableRow.from_row(rows[0])
        self._names[key] = table
        return table

    def find_head(self, namespace: str, name: str) -> tuple[TableRow, Head] | None:
        """Return a live table and its current head, with one statement."""
        key = live_name(namespace, name)
        backend = self.dialect.name
        with (
            telemetry.span("open", table=name),
            telemetry.timed("metadata_open_latency_ms", backend=backend),
        ):
            rows = self.query("table_and_head", live_name=key)
        if not rows:
            self._names.pop(key, None)
            return None
        table = self._names[key] = TableRow.from_row(rows[0][:8])
        return table, Head(table.table_id, *rows[0][8:])

    def forget_table(self, table: TableRow) -> None:
        """Remove a table from the cache after it was renamed or dropped."""
        self._names.pop(table.live_name, None)

    def head(self, table_id: int) -> Head | None:
        """Return the head of a table; None if the table has none."""
        backend = self.dialect.name
        with (
            telemetry.span("open", table_id=table_id),
            telemetry.timed("metadata_open_latency_ms", backend=backend),
        ):
            rows = self.query("read_head", table_id=table_id)
        return Head(*rows[0]) if rows else None

    def metadata(self, table_id: int, version: int, session: Session | None = None) -> Metadata:
        """Return the metadata that this version wrote (see Head.metadata_version)."""
        key = (table_id, version)
        found = self._metadata.get(key)
        if found is None:
            row = self._one("metadata_of", session, table_id=table_id, version=version)
            # Every commit to a table with identity columns adds an entry, so old ones are dropped.
            _drop_oldest(self._metadata)
            found = self._metadata[key] = metadata_from_row(row)
        return found

    def protocol(self, table_id: int, version: int, session: Session | None = None) -> Protocol:
        """Return the protocol that this version wrote (see Head.protocol_version)."""
        key = (table_id, version)
        found = self._protocols.get(key)
        if found is None:
            row = self._one("protocol_of", session, table_id=table_id, version=version)
            found = self._protocols[key] = protocol_from_row(row)
        return found

    def skipping_columns(
        self, table_id: int, metadata_version: int, session: Session | None = None
    ) -> list[SkippingColumn]:
        """Return the indexed columns as of the version that last wrote metadata."""
        key = (table_id, metadata_version)
        found = self._skipping.get(key)
        if found is None:
            params = {"table_id": table_id}
            rows = (
                session.query("skipping_columns", **params)
                if session
                else self.query("skipping_columns", **params)
            )
            found = [SkippingColumn.from_row(row) for row in rows]
            if session is None:
                _drop_oldest(self._skipping)
                self._skipping[key] = found
        return found

    def partition_values(self, table_id: int) -> dict[int, str]:
        """Return every partition of a table as id → canonical JSON."""
        return dict(self.query("partitions", table_id=table_id))

    def check_version(self, table_id: int, version: int) -> None:
        """Raise VersionNotFoundError if a version has expired, so that its rows are incomplete.

        Expiry deletes the row of a version before the rows that only this version needs. So if the
        version exists after a read, the read was complete.
        """
        if self.query("version_exists", table_id=table_id, version=version):
            return
        for namespace, name, low, high in self.query("named_version_bounds", table_id=table_id):
            raise version_not_found(join_table_name(namespace, name), version, low, high)

    def _one(self, name: str, session: Session | None, /, **params: Any) -> Row:
        rows = session.query(name, **params) if session else self.query(name, **params)
        if not rows:  # the metadata of an expired version
            self.check_version(params["table_id"], params["version"])
        return rows[0]

    # Identity columns

    def reserve_numbers(
        self, table_id: int, column: str, *, base: int, advance: int, step: int, limit: int
    ) -> int | None:
        """Reserve a range of values of an identity column; return the last one.

        They follow `base` and all values reserved before. Returns None if the last one would be
        beyond the limit by `advance`. The reservation stays if the caller's transaction fails.
        """
        numbers = {"base": base, "advance": advance, "step": step, "limit": limit}
        with self.change() as (session, _):
            rows = session.query(
                "reserve_numbers", table_id=table_id, column_name=column, **numbers
            )
        return int(rows[0][0]) if rows else None

    # Commits

    def begin_locked(
        self, session: Session, table_ids: Sequence[int], *, is_bulk: bool = False
    ) -> dict[int, Head]:
        """Begin a transaction and lock the heads in the order of ids, which prevents deadlocks."""
        session.begin(is_bulk=is_bulk)
        if not table_ids:
            return {}
        rows = session.query("lock_heads", table_ids=sorted(table_ids))
        return {row[0]: Head(*row) for row in rows}

    @property
    def has_append_one(self) -> bool:
        """Whether the database has a fast path for a blind append of one file."""
        return self.dialect.append_one is not None

    def append_one_file(self, one: OneFile, sending: Callable[[], None]) -> Appended | None:
        """Ratify a blind append of one file on the fast path.

        Calls `sending` before anything is written. Returns None if nothing was written, because the
        table changed since its metadata was cached, or the file's partition is not cached.
        """
        plan = append.plan_one(one, self._partitions.get(one.table.table_id, {}))
        append_one = self.dialect.append_one
        if plan is None or append_one is None:
            return None
        with self.session() as session:
            return append_one(session, plan, sending)

    def append_commits(
        self, session: Session, commits: Sequence[Commit], *, check_duplicates: bool
    ) -> None:
        """Write all commits and COMMIT. When this returns, they are ratified.

        With `check_duplicates`, if an added file is already live, the new row replaces the earlier
        one. Without it, a unique index rejects such a file, if the database has that index.
        """
        known = {c.table.table_id: self._partitions.get(c.table.table_id, {}) for c in commits}
        plans = [
            append.prepare(
                session,
                commit,
                known[commit.table.table_id],
                check_duplicates=check_duplicates,
            )
            for commit in commits
        ]
        append.write(session, plans)
        for plan in plans:
            self._cache_partitions(plan)

    def _cache_partitions(self, plan: append.Plan) -> None:
        # Cache partition ids only after COMMIT: an id that was rolled back is used again for
        # another partition.
        table = plan.commit.table
        with self._guard:
            self._partitions.setdefault(table.table_id, {}).update(plan.partitions)
            self._names[table.live_name] = table

    def record_intents(self, txn_id: str, table_id: int, paths: Sequence[str]) -> None:
        """Record files before they are written, so that a vacuum can find uncommitted files."""
        # The write does not wait for the disk. If a power failure loses an intent, only a full
        # vacuum finds the file.
        if paths and self.dialect.has_combined_writes:
            intents: dict[str, Any] = {"txn_id": txn_id, "table_id": table_id, "now_ms": now_ms()}
            self.query("record_staged_files", **intents, paths=list(paths))
        elif paths:
            rows = [(txn_id, table_id, path, now_ms()) for path in paths]
            with self.relaxed() as session:
                session.insert("insert_staged_file", rows)

    def intents_before(self, before_ms: int) -> list[tuple[str, int, str, int]]:
        """Return (txn id, table id, path, time) of the intents recorded before a time."""
        rows = self.query("staged_files_before", before_ms=before_ms)
        return [(row[0], row[1], row[2], row[3]) for row in rows]

    def complete_intents(self, session: Session, txn_id: str) -> int:
        """Delete the intents of a transaction as part of its commit; return their number.

        If some are missing, a vacuum may have taken them over in order to delete the files.
        """
        return session.execute("clear_staged_files", txn_id=txn_id)

    def clear_intents(self, txn_id: str) -> None:
        """Delete the intents of a transaction whose files are deleted."""
        with self._translated(), self.dialect.write_turn(), self.session() as session:
            session.execute("clear_staged_files", txn_id=txn_id)

    def take_intents(self, table_id: int, intents: Collection[Intent]) -> dict[Intent, str]:
        """Take over intents for a vacuum, so that their transactions cannot commit the files.

        Intents of transactions that are being committed are skipped. Returns a new id for each
        intent that was taken over; the intent is stored under this id. If the vacuum fails before
        it has deleted the files, the next vacuum finds the intents under these ids.
        """
        if not intents:
            return {}
        taker, taken = uuid.uuid4(), {}
        with self.change() as (session, _):
            for txn_id, path in intents:
                taken_by = f"{taker}/{txn_id}"
                intent = {"txn_id": txn_id, "table_id": table_id, "path": path}
                if session.execute("take_staged_file", **intent, taken_by=taken_by):
                    taken[txn_id, path] = taken_by
        return taken

    def delete_taken_intents(self, table_id: int, taken: Mapping[Intent, str]) -> None:
        """Delete intents that a vacuum took over, after it has deleted their files."""
        if not taken:
            return
        with self.change() as (session, _):
            for (_, path), taken_by in taken.items():
                session.execute("clear_staged_file", txn_id=taken_by, table_id=table_id, path=path)


def _drop_oldest(cache: dict[tuple[int, int], Any]) -> None:
    """Make room for an entry of a cache."""
    if len(cache) >= _MOST_CACHED:
        oldest, *_ = list(cache)  # a copy: other threads may add entries
        cache.pop(oldest, None)


class _Translated:
    """A context manager that converts driver errors to our error classes."""

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


def version_not_found(table: str, version: int, low: int, high: int) -> VersionNotFoundError:
    """Return the error for a version that a table with the versions low..high does not have."""
    gone = f" The history before version {low} has expired." if 0 <= version < low else ""
    return VersionNotFoundError(
        f"{table} has no version {version}; it has {low} to {high}",
        table=table,
        version=version,
        latest=high,
        help=f"{VersionNotFoundError.default_help}{gone}",
    )


def _help_with_path(uri: DeltaSqlUri, path: Path | None) -> str:
    """Return a hint that names a missing folder, and explains a relative path in the URI."""
    default = CatalogNotFoundError.default_help
    if path is None:
        return default
    missing = "" if path.parent.is_dir() else f"The folder {path.parent} does not exist. "
    given = Path(uri.database)
    if given.is_absolute():
        return missing + default
    absolute = replace(uri.catalog(), database=f"/{uri.database}")
    return (
        f"The path is relative to {path.parents[len(given.parts) - 1]}; an absolute path needs "
        f"two slashes: {absolute}. {missing}{default}"
    )


def _file_id(path: Path | None) -> tuple[int, ...] | None:
    """Return device and inode of the database file; () on a server; None if it is missing."""
    try:
        found = None if path is None else path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        found = None  # opening the database raises an error with the reason
    return () if found is None else (found.st_dev, found.st_ino)
