"""The classes of delta-spark's `delta.exceptions`, with the same names.

Code for delta-spark only has to change the import. Errors of `deltasql.spark` are instances of both
our own classes and the classes that delta-spark raises, so that existing `except` clauses catch
them.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkException,
    UnsupportedOperationException,
)
from pyspark.errors.exceptions import base
from sqlglot.errors import SqlglotError

from deltasql.exceptions import (
    CommitConflictError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    InvalidQueryError,
    MergeAmbiguityError,
    MetadataChangedError,
    ProtocolChangedError,
    TableExistsError,
    TxnLogConfigError,
    TxnLogEngineError,
    TxnLogError,
    TxnLogProtocolError,
    TxnLogSchemaError,
    TxnLogTableNotFoundError,
    VersionNotFoundError,
    VersionTakenError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "DeltaConcurrentModificationException",
    "MetadataChangedException",
    "ProtocolChangedException",
]


class DeltaConcurrentModificationException(PySparkException):
    """Another commit was ratified first, and this commit conflicts with it."""


class ConcurrentAppendException(DeltaConcurrentModificationException):
    """Another commit added files that this commit would have read."""


class ConcurrentDeleteReadException(DeltaConcurrentModificationException):
    """Another commit removed a file that this commit read."""


class ConcurrentDeleteDeleteException(DeltaConcurrentModificationException):
    """Another commit removed a file that this commit also removes."""


class ConcurrentTransactionException(DeltaConcurrentModificationException):
    """Another commit recorded a version for the same application id."""


class ConcurrentWriteException(DeltaConcurrentModificationException):
    """Another commit already has this version."""


class MetadataChangedException(DeltaConcurrentModificationException):
    """Another commit changed the schema, the partitioning or the properties."""


class ProtocolChangedException(DeltaConcurrentModificationException):
    """Another commit changed the protocol or its table features."""


_KINDS: tuple[tuple[type[TxnLogError], type[PySparkException]], ...] = (
    (MergeAmbiguityError, UnsupportedOperationException),
    (TxnLogSchemaError, AnalysisException),
    (TxnLogTableNotFoundError, AnalysisException),
    (TableExistsError, AnalysisException),
    (VersionNotFoundError, AnalysisException),
    (TxnLogProtocolError, AnalysisException),
    (InvalidQueryError, AnalysisException),
    (TxnLogConfigError, IllegalArgumentException),
    (ConcurrentAppendError, ConcurrentAppendException),
    (ConcurrentDeleteReadError, ConcurrentDeleteReadException),
    (ConcurrentDeleteDeleteError, ConcurrentDeleteDeleteException),
    (ConcurrentTransactionError, ConcurrentTransactionException),
    (MetadataChangedError, MetadataChangedException),
    (ProtocolChangedError, ProtocolChangedException),
    (VersionTakenError, ConcurrentWriteException),
    (CommitConflictError, DeltaConcurrentModificationException),
)
_CONDITIONS: tuple[tuple[type[TxnLogError], str], ...] = (
    (MergeAmbiguityError, "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"),
    (TxnLogTableNotFoundError, "DELTA_MISSING_DELTA_TABLE"),
    (TableExistsError, "TABLE_OR_VIEW_ALREADY_EXISTS"),
    (ConcurrentAppendError, "DELTA_CONCURRENT_APPEND"),
    (ConcurrentDeleteReadError, "DELTA_CONCURRENT_DELETE_READ"),
    (ConcurrentDeleteDeleteError, "DELTA_CONCURRENT_DELETE_DELETE"),
    (ConcurrentTransactionError, "DELTA_CONCURRENT_TRANSACTION"),
    (MetadataChangedError, "DELTA_METADATA_CHANGED"),
    (ProtocolChangedError, "DELTA_PROTOCOL_CHANGED"),
    (VersionTakenError, "DELTA_CONCURRENT_WRITE"),
)


@contextmanager
def as_spark_exceptions() -> Iterator[None]:
    """Convert our errors to instances of both our class and the class that delta-spark raises."""
    try:
        yield
    except TxnLogError as error:
        kind = _kind(error)
        if kind is None or isinstance(error, PySparkException):
            raise
        raise _as_kind(error, kind, _condition(error)) from error.__cause__


def analysis_error(message: str, condition: str, help: str) -> TxnLogError:
    """Return an error like those that Spark raises while it analyzes a command."""
    error = TxnLogSchemaError(f"[{condition}] {message}", help=help)
    return _as_kind(error, AnalysisException, condition)


def argument_error(message: str, condition: str, help: str) -> TxnLogError:
    """Return an error for an invalid argument."""
    error = TxnLogConfigError(f"[{condition}] {message}", help=help)
    return _as_kind(error, IllegalArgumentException, condition)


def _as_kind(
    error: TxnLogError, kind: type[PySparkException], condition: str | None = None
) -> TxnLogError:
    """Return an error with the same fields that is also an instance of a Spark class."""
    state = {**error.__dict__, "prefix": "", "_errorClass": condition}
    return _rebuilt(type(error), kind, state)


def _kind(error: TxnLogError) -> type[PySparkException] | None:
    cause = error.__cause__
    if isinstance(error, TxnLogEngineError) and isinstance(cause, PySparkException):
        # Errors from py4j have their own subclass of each Spark class, so return the base class.
        for each in type(cause).__mro__:
            if each.__module__ == base.__name__:
                return each
    if isinstance(cause, SqlglotError):
        return ParseException
    return next((kind for ours, kind in _KINDS if isinstance(error, ours)), None)


def _condition(error: TxnLogError) -> str | None:
    """Return the error condition that Spark or delta-spark has for an error."""
    if isinstance(error.__cause__, PySparkException):
        return error.__cause__.getCondition()
    return next((name for ours, name in _CONDITIONS if isinstance(error, ours)), None)


@lru_cache
def _class(ours: Any, kind: Any) -> Any:
    def reduce(self: TxnLogError) -> Any:
        return _rebuilt, (ours, kind, self.__dict__)

    def message(self: TxnLogError) -> str:
        return str(self)

    return type(
        ours.__name__,
        (ours, kind),
        {
            "__module__": ours.__module__,
            "__reduce__": reduce,
            "getMessage": message,
            "getSqlState": lambda self: None,
            "desc": property(message),
        },
    )


def _rebuilt(
    ours: type[TxnLogError], kind: type[PySparkException], state: dict[str, Any]
) -> TxnLogError:
    known: Any = _class  # mypy does not accept exception classes as hashable
    made = known(ours, kind)
    error: Any = made.__new__(made, state["message"])
    error.__dict__.update(
        {"_message": state["message"], "_messageParameters": {}, "_contexts": [], **state}
    )
    error.args = (state["message"],)
    found: TxnLogError = error
    return found
