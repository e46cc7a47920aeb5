"""Everything deltasql raises, in one tree.

    TxnLogError                            deltalake DeltaError
    ├── TxnLogUriError                     ValueError
    ├── TxnLogConfigError                  ValueError
    ├── TxnLogStoreError
    │   ├── StoreUnavailableError
    │   ├── StoreBusyError
    │   ├── StoreClosedError
    │   ├── SchemaVersionError
    │   ├── MigrationError
    │   └── MissingDriverError             ImportError
    ├── TxnLogTransactionError             deltalake CommitFailedError
    │   ├── CommitConflictError
    │   │   ├── ConcurrentAppendError
    │   │   ├── ConcurrentDeleteReadError
    │   │   ├── ConcurrentDeleteDeleteError
    │   │   ├── MetadataChangedError
    │   │   ├── ProtocolChangedError
    │   │   ├── ConcurrentTransactionError
    │   │   ├── ConcurrentDomainMetadataError
    │   │   ├── VersionTakenError
    │   │   └── TableChangedError
    │   ├── RetriesExhaustedError
    │   ├── CommitOutcomeUnknownError
    │   └── TransactionClosedError
    ├── TxnLogMirrorError
    │   └── MirrorDivergedError
    ├── TxnLogTableNotFoundError           deltalake TableNotFoundError
    ├── TableExistsError
    ├── VersionNotFoundError
    ├── TxnLogSchemaError                  deltalake SchemaMismatchError
    ├── TxnLogProtocolError                deltalake DeltaProtocolError
    │   ├── LogParseError
    │   ├── UnsupportedFeatureError
    │   └── InvalidActionError
    └── TxnLogEngineError

The right column names what else the class is, so code written for `deltalake` keeps catching it.
Branch on the type, read the fields, show the text: it ends with one `Help:` line. Secrets are
masked before they reach a message, a field or a repr.

>>> error = VersionNotFoundError("sales has no version 9", table="sales", version=9, latest=4)
>>> print(error)
sales has no version 9 (latest: 4)
Help: ask for a version from the oldest retained to the latest; history() lists them.
>>> error.latest
4
"""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar

# Importing deltalake costs about 0.1 s and cannot be put off: a base class has to exist.
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)

__all__ = [
    "CommitConflictError",
    "CommitOutcomeUnknownError",
    "ConcurrentAppendError",
    "ConcurrentDeleteDeleteError",
    "ConcurrentDeleteReadError",
    "ConcurrentDomainMetadataError",
    "ConcurrentTransactionError",
    "InvalidActionError",
    "LogParseError",
    "MetadataChangedError",
    "MigrationError",
    "MirrorDivergedError",
    "MissingDriverError",
    "ProtocolChangedError",
    "RetriesExhaustedError",
    "SchemaVersionError",
    "StoreBusyError",
    "StoreClosedError",
    "StoreUnavailableError",
    "TableChangedError",
    "TableExistsError",
    "TransactionClosedError",
    "TxnLogConfigError",
    "TxnLogEngineError",
    "TxnLogError",
    "TxnLogMirrorError",
    "TxnLogProtocolError",
    "TxnLogSchemaError",
    "TxnLogStoreError",
    "TxnLogTableNotFoundError",
    "TxnLogTransactionError",
    "TxnLogUriError",
    "UnsupportedFeatureError",
    "VersionNotFoundError",
    "VersionTakenError",
    "is_secret_name",
    "redact",
]

MASK = "***"

