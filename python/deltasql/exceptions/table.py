"""Tables that are not there or not as asked, and logs that break the protocol."""

from __future__ import annotations

from dataclasses import dataclass

from deltalake.exceptions import DeltaProtocolError, SchemaMismatchError, TableNotFoundError

from deltasql.exceptions.base import TxnLogError
from deltasql.exceptions.prefixes import EXPRESSION_ERROR


@dataclass(eq=False, repr=False)
class TxnLogTableNotFoundError(TxnLogError, TableNotFoundError):
    """No live table has this name."""

    default_message = "the table does not exist"
    default_help = "`deltasql table list`, or catalog.tables(), shows what there is."

    table: str | None = None


@dataclass(eq=False, repr=False)
class CatalogNotFoundError(TxnLogTableNotFoundError):
    """The database of a URI, or the catalog in it, does not exist, and the call creates none."""

    default_message = "there is no catalog yet"
    default_help = (
        "check the address. The first write creates the catalog, and so do `deltasql init` and "
        "deltasql.connect(uri, create=True)."
    )

    catalog: str | None = None


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
    default_help = "ask for a version from the oldest retained to the latest: the history has them."

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
class InvalidDataError(TxnLogError):
    """Rows break a rule of the table: NOT NULL, a constraint, a generated column."""

    default_prefix = EXPRESSION_ERROR
    default_message = "the data breaks a rule of the table"
    default_help = "correct or leave out these rows; nothing was committed."

    table: str | None = None


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
class VersionGapError(TxnLogProtocolError):
    """Commits are missing from a log, and no checkpoint stands in for them."""

    default_message = "the Delta log has a gap"
    default_help = "restore the commit files from a copy, or publish them from the database."

    location: str | None = None
    first_missing: int | None = None
    last_missing: int | None = None


@dataclass(eq=False, repr=False)
class MissingDataFilesError(TxnLogProtocolError):
    """The log names data files that are not there; `files` are the first of them."""

    default_message = "data files that the log names are not there"
    default_help = "restore the files, or go on without them with force=True (--force)."

    location: str | None = None
    count: int | None = None
    files: tuple[str, ...] | None = None


@dataclass(eq=False, repr=False)
class ImportMismatchError(TxnLogProtocolError):
    """What was loaded into SQL is not what the log says."""

    default_message = "the imported table differs from its log"
    default_help = "the differences are in the report; please tell us how the log was written."

    location: str | None = None
    differences: tuple[str, ...] | None = None


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
