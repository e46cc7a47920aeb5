"""Errors of transactions and commits."""

from __future__ import annotations

from dataclasses import dataclass

from deltalake.exceptions import CommitFailedError

from deltasql.exceptions.base import TxnLogError


@dataclass(eq=False, repr=False)
class TxnLogTransactionError(TxnLogError, CommitFailedError):
    """A transaction did not commit, or it is not known whether it did."""

    default_message = "the transaction failed"
    default_help = "nothing was committed; correct the cause and run the transaction again."

    table: str | None = None
    txn_id: str | None = None


@dataclass(eq=False, repr=False)
class CommitConflictError(TxnLogTransactionError):
    """A concurrent commit was ratified first, and this commit conflicts with it.

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
    """A concurrent commit added files that this commit should have read."""

    default_message = "a concurrent commit added files that this one should have read"
    default_help = (
        "read the table again and repeat; a narrower predicate or partition avoids the overlap."
    )


class ConcurrentDeleteReadError(CommitConflictError):
    """A concurrent commit removed a file that this commit read."""

    default_message = "a concurrent commit removed a file that this one read"
    default_help = "read the table again and repeat the operation on what is there now."


class ConcurrentDeleteDeleteError(CommitConflictError):
    """A concurrent commit removed a file that this commit also removes."""

    default_message = "a concurrent commit removed a file that this one removes too"
    default_help = "read the table again and repeat; do not run two rewrites of the same files."


class MetadataChangedError(CommitConflictError):
    """A concurrent commit changed the schema, the partitioning or the properties."""

    default_message = "a concurrent commit changed the table's metadata"
    default_help = "open the table again, adapt the data to its schema, then repeat."


class ProtocolChangedError(CommitConflictError):
    """A concurrent commit changed the protocol or its table features."""

    default_message = "a concurrent commit changed the table's protocol"
    default_help = "open the table again and repeat; the new protocol may need a newer writer."


@dataclass(eq=False, repr=False)
class ConcurrentTransactionError(CommitConflictError):
    """A concurrent commit recorded a version for the same application id."""

    default_message = "a concurrent commit recorded the same application id"
    default_help = (
        "two runs share one application id: stop one of them, "
        "then skip this batch if its version is recorded already."
    )

    app_id: str | None = None


@dataclass(eq=False, repr=False)
class ConcurrentDomainMetadataError(CommitConflictError):
    """A concurrent commit changed the same metadata domain."""

    default_message = "a concurrent commit changed the same metadata domain"
    default_help = "read the domain's configuration again and repeat the change."

    domain: str | None = None


class VersionTakenError(CommitConflictError):
    """The version that this commit requested exists already."""

    default_message = "the version to commit exists already"
    default_help = "open the latest version of the table and repeat."


class TableChangedError(CommitConflictError):
    """The table was dropped, renamed or replaced since it was read."""

    default_message = "the table was dropped, renamed or replaced by another commit"
    default_help = "open the table again by name, then repeat the transaction."


class FilesTakenError(CommitConflictError):
    """A vacuum may have deleted files of this transaction before its commit."""

    default_message = "a vacuum may have deleted files that this transaction wrote"
    default_help = (
        "run the transaction again; give vacuums a retention longer than your longest transaction."
    )


@dataclass(eq=False, repr=False)
class RetriesExhaustedError(TxnLogTransactionError):
    """Every attempt failed because of concurrent commits or database errors."""

    default_message = "the commit did not succeed in the attempts allowed"
    default_help = "nothing was committed; repeat later, or raise retry.max_attempts."

    attempts: int | None = None


class CommitOutcomeUnknownError(TxnLogTransactionError):
    """The connection failed during COMMIT, and the outcome could not be looked up."""

    default_message = "it is not known whether the commit happened"
    default_help = (
        "do not simply repeat it. Once the database answers, look up the transaction id in the "
        "history: if it is there, the commit happened."
    )


class TransactionClosedError(TxnLogTransactionError):
    """The transaction was used after its commit or rollback."""

    default_message = "this transaction is finished"
    default_help = "begin a new one with deltasql.begin(uri)."


class TableFollowsError(TxnLogTransactionError):
    """The table is followed: other writers own its log, so it is read-only in this catalog."""

    default_message = "the table follows a log that others write, so it is read-only"
    default_help = (
        "write to the table's path and refresh with `deltasql follow`, "
        "or make SQL its authority with `deltasql cutover`."
    )


@dataclass(eq=False, repr=False)
class OtherAuthorityError(TxnLogTransactionError):
    """Another catalog is the authority of the table, so this catalog can only follow the table."""

    default_message = "another catalog is the authority of the log"
    default_help = (
        "roll the table back there with `deltasql rollback`, then try again; or read it here with "
        "`deltasql follow`."
    )

    location: str | None = None
    version: int | None = None


class MergeAmbiguityError(TxnLogTransactionError):
    """Several source rows of a merge match the same row of the table."""

    default_message = "several source rows of a merge match one row of the table"
    default_help = "nothing was committed; give the source one row per key."


def _known(value: object) -> object:
    return "unknown" if value is None else value