_SECRET_WORD = (
    r"password|passwd|passphrase|\bpwd|secret|token|access[-_.]?key|account[-_.]?key|api[-_.]?key"
    r"|private[-_.]?key|shared[-_.]?key|signature|credential|authorization"
)
_SECRET_NAME = re.compile(rf"(?:{_SECRET_WORD})|^(?:pwd|sig|sas)$|sas[-_]key", re.IGNORECASE)
_NAME = rf"[\w.-]*(?:{_SECRET_WORD}|sas[-_]key)[\w.-]*|\b(?:pwd|sig|sas)\b"
_VALUE = r"""(?P<quote>['"])(?:\\.|(?!(?P=quote))[^\\])*(?P=quote)|[^\s&]+"""
_MASKED_PARTS = (
    # user:password@ in a URL or a bare authority; greedy, since a raw password may hold an "@".
    re.compile(r"""(?<![\w%.~+-])([\w%.~+!$-]*:)(?!//)[^\s'"]+(?=@)"""),
    # password=…, 'aws_secret_access_key': '…', x-amz-security-token: …
    re.compile(rf"""((?:{_NAME})['"]?\s*=\s*)(?:{_VALUE})""", re.IGNORECASE),
    re.compile(rf"""((?:{_NAME})['"]\s*:\s*)(?:{_VALUE})""", re.IGNORECASE),
    re.compile(r"((?:\w+[-_])+(?:token|key|secret|signature):\s*)\S+", re.IGNORECASE),
    re.compile(
        r"(\b(?:password|passwd|pwd|secret|(?:secret|access|account|api) key):\s*)\S+",
        re.IGNORECASE,
    ),
    re.compile(r"(\bauthorization:\s*(?:\w+\s+)?)\S+", re.IGNORECASE),
    re.compile(r"(\bbearer\s+)[\w.~+/=-]{12,}", re.IGNORECASE),
    # Shapes that are secret under any name: AWS key ids, JSON web tokens.
    re.compile(r"()\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"()\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"),
)


def redact(text: str) -> str:
    """Return the text with passwords, keys and tokens masked; masking twice changes nothing.

    >>> redact("deltasql://postgres/ann:s3cret@db:5432/lake and password=hunter2")
    'deltasql://postgres/ann:***@db:5432/lake and password=***'
    """
    masked = text
    for pattern in _MASKED_PARTS:
        masked = pattern.sub(_mask, masked)
    return masked


def is_secret_name(name: str) -> bool:
    """Tell whether a setting of this name holds a secret.

    >>> is_secret_name("AWS_SECRET_ACCESS_KEY"), is_secret_name("AWS_REGION")
    (True, False)
    """
    return _SECRET_NAME.search(name) is not None


@dataclass(eq=False, repr=False)
class TxnLogError(DeltaError):
    """Anything deltasql reports; catch this to catch all of it."""

    default_message: ClassVar[str] = "deltasql could not do what was asked"
    default_help: ClassVar[str] = "read the cause of this error; its fields say what was tried."

    message: str = ""
    _: KW_ONLY
    help: str = ""

    def __post_init__(self) -> None:
        self.message = self.message or self.default_message
        self.help = self.help or self.default_help
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, str):
                setattr(self, each.name, redact(value))
            elif isinstance(value, list | tuple | set | frozenset):
                setattr(self, each.name, tuple(redact(str(item)) for item in value))
        # Pickle and copy build the error from args, then restore its fields.
        self.args = (self.message,)

    @property
    def fields(self) -> dict[str, Any]:
        """The facts of this error by name, those that are known."""
        facts = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {k: v for k, v in facts if v is not None and k not in ("message", "help")}

    def __str__(self) -> str:
        return f"{self.message}{self._details()}\nHelp: {self.help}"

    def __repr__(self) -> str:
        parts = [repr(self.message), *(f"{k}={v!r}" for k, v in self.fields.items())]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _details(self) -> str:
        """The fields that the message does not already tell."""
        shown = []
        for name, value in self.fields.items():
            text = ", ".join(value) if isinstance(value, tuple) else str(value)
            if not re.search(rf"(?<!\w){re.escape(text)}(?!\w)", self.message):
                shown.append(f"{name.replace('_', ' ')}: {text}")
        return f" ({'; '.join(shown)})" if shown else ""


@dataclass(eq=False, repr=False)
class TxnLogUriError(TxnLogError, ValueError):
    """A `deltasql://` URI that cannot be understood."""

    default_message = "this is not a deltasql URI"
    default_help = (
        "write deltasql://sqlite//abs/meta.db?table=t, deltasql://duckdb//abs/meta.duckdb?table=t "
        "or deltasql://postgres/user:pass@host:5432/db/namespace/table."
    )

    part: str | None = None
    uri: str | None = None


@dataclass(eq=False, repr=False)
class TxnLogConfigError(TxnLogError, ValueError):
    """A setting that is missing, unknown or outside what is allowed."""

    default_message = "the configuration is wrong"
    default_help = "correct the key where it was set; docs/reference/config.md lists all keys."

    key: str | None = None
    source: str | None = None
    allowed: str | None = None


@dataclass(eq=False, repr=False)
class TxnLogStoreError(TxnLogError):
    """The database that holds the log failed."""

    default_message = "the metadata database failed"
    default_help = "read the cause of this error; it is the database's own message."

    backend: str | None = None


class StoreUnavailableError(TxnLogStoreError):
    """The database cannot be reached or opened, or the connection was lost."""

    default_message = "the metadata database cannot be reached"
    default_help = "check that it runs, its address, credentials and file permissions; then retry."


class StoreBusyError(TxnLogStoreError):
    """The database stayed locked, or the pool empty, for longer than the timeout."""

    default_message = "the metadata database stayed busy"
    default_help = (
        "retry; if it persists raise store.busy_timeout_ms or pool.max_size, "
        "and look for a transaction that is held open."
    )


class StoreClosedError(TxnLogStoreError):
    """The store or catalog was used after `close()`."""

    default_message = "this store is closed"
    default_help = "open it again with deltasql.connect(uri) and use it inside its `with` block."


