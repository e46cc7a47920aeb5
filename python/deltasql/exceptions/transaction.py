"""Errors of transactions and commits."""

from __future__ import annotations

from dataclasses import dataclass

from deltalake.exceptions import CommitFailedError

from deltasql.exceptions.base import TxnLogError


@dataclass(eq=False, repr=False)
class TxnLogTransactionError(TxnLogError, CommitFailedError):
    """A transaction did not commit, or it is not known whether it did."""

    default_message = "the transaction failed"
    default_help = "Nothing was committed. Correct the cause and run the transaction again."

    table: str | None = None
    txn_id: str | None = None


@dataclass(eq=False, repr=False)
class CommitConflictError(TxnLogTransactionError):
    """A concurrent commit was ratified first, and this commit conflicts with it.

    >>> print(ConcurrentAppendError(table="day", expected_version=3, actual_version=5,
    ...     winning_version=4, winning_txn_id="9", winning_operation="WRITE"))
    a concurrent commit added files that this one should have read
    Table day: read at version 3, now at version 5; conflicts with version 4 (WRITE, transaction 9).
    Help: Read the table again and repeat the transaction. Narrower predicates avoid such conflicts.
    """

    default_message = "a concurrent commit conflicts with this one"
    default_help = "Nothing was committed. Read the table again and repeat the transaction."

    expected_version: int | None = None
    actual_version: int | None = None
    winning_version: int | None = None
    winning_txn_id: str | None = None
    winning_operation: str | None = None

    def _details(self) -> str:
        facts = f"\nTable {_known(self.table)}: read at version {_known(self.expected_version)}"
        facts += f", now at version {_known(self.actual_version)}; "
        facts += f"conflicts with version {_known(self.winning_version)} "
        facts += f"({_known(self.winning_operation)}"
        facts += f", transaction {_known(self.winning_txn_id)})"
        for name in ("app_id", "domain"):
            if name in self.fields:
                facts += f"; {name.replace('_', ' ')} {self.fields[name]}"
        return f"{facts}."


class ConcurrentAppendError(CommitConflictError):
    """A concurrent commit added files that this commit should have read."""

    default_message = "a concurrent commit added files that this one should have read"
    default_help = (
        "Read the table again and repeat the transaction. Narrower predicates avoid such conflicts."
    )


class ConcurrentDeleteReadError(CommitConflictError):
    """A concurrent commit removed a file that this commit read."""

    default_message = "a concurrent commit removed a file that this one read"
    default_help = "Read the table again and repeat the transaction."


class ConcurrentDeleteDeleteError(CommitConflictError):
    """A concurrent commit removed a file that this commit also removes."""

    default_message = "a concurrent commit removed a file that this one removes too"
    default_help = (
        "Read the table again and repeat the transaction. Do not run two operations at the same "
        "time that rewrite the same files."
    )


class MetadataChangedError(CommitConflictError):
    """A concurrent commit changed the schema, the partitioning or the properties."""

    default_message = "a concurrent commit changed the table's metadata"
    default_help = "Open the table again, adapt the data to its schema, and repeat the commit."


class ProtocolChangedError(CommitConflictError):
    """A concurrent commit changed the protocol or its table features."""

    default_message = "a concurrent commit changed the table's protocol"
    default_help = (
        "Open the table again and repeat the transaction. The new protocol may need a newer "
        "release of deltasql."
    )


@dataclass(eq=False, repr=False)
class ConcurrentTransactionError(CommitConflictError):
    """A concurrent commit recorded a version for the same application id."""

    default_message = "a concurrent commit recorded the same application id"
    default_help = (
        "Two programs use the same application id: stop one of them. If the version of this batch "
        "is already recorded, skip the batch."
    )

    app_id: str | None = None


@dataclass(eq=False, repr=False)
class ConcurrentDomainMetadataError(CommitConflictError):
    """A concurrent commit changed the same metadata domain."""

    default_message = "a concurrent commit changed the same metadata domain"
    default_help = "Read the domain's configuration again and repeat the change."

    domain: str | None = None


class VersionTakenError(CommitConflictError):
    """The version that this commit requested exists already."""

    default_message = "the version that this commit requested exists already"
    default_help = "Open the latest version of the table and repeat the transaction."


class TableChangedError(CommitConflictError):
    """The table was dropped, renamed or replaced since it was read."""

    default_message = "the table was dropped, renamed or replaced by another commit"
    default_help = "Open the table again by name, then repeat the transaction."


class FilesTakenError(CommitConflictError):
    """A vacuum may have deleted files of this transaction before its commit."""

    default_message = "a vacuum may have deleted files that this transaction wrote"
    default_help = (
        "Run the transaction again. Give vacuums a retention longer than your longest transaction."
    )


@dataclass(eq=False, repr=False)
class RetriesExhaustedError(TxnLogTransactionError):
    """Every attempt failed because of concurrent commits or database errors."""

    default_message = "the commit failed in every attempt"
    default_help = "Nothing was committed. Repeat it later, or raise retry.max_attempts."

    attempts: int | None = None


class CommitOutcomeUnknownError(TxnLogTransactionError):
    """The connection failed during COMMIT, and the outcome could not be looked up."""

    default_message = "it is not known whether the commit happened"
    default_help = (
        "Do not repeat the transaction yet. When the database is reachable again, look up the "
        "transaction id in the history: if it is there, the commit happened."
    )


class TransactionClosedError(TxnLogTransactionError):
    """The transaction was used after its commit or rollback."""

    default_message = "this transaction is already committed or rolled back"
    default_help = "Begin a new transaction with deltasql.begin(uri)."


class TableFollowsError(TxnLogTransactionError):
    """The table is followed: other writers own its log, so it is read-only in this catalog."""

    default_message = "the table follows a log that other programs write, so it is read-only here"
    default_help = (
        "Write to the table's path and refresh with `deltasql follow`, or let the database manage "
        "the table with `deltasql cutover`."
    )


@dataclass(eq=False, repr=False)
class OtherAuthorityError(TxnLogTransactionError):
    """Another catalog is the authority of the table, so this catalog can only follow the table."""

    default_message = "another catalog is the authority of the log"
    default_help = (
        "Run `deltasql rollback` in the other catalog, then try again. To only read the table in "
        "this catalog, use `deltasql follow`."
    )

    location: str | None = None
    version: int | None = None


class MergeAmbiguityError(TxnLogTransactionError):
    """Several source rows of a merge match the same row of the table."""

    default_message = "several source rows of a merge match one row of the table"
    default_help = "Nothing was committed. Remove duplicate keys from the source."


def _known(value: object) -> object:
    return "unknown" if value is None else value
