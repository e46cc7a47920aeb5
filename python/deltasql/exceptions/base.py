"""The base class of all errors, and the errors that have no module of their own."""

from __future__ import annotations

import re
import warnings
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar

# Importing deltalake takes about 0.1 s. It cannot be deferred, because DeltaError is a base class.
from deltalake.exceptions import DeltaError

from deltasql.exceptions.redaction import redact

_TEXTS = ("message", "help", "prefix")


@dataclass(eq=False, repr=False)
class TxnLogError(DeltaError):
    """The base class of all errors that deltasql raises."""

    default_message: ClassVar[str] = "deltasql could not complete the operation"
    default_help: ClassVar[str] = "Read the cause of this error and its fields."
    default_prefix: ClassVar[str] = ""

    message: str = ""
    _: KW_ONLY
    help: str = ""
    prefix: str = ""
    """The prefix that deltalake puts before the message of the same error.

    Users' tests match on the prefix.
    """

    def __post_init__(self) -> None:
        self.message = self.message or self.default_message
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, str):
                setattr(self, each.name, redact(value))
            elif isinstance(value, list | tuple | set | frozenset):
                setattr(self, each.name, tuple(redact(str(item)) for item in value))
        self.prefix = self.prefix or self.default_prefix
        # Add the default help after the masking, because that of a URI error shows the example
        # `user:pass@host`.
        self.help = self.help or self.default_help
        # Pickle and copy create the error from its args, then restore its fields.
        self.args = (self.message,)
        # Add the command as a note: tracebacks show it below the message, which stays short.
        self.add_note(f"Docs: {self.docs}")

    @property
    def docs(self) -> str:
        """The command that prints the documentation of this class of errors."""
        return f"deltasql docs {type(self).__name__}"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of this error by name, without those that are None."""
        facts = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {k: v for k, v in facts if v is not None and k not in _TEXTS}

    @property
    def full_message(self) -> str:
        """The message, its fields and the help line, without deltalake's prefix."""
        return f"{self.message}{self._details()}\nHelp: {self.help}"

    @property
    def told(self) -> str:
        """Deprecated: use `full_message`. Removed in 0.3."""
        warnings.warn("told is deprecated: use full_message", DeprecationWarning, stacklevel=2)
        return self.full_message

    def __str__(self) -> str:
        return f"{self.prefix}{self.full_message}"

    def __repr__(self) -> str:
        parts = [repr(self.message), *(f"{k}={v!r}" for k, v in self.fields.items())]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _details(self) -> str:
        """Return the fields whose values the message does not contain."""
        shown = []
        for name, value in self.fields.items():
            text = ", ".join(value) if isinstance(value, tuple) else str(value)
            if not re.search(rf"(?<!\w){re.escape(text)}(?!\w)", self.message):
                shown.append(f"{name.replace('_', ' ')}: {text}")
        return f" ({'; '.join(shown)})" if shown else ""


@dataclass(eq=False, repr=False)
class TxnLogUriError(TxnLogError, ValueError):
    """A `deltasql://` URI is not valid."""

    default_message = "this is not a deltasql URI"
    default_help = (
        "Write deltasql://sqlite//abs/meta.db?table=t, deltasql://duckdb//abs/meta.duckdb?table=t "
        "or deltasql://postgres/user:pass@host:5432/db?table=t."
    )

    part: str | None = None
    uri: str | None = None


@dataclass(eq=False, repr=False)
class TxnLogConfigError(TxnLogError, ValueError):
    """A setting is missing, unknown or has a value that is not allowed."""

    default_message = "the configuration is not valid"
    default_help = "Correct the setting where it was set; `deltasql docs config` lists all keys."

    key: str | None = None
    source: str | None = None
    allowed: str | None = None


@dataclass(eq=False, repr=False)
class TxnLogMirrorError(TxnLogError):
    """A ratified commit could not be published to `_delta_log`."""

    default_message = "the commit could not be published to _delta_log"
    default_help = (
        "The commit is safe in the database. Correct the cause of this error: the commit is then "
        "published."
    )

    table: str | None = None
    version: int | None = None
    location: str | None = None


class MirrorDivergedError(TxnLogMirrorError):
    """A commit file in `_delta_log` differs from the same commit in the database."""

    default_message = "_delta_log has a commit that is not in the database"
    default_help = (
        "Another program wrote to the table's path; nothing was overwritten. Import its commits "
        "with `deltasql mirror adopt`, or move them to _delta_log/_aside with `deltasql mirror "
        "reject`. Publishing then resumes."
    )


class LogAheadError(MirrorDivergedError):
    """`_delta_log` has commits of this catalog that its database has lost."""

    default_message = "the log is ahead of the database"
    default_help = (
        "The database was restored from a backup, or lost its last commits in a power loss. "
        "Load the commits from the log with `deltasql mirror adopt` (`deltasql rebuild` for all "
        "tables), or move them to _delta_log/_aside with `deltasql mirror reject`."
    )


@dataclass(eq=False, repr=False)
class TxnLogEngineError(TxnLogError):
    """The engine failed while it read or wrote data."""

    default_message = "the engine failed"
    default_help = "Read the cause of this error: it is the engine's own message."

    engine: str | None = None
    table: str | None = None


class InvalidQueryError(TxnLogEngineError, ValueError):
    """The SQL is not a single query that only reads tables of the catalog."""

    default_message = "this query is not allowed"
    default_help = "Write one SELECT over the catalog's own tables, in DuckDB's SQL."


class UnreadableRowsError(TxnLogEngineError, ValueError):
    """The data to write has a type that deltasql cannot read rows from."""

    default_message = "cannot read rows from this object"
    default_help = (
        "Give Arrow, pandas or polars data, or an object with the Arrow C stream interface; "
        "convert a list of dicts with pyarrow.Table.from_pylist."
    )


@dataclass(eq=False, repr=False)
class TxnLogStorageError(TxnLogError, OSError):
    """Files at a location could not be read, written, listed or deleted."""

    default_message = "the files at a location cannot be reached"
    default_help = (
        "Check that the location exists, its permissions, storage.options and the network. "
        "Read the cause of this error."
    )

    location: str | None = None
    name: str | None = None
    operation: str | None = None


class RefusedFileError(TxnLogStorageError):
    """A file is outside the folder of its table, is not a regular file, or is far too large."""

    default_message = "a file was rejected"
    default_help = "Correct or move the file that the message names, then try again."