@dataclass(eq=False, repr=False)
class SchemaVersionError(TxnLogStoreError):
    """The `dl_*` schema in the database is not one this release can use."""

    default_message = "the schema of the metadata database does not fit this release"
    default_help = "found above supported: upgrade deltasql; found below: migrate the database."

    found: int | None = None
    supported: int | None = None


@dataclass(eq=False, repr=False)
class MigrationError(TxnLogStoreError):
    """A schema migration failed, or was changed after it had been applied."""

    default_message = "a schema migration failed"
    default_help = "nothing of it was kept; correct the cause and migrate again."

    migration: str | None = None


@dataclass(eq=False, repr=False)
class MissingDriverError(TxnLogStoreError, ImportError):
    """An optional package is needed and not installed.

    >>> print(MissingDriverError(driver="psycopg", extra="postgres"))
    psycopg is not installed (extra: postgres)
    Help: pip install 'deltasql[postgres]'
    """

    default_message = "an optional package is not installed"
    default_help = "pip install 'deltasql[all]'"

    driver: str | None = None
    extra: str | None = None

    def __post_init__(self) -> None:
        if self.driver:
            self.message = self.message or f"{self.driver} is not installed"
        if self.extra:
            self.help = self.help or f"pip install 'deltasql[{self.extra}]'"
        super().__post_init__()


@dataclass(eq=False, repr=False)
class TxnLogTransactionError(TxnLogError, CommitFailedError):
    """A transaction did not commit, or it is not known whether it did."""

    default_message = "the transaction failed"
    default_help = "nothing was committed; correct the cause and run the transaction again."

    table: str | None = None
    txn_id: str | None = None


@dataclass(eq=False, repr=False)
class CommitConflictError(TxnLogTransactionError):
    """Another commit won, and ours cannot be placed after it.

    >>> print(ConcurrentAppendError(table="sales", expected_version=3, actual_version=5,
    ...     winning_version=4, winning_txn_id="9f2c", winning_operation="WRITE"))
    a concurrent commit added files that this one should have read
    Table sales: read at version 3, now at version 5; version 4 won (WRITE, transaction 9f2c).
    Help: read the table again and repeat; a narrower predicate or partition avoids the overlap.
    """

    default_message = "a concurrent commit conflicts with this one"
    default_help = "nothing was committed; read the table again and repeat the transaction."

    expected_version: int | None = None
    actual_version: int | None = None
    winning_version: int | None = None
    winning_txn_id: str | None = None
    winning_operation: str | None = None

    def _details(self) -> str:
        facts = f"\nTable {_known(self.table)}: read at version {_known(self.expected_version)}"
        facts += f", now at version {_known(self.actual_version)}; "
        facts += f"version {_known(self.winning_version)} won ({_known(self.winning_operation)}"
        facts += f", transaction {_known(self.winning_txn_id)})"
        for name in ("app_id", "domain"):
            if name in self.fields:
                facts += f"; {name.replace('_', ' ')} {self.fields[name]}"
        return f"{facts}."


class ConcurrentAppendError(CommitConflictError):
    """Files were added that this commit's read should have seen."""

    default_message = "a concurrent commit added files that this one should have read"
    default_help = (
        "read the table again and repeat; a narrower predicate or partition avoids the overlap."
    )


class ConcurrentDeleteReadError(CommitConflictError):
    """A file that this commit read was removed."""

    default_message = "a concurrent commit removed a file that this one read"
    default_help = "read the table again and repeat the operation on what is there now."


class ConcurrentDeleteDeleteError(CommitConflictError):
    """A file that this commit removes was removed already."""

    default_message = "a concurrent commit removed a file that this one removes too"
    default_help = "read the table again and repeat; do not run two rewrites of the same files."


class MetadataChangedError(CommitConflictError):
    """Schema, partitioning or properties changed."""

    default_message = "a concurrent commit changed the table's metadata"
    default_help = "open the table again, adapt the data to its schema, then repeat."


class ProtocolChangedError(CommitConflictError):
    """The protocol or its table features changed."""

    default_message = "a concurrent commit changed the table's protocol"
    default_help = "open the table again and repeat; the new protocol may need a newer writer."


@dataclass(eq=False, repr=False)
class ConcurrentTransactionError(CommitConflictError):
    """Another commit recorded a version for the same application id."""

    default_message = "a concurrent commit recorded the same application id"
    default_help = (
        "two runs share one application id: stop one of them, "
        "then skip this batch if its version is recorded already."
    )

    app_id: str | None = None


@dataclass(eq=False, repr=False)
class ConcurrentDomainMetadataError(CommitConflictError):
    """Another commit changed the same metadata domain."""

    default_message = "a concurrent commit changed the same metadata domain"
    default_help = "read the domain's configuration again and repeat the change."

    domain: str | None = None


