"""Errors about tables, their data and schema, and logs that violate the protocol."""

from __future__ import annotations

from dataclasses import dataclass

from deltalake.exceptions import DeltaProtocolError, SchemaMismatchError, TableNotFoundError

from deltasql.exceptions.base import TxnLogError
from deltasql.exceptions.prefixes import EXPRESSION_ERROR


@dataclass(eq=False, repr=False)
class TxnLogTableNotFoundError(TxnLogError, TableNotFoundError):
    """No table has this name."""

    default_message = "the table does not exist"
    default_help = "List the tables with `deltasql table list` or catalog.tables()."

    table: str | None = None


@dataclass(eq=False, repr=False)
class CatalogNotFoundError(TxnLogTableNotFoundError):
    """The database of a URI, or its catalog, does not exist, and the call does not create it."""

    default_message = "there is no catalog yet"
    default_help = (
        "Check the URI. The first write creates the catalog, and so do `deltasql init` and "
        "deltasql.connect(uri, create=True)."
    )

    catalog: str | None = None


@dataclass(eq=False, repr=False)
class TableExistsError(TxnLogError):
    """A table with this name exists already."""

    default_message = "the table exists already"
    default_help = "Choose another name, open the existing table, or drop it first."

    table: str | None = None


@dataclass(eq=False, repr=False)
class VersionNotFoundError(TxnLogError):
    """The table has no such version, or had no version at that timestamp."""

    default_message = "the table has no such version"
    default_help = "Use one of the versions that the history lists."

    table: str | None = None
    version: int | None = None
    latest: int | None = None


@dataclass(eq=False, repr=False)
class TxnLogSchemaError(TxnLogError, SchemaMismatchError):
    """The data does not match the schema of the table."""

    default_message = "the data does not fit the table's schema"
    default_help = "Adapt the data, or change the table's schema with schema_mode='merge'."

    table: str | None = None
    column: str | None = None


@dataclass(eq=False, repr=False)
class InvalidDataError(TxnLogError):
    """Rows violate a NOT NULL or CHECK constraint, or the expression of a generated column."""

    default_prefix = EXPRESSION_ERROR
    default_message = "the data violates a rule of the table"
    default_help = "Nothing was committed. Correct these rows or leave them out."

    table: str | None = None


@dataclass(eq=False, repr=False)
class TxnLogProtocolError(TxnLogError, DeltaProtocolError):
    """The log, or a new commit, violates the Delta protocol."""

    default_message = "the log, or a new commit, violates the Delta protocol"
    default_help = "Read the fields of this error; Delta Lake's PROTOCOL.md describes the rules."

    table: str | None = None


@dataclass(eq=False, repr=False)
class LogParseError(TxnLogProtocolError):
    """A commit file or checkpoint cannot be parsed."""

    default_message = "the Delta log cannot be parsed"
    default_help = (
        "The file is damaged, or it is not part of a Delta log. Restore it from a copy. If the "
        "table is in a catalog, `deltasql mirror repair` writes the file again."
    )

    line: int | None = None
    path: str | None = None


@dataclass(eq=False, repr=False)
class VersionGapError(TxnLogProtocolError):
    """Commits are missing from a log, and no checkpoint replaces them."""

    default_message = "the Delta log has a gap"
    default_help = (
        "Restore the commit files from a copy. If the table is in a catalog, `deltasql mirror "
        "repair` writes them again."
    )

    location: str | None = None
    first_missing: int | None = None
    last_missing: int | None = None


@dataclass(eq=False, repr=False)
class MissingDataFilesError(TxnLogProtocolError):
    """Data files that the log refers to do not exist; `files` lists the first of them."""

    default_message = "data files that the log names do not exist"
    default_help = "Restore the files, or pass force=True (--force) to continue without them."

    location: str | None = None
    count: int | None = None
    files: tuple[str, ...] | None = None


@dataclass(eq=False, repr=False)
class ImportMismatchError(TxnLogProtocolError):
    """The imported table in the database differs from its log."""

    default_message = "the imported table differs from its log"
    default_help = (
        "Report this bug, with the field `differences` and the program that wrote the log."
    )

    location: str | None = None
    differences: tuple[str, ...] | None = None


@dataclass(eq=False, repr=False)
class UnsupportedFeatureError(TxnLogProtocolError):
    """The table needs features that this release does not support."""

    default_message = "the table needs features that this release does not support"
    default_help = "Upgrade deltasql, or drop the features with the engine that enabled them."

    features: tuple[str, ...] | None = None


class InvalidActionError(TxnLogProtocolError):
    """An action is not valid or cannot be part of this commit."""

    default_message = "this action cannot be committed"
    default_help = "Nothing was committed. Correct the action and stage it again."
