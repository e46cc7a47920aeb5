"""Transactions over several requests: what a client stages between `begin` and `commit`.

A request that has the key `transaction` belongs to this transaction: it reads what is staged, and
its changes are staged. Every request that reads or changes a table gets its transaction here.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltasql.api.sql.session import SqlSession
from deltasql.exceptions import InvalidQueryError, TransactionClosedError
from deltasql.model.statements import statement as s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.engine.files.live_files import LiveFiles

    Body = Mapping[str, Any]

_REMEMBERED = 1_000
"""How many results of commits a service remembers; older ones are looked up in the database."""


@dataclass(slots=True)
class _Transaction:
    """An open transaction. Its requests run one after the other."""

    statements: SqlSession
    tx: MultiTableTransaction
    lock: threading.RLock = field(default_factory=threading.RLock)
    replaced: dict[str, LiveFiles] = field(default_factory=dict)
    """The files of tables that a statement replaces, until it has written the new rows."""


class Transactions:
    """The open transactions of a service, by id."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._open: dict[str, _Transaction] = {}
        self._committed: dict[str, pa.Table] = {}

    # Begin and end

    def begin(self, body: Body) -> str:
        """Begin a transaction and return its id."""
        if body.get("transaction") is not None:
            with self._locked(body) as found:
                found.statements.run(s.Begin())  # raises, because the transaction is open
        statements = SqlSession(self._catalog)
        statements.run(s.Begin())
        tx = statements.transaction
        assert tx is not None
        self._open[tx.txn_id] = _Transaction(statements, tx)
        return tx.txn_id

    def commit(self, body: Body) -> pa.Table:
        """Commit a transaction; return the versions of its tables.

        The transaction ends in any case. A second request gets the result of the first.
        """
        txn_id = _id(body, "commit")
        known = self._committed.get(txn_id)
        if known is not None:
            return known
        found = self._open.get(txn_id)
        if found is None:
            return self._committed_before(txn_id)
        with found.lock:
            if self._open.pop(txn_id, None) is None:  # another request ended it
                return self.commit(body)
            try:
                found.statements.check_not_failed("commit")
            except InvalidQueryError as error:
                found.statements.close()
                raise TransactionClosedError(
                    "the transaction was rolled back, because one of its statements failed",
                    txn_id=txn_id,
                    help="Repeat the whole transaction.",
                ) from error
            versions = found.statements.run(s.Commit())
            while len(self._committed) >= _REMEMBERED:
                self._committed.pop(next(iter(self._committed)), None)
            self._committed[txn_id] = versions
        return versions

    def rollback(self, body: Body) -> None:
        """Roll back a transaction; do nothing if it has ended."""
        self.end(_id(body, "rollback"))

    def end(self, txn_id: str) -> None:
        """Roll back a transaction if it is open."""
        found = self._open.pop(txn_id, None)
        if found is not None:
            with found.lock:
                found.statements.close()

    def close(self) -> None:
        """Roll back all open transactions."""
        for txn_id in list(self._open):
            self.end(txn_id)

    def _committed_before(self, txn_id: str) -> pa.Table:
        """Look up a transaction that this service does not have."""
        tables = self._catalog.tables()
        # The locks make this wait until a commit that another process has sent has ended.
        with self._catalog.store.change([each.row.table_id for each in tables]) as (session, _):
            rows = session.query("group_members", txn_id=txn_id)
        if not rows:
            raise _closed(txn_id)
        versions = {row[0]: row[2] for row in rows}
        names = {each.row.table_uuid: each.full_name for each in tables}
        return pa.table(
            {
                "table": pa.array([names.get(each, each) for each in versions], pa.string()),
                "version": pa.array(list(versions.values()), pa.int64()),
            }
        )

    # Requests

    def run(self, statement: s.Statement, body: Body) -> pa.Table:
        """Run a statement in the transaction of a request, or as one commit."""
        if body.get("transaction") is None:
            return SqlSession(self._catalog).run(statement)
        with self._changing(body) as found:
            return found.statements.run(statement)

    @contextmanager
    def reading(self, body: Body) -> Iterator[MultiTableTransaction | None]:
        """Yield the transaction in which a request reads; None if it reads what is committed.

        A request about a table has the id of the transaction in which the client has read the table
        as `read_in`.
        """
        read_in = body.get("read_in", body.get("transaction"))
        if read_in is None:
            yield None
            return
        if body.get("transaction") != read_in:
            raise TransactionClosedError(
                "the table was read in a transaction that has ended",
                txn_id=str(read_in),
                help="Read the table again.",
            )
        with self._locked(body) as found:
            found.statements.check_not_failed("The statement")
            yield found.tx

    @contextmanager
    def joined(self, body: Body) -> Iterator[MultiTableTransaction | None]:
        """Yield the transaction of a request for a change; None if the request has none.

        After an error, the transaction is blocked until its end.
        """
        if body.get("transaction") is None:
            yield None
            return
        with self._changing(body) as found:
            yield found.tx

    @contextmanager
    def changing(self, body: Body) -> Iterator[MultiTableTransaction]:
        """Yield the transaction for a change of one table; without one, the change is a commit."""
        with self.joined(body) as shared:
            if shared is not None:
                yield shared
                return
            with self._catalog.begin(one_table=True) as tx:
                yield tx

    def keep_replaced(self, tx: MultiTableTransaction, table: str, files: LiveFiles) -> None:
        """Keep the old files of a table while CREATE OR REPLACE TABLE AS SELECT replaces it.

        The SELECT may read them.
        """
        self._open[tx.txn_id].replaced[table] = files

    def replaced(self, tx: MultiTableTransaction, table: str) -> LiveFiles | None:
        """Return the files that a table had before the statement that replaces it now."""
        return self._open[tx.txn_id].replaced.get(table)

    def forget_replaced(self, tx: MultiTableTransaction, table: str) -> None:
        """Forget the old files: later requests of the transaction read the new rows."""
        found = self._open.get(tx.txn_id)
        if found is not None:
            found.replaced.pop(table, None)

    def fail(self, tx: MultiTableTransaction) -> None:
        """Block a transaction until its end, because one of its statements failed."""
        found = self._open.get(tx.txn_id)
        if found is not None:
            found.statements.fail()

    @contextmanager
    def _changing(self, body: Body) -> Iterator[_Transaction]:
        with self._locked(body) as found:
            found.statements.check_not_failed("The statement")
            try:
                yield found
            except BaseException:
                found.statements.fail()
                raise

    @contextmanager
    def _locked(self, body: Body) -> Iterator[_Transaction]:
        txn_id = str(body["transaction"])
        found = self._open.get(txn_id)
        if found is None:
            raise _closed(txn_id)
        with found.lock:
            if txn_id not in self._open:
                raise _closed(txn_id)
            yield found


def at_once(
    name: str, handle: Callable[[Any, Body], dict[str, Any]]
) -> Callable[[Any, Body], dict[str, Any]]:
    """Return a handler that refuses a request in a transaction, because it takes effect at once."""

    def refuse(state: Any, body: Body) -> dict[str, Any]:
        if body.get("transaction") is not None:
            raise InvalidQueryError(
                f"{name} cannot be part of a transaction: it takes effect at once",
                help="Run it before the transaction begins, or after its commit or rollback.",
            )
        return handle(state, body)

    return refuse


def _id(body: Body, name: str) -> str:
    if body.get("transaction") is None:
        raise InvalidQueryError(f"{name} without a transaction", help="Start one with begin.")
    return str(body["transaction"])


def _closed(txn_id: str) -> TransactionClosedError:
    return TransactionClosedError(
        "the transaction has ended, and nothing of it was committed: the service was started "
        "again, or its client was disconnected",
        txn_id=txn_id,
        help="Call rollback, then repeat the transaction.",
    )