class VersionTakenError(CommitConflictError):
    """The version this commit asked for exists already."""

    default_message = "the version to commit is taken"
    default_help = "open the table at its head and repeat; leave the version out to be given one."


class TableChangedError(CommitConflictError):
    """The table was dropped, renamed or replaced since it was read."""

    default_message = "the table was dropped, renamed or replaced meanwhile"
    default_help = "look the table up again by name; an undropped or new table starts afresh."


@dataclass(eq=False, repr=False)
class RetriesExhaustedError(TxnLogTransactionError):
    """Every attempt lost against other writers or a failing database."""

    default_message = "the commit did not succeed in the attempts allowed"
    default_help = "nothing was committed; repeat later, or raise retry.max_attempts."

    attempts: int | None = None


class CommitOutcomeUnknownError(TxnLogTransactionError):
    """The connection was lost during COMMIT and the outcome could not be looked up."""

    default_message = "it is not known whether the commit happened"
    default_help = (
        "do not repeat it blindly: once the database answers, look the transaction id up in "
        "the history; if it is there, the commit happened."
    )


class TransactionClosedError(TxnLogTransactionError):
    """The transaction was used after its commit or rollback."""

    default_message = "this transaction is finished"
    default_help = "begin a new one with deltasql.begin(uri)."


@dataclass(eq=False, repr=False)
class TxnLogMirrorError(TxnLogError):
    """A commit is safe in SQL but could not be published to `_delta_log`."""

    default_message = "the commit could not be published to _delta_log"
    default_help = (
        "the commit is safe in the database; the mirror resumes from there when repaired."
    )

    table: str | None = None
    version: int | None = None
    location: str | None = None


class MirrorDivergedError(TxnLogMirrorError):
    """`_delta_log` holds other bytes for a version than the database does."""

    default_message = "_delta_log holds a commit that the database did not make"
    default_help = (
        "someone wrote to the table by path; nothing was overwritten. "
        "Import the foreign commit or move it away, then publish again."
    )


@dataclass(eq=False, repr=False)
class TxnLogTableNotFoundError(TxnLogError, TableNotFoundError):
    """No live table has this name."""

    default_message = "the table does not exist"
    default_help = "list what there is with catalog.tables(), or create the table first."

    table: str | None = None


@dataclass(eq=False, repr=False)
class TableExistsError(TxnLogError):
    """A live table has this name already."""

    default_message = "the table exists already"
    default_help = "choose another name, open the existing table, or drop it first."

    table: str | None = None


@dataclass(eq=False, repr=False)
class VersionNotFoundError(TxnLogError):
    """The table has no such version, or none at that time."""

    default_message = "the table has no such version"
    default_help = "ask for a version from the oldest retained to the latest; history() lists them."

    table: str | None = None
    version: int | None = None
    latest: int | None = None


@dataclass(eq=False, repr=False)
class TxnLogSchemaError(TxnLogError, SchemaMismatchError):
    """Data and table schema do not fit."""

    default_message = "the data does not fit the table's schema"
    default_help = "adapt the data, or let the table follow with schema_mode='merge'."

    table: str | None = None
    column: str | None = None


@dataclass(eq=False, repr=False)
class TxnLogProtocolError(TxnLogError, DeltaProtocolError):
    """The log, or a commit to it, breaks the Delta protocol."""

    default_message = "this breaks the Delta protocol"
    default_help = "see the fields for what breaks it; PROTOCOL.md of Delta Lake has the rule."

    table: str | None = None


@dataclass(eq=False, repr=False)
class LogParseError(TxnLogProtocolError):
    """A commit file or checkpoint cannot be read."""

    default_message = "the Delta log cannot be parsed"
    default_help = "the file is damaged or no Delta log; restore it from a copy or the database."

    line: int | None = None
    path: str | None = None


@dataclass(eq=False, repr=False)
class UnsupportedFeatureError(TxnLogProtocolError):
    """The table needs features that this release does not know."""

    default_message = "the table needs features that this release does not support"
    default_help = "upgrade deltasql, or remove the features from the table with another engine."

    features: tuple[str, ...] | None = None


class InvalidActionError(TxnLogProtocolError):
    """An action that must not be committed: incomplete, contradictory or unlawful."""

    default_message = "this action must not be committed"
    default_help = "nothing was committed; correct the action and stage it again."


@dataclass(eq=False, repr=False)
class TxnLogEngineError(TxnLogError):
    """The engine that reads and writes the data failed."""

    default_message = "the engine failed"
    default_help = "read the cause of this error; it is the engine's own message."

    engine: str | None = None


def _mask(found: re.Match[str]) -> str:
    quote = found.groupdict().get("quote") or ""
    return f"{found.group(1)}{quote}{MASK}{quote}"


def _known(value: object) -> object:
    return "unknown" if value is None else value
