"""Errors of the database that contains the log."""

from __future__ import annotations

from dataclasses import dataclass

from deltasql.exceptions.base import TxnLogError


@dataclass(eq=False, repr=False)
class TxnLogStoreError(TxnLogError):
    """The database that contains the log failed."""

    default_message = "the metadata database failed"
    default_help = (
        "Read the cause of this error; it is the database's own message. If permission was denied, "
        "the database user may only read or lacks another privilege: `deltasql docs production` "
        "lists the roles."
    )

    backend: str | None = None


class StoreUnavailableError(TxnLogStoreError):
    """The database cannot be reached or opened, or the connection was lost."""

    default_message = "the metadata database cannot be reached"
    default_help = (
        "Check that the database is running, and check its URI, credentials and file permissions; "
        "then retry."
    )


class StoreBusyError(TxnLogStoreError):
    """Waiting for a lock, a statement or a free connection of the pool timed out."""

    default_message = "the metadata database stayed busy"
    default_help = (
        "Retry. If it fails again, find a transaction that was left open and end it, or raise a "
        "limit: store.busy_timeout_ms on SQLite; store.lock_timeout_ms or "
        "store.statement_timeout_ms on PostgreSQL; pool.max_size if all connections were in use."
    )


class StoreReadOnlyError(TxnLogStoreError):
    """A write was sent to a read replica, or to a database whose transactions are read-only."""

    default_message = "the metadata database is read-only"
    default_help = (
        "Write through the URI of the primary server; a read replica serves only readers. On the "
        "primary server, check default_transaction_read_only of the role and the database."
    )


class StoreClosedError(TxnLogStoreError):
    """The store or catalog was used after `close()`."""

    default_message = "the store is closed"
    default_help = "Open it again with deltasql.connect(uri) and use it inside its `with` block."


@dataclass(eq=False, repr=False)
class SchemaVersionError(TxnLogStoreError):
    """This release does not support the version of the database schema."""

    default_message = "this release does not support the schema version of the metadata database"
    default_help = (
        "If the version found is higher, upgrade deltasql; otherwise run `deltasql migrate`."
    )

    found: int | None = None
    supported: int | None = None


@dataclass(eq=False, repr=False)
class MigrationError(TxnLogStoreError):
    """A migration of the database schema failed, or its SQL changed after it was applied."""

    default_message = "a schema migration failed"
    default_help = "It was rolled back. Correct the cause and run `deltasql migrate` again."

    migration: str | None = None


@dataclass(eq=False, repr=False)
class MissingDriverError(TxnLogStoreError, ImportError):
    """A required optional package is not installed.

    >>> print(MissingDriverError(driver="psycopg", extra="postgres"))
    psycopg is not installed (extra: postgres)
    Help: Run: pip install 'deltasql[postgres]'
    """

    default_message = "an optional package is not installed"
    default_help = "Run: pip install 'deltasql[all]'"

    driver: str | None = None
    extra: str | None = None

    def __post_init__(self) -> None:
        if self.driver:
            self.message = self.message or f"{self.driver} is not installed"
        if self.extra:
            own = f"Run: pip install 'deltasql[{self.extra}]'"
            self.help = self.help or own
        super().__post_init__()


@dataclass(eq=False, repr=False)
class UnsupportedReleaseError(TxnLogStoreError):
    """deltasql does not support this release of a library or of a database server."""

    default_message = "an installed release is not supported"
    default_help = "Install a release that deltasql supports."

    component: str | None = None
    found: str | None = None
    supported: str | None = None
