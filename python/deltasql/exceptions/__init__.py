"""The exceptions that deltasql raises.

    TxnLogError                            deltalake DeltaError
    ├── TxnLogUriError                     ValueError
    ├── TxnLogConfigError                  ValueError
    ├── TxnLogStoreError
    │   ├── StoreUnavailableError
    │   ├── StoreBusyError
    │   ├── StoreReadOnlyError
    │   ├── StoreClosedError
    │   ├── SchemaVersionError
    │   ├── MigrationError
    │   ├── MissingDriverError             ImportError
    │   └── UnsupportedReleaseError
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
    │   │   ├── TableChangedError
    │   │   └── FilesTakenError
    │   ├── RetriesExhaustedError
    │   ├── CommitOutcomeUnknownError
    │   ├── MergeAmbiguityError
    │   ├── TableFollowsError
    │   ├── OtherAuthorityError
    │   └── TransactionClosedError
    ├── TxnLogMirrorError
    │   └── MirrorDivergedError
    │       └── LogAheadError
    ├── TxnLogTableNotFoundError           deltalake TableNotFoundError
    │   └── CatalogNotFoundError
    ├── TableExistsError
    ├── VersionNotFoundError
    ├── TxnLogSchemaError                  deltalake SchemaMismatchError
    ├── InvalidDataError
    ├── TxnLogProtocolError                deltalake DeltaProtocolError
    │   ├── LogParseError
    │   ├── VersionGapError
    │   ├── MissingDataFilesError
    │   ├── ImportMismatchError
    │   ├── UnsupportedFeatureError
    │   └── InvalidActionError
    ├── TxnLogEngineError
    │   ├── InvalidQueryError              ValueError
    │   └── UnreadableRowsError            ValueError
    └── TxnLogStorageError                 OSError
        └── RefusedFileError

The right column names a second base class, so that `except` clauses written for `deltalake` still
work. Handle errors by their type, and read the details from their fields. The message is for
people; it ends with one `Help:` line. Secrets are masked in messages, fields and reprs.

>>> error = VersionNotFoundError("sales has no version 9", table="sales", version=9, latest=4)
>>> print(error)
sales has no version 9 (latest: 4)
Help: Use one of the versions that the history lists.
>>> error.latest
4
"""

from deltasql.exceptions.base import (
    InvalidQueryError,
    LogAheadError,
    MirrorDivergedError,
    RefusedFileError,
    TxnLogConfigError,
    TxnLogEngineError,
    TxnLogError,
    TxnLogMirrorError,
    TxnLogStorageError,
    TxnLogUriError,
    UnreadableRowsError,
)
from deltasql.exceptions.redaction import (
    MASK,
    is_secret_name,
    redact,
)
from deltasql.exceptions.store import (
    MigrationError,
    MissingDriverError,
    SchemaVersionError,
    StoreBusyError,
    StoreClosedError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TxnLogStoreError,
    UnsupportedReleaseError,
)
from deltasql.exceptions.table import (
    CatalogNotFoundError,
    ImportMismatchError,
    InvalidActionError,
    InvalidDataError,
    LogParseError,
    MissingDataFilesError,
    TableExistsError,
    TxnLogProtocolError,
    TxnLogSchemaError,
    TxnLogTableNotFoundError,
    UnsupportedFeatureError,
    VersionGapError,
    VersionNotFoundError,
)
from deltasql.exceptions.transaction import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentDomainMetadataError,
    ConcurrentTransactionError,
    FilesTakenError,
    MergeAmbiguityError,
    MetadataChangedError,
    OtherAuthorityError,
    ProtocolChangedError,
    RetriesExhaustedError,
    TableChangedError,
    TableFollowsError,
    TransactionClosedError,
    TxnLogTransactionError,
    VersionTakenError,
)

__all__ = [
    "MASK",
    "CatalogNotFoundError",
    "CommitConflictError",
    "CommitOutcomeUnknownError",
    "ConcurrentAppendError",
    "ConcurrentDeleteDeleteError",
    "ConcurrentDeleteReadError",
    "ConcurrentDomainMetadataError",
    "ConcurrentTransactionError",
    "FilesTakenError",
    "ImportMismatchError",
    "InvalidActionError",
    "InvalidDataError",
    "InvalidQueryError",
    "LogAheadError",
    "LogParseError",
    "MergeAmbiguityError",
    "MetadataChangedError",
    "MigrationError",
    "MirrorDivergedError",
    "MissingDataFilesError",
    "MissingDriverError",
    "OtherAuthorityError",
    "ProtocolChangedError",
    "RefusedFileError",
    "RetriesExhaustedError",
    "SchemaVersionError",
    "StoreBusyError",
    "StoreClosedError",
    "StoreReadOnlyError",
    "StoreUnavailableError",
    "TableChangedError",
    "TableExistsError",
    "TableFollowsError",
    "TransactionClosedError",
    "TxnLogConfigError",
    "TxnLogEngineError",
    "TxnLogError",
    "TxnLogMirrorError",
    "TxnLogProtocolError",
    "TxnLogSchemaError",
    "TxnLogStorageError",
    "TxnLogStoreError",
    "TxnLogTableNotFoundError",
    "TxnLogTransactionError",
    "TxnLogUriError",
    "UnreadableRowsError",
    "UnsupportedFeatureError",
    "UnsupportedReleaseError",
    "VersionGapError",
    "VersionNotFoundError",
    "VersionTakenError",
    "is_secret_name",
    "redact",
]

# Tracebacks and pickles show the public module of a class, not the one that defines it.
for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__
