"""AsyncTransaction: a transaction over many tables, for asyncio."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from deltasql.api.aio.work import Stop, to_the_end

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import pyarrow as pa

    from deltasql.api.aio.work import Worker
    from deltasql.api.transaction.transaction import MultiTableTransaction

T = TypeVar("T")


class AsyncTransaction:
    """A transaction over any number of tables: it commits all changes or none.

    The commit runs when the `async with` block ends without an error.

    If the task is cancelled while it writes rows, nothing is committed and the written files are
    deleted. If it is cancelled during the commit, CancelledError is raised after the commit has
    succeeded or failed as a whole: `versions` has the committed versions, or is empty.
    """

    def __init__(self, transaction: MultiTableTransaction, worker: Worker) -> None:
        self._transaction, self._worker = transaction, worker
        self._turn = asyncio.Lock()  # one operation of a transaction at a time

    def __repr__(self) -> str:
        return f"Async{self._transaction!r}"

    @property
    def txn_id(self) -> str:
        """The id of the transaction, which its commits record."""
        return self._transaction.txn_id

    @property
    def versions(self) -> dict[str, int]:
        """The committed versions by table name; empty before the commit."""
        return self._transaction.versions

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._locked(Stop(), self._transaction.__exit__, kind, error, traceback)
        except asyncio.CancelledError as cancelled:
            # If __exit__ did not run before the cancellation, it must still delete the files.
            exit_ = partial(self._transaction.__exit__, type(cancelled), cancelled, None)
            await to_the_end(self._locked(Stop(), exit_))
            raise

    async def run(self, function: Callable[[MultiTableTransaction], T]) -> T:
        """Call a function with the synchronous transaction in a thread; return its result."""
        return await self._locked(Stop(), function, self._transaction)

    async def write(self, table: str, data: object, **options: Any) -> Any:
        """Write rows to data files now, and stage the files; the commit makes the rows visible."""
        stop = Stop()

        def write() -> Any:
            written = self._transaction.write(table, stop.watched(data), **options)
            stop.check()
            return written

        return await self._locked(stop, write)

    async def read(self, table: str, **options: Any) -> pa.Table:
        """Return rows as this transaction sees them, its own changes included."""
        return await self._locked(Stop(), self._transaction.read, table, **options)

    async def delete(self, table: str, predicate: str | None = None, **options: Any) -> Any:
        """Delete the rows that match a predicate, or all rows; returns metrics."""
        return await self._locked(Stop(), self._transaction.delete, table, predicate, **options)

    async def update(self, table: str, updates: Any = None, **options: Any) -> Any:
        """Set columns of the rows that match a predicate, or of all rows; returns metrics."""
        return await self._locked(Stop(), self._transaction.update, table, updates, **options)

    async def stage_table(self, table: str, actions: object, **options: Any) -> None:
        """Stage Delta actions for a table. `actions` can also be rows, which are appended."""
        await self._locked(Stop(), self._transaction.stage_table, table, actions, **options)

    async def create_table(self, name: str, schema: object, **options: Any) -> None:
        """Stage a new table: the commit creates it."""
        await self._locked(Stop(), self._transaction.create_table, name, schema, **options)

    async def commit(self) -> dict[str, int]:
        """Ratify all staged changes and publish them; returns the new versions by table name."""
        return await self._locked(Stop(), self._transaction.commit)

    async def rollback(self) -> None:
        """Discard all staged changes, and delete the data files that were written for them."""
        await self._locked(Stop(), self._transaction.rollback)

    async def _locked(
        self, stop: Stop, function: Callable[..., T], /, *args: Any, **kwargs: Any
    ) -> T:
        async with self._turn:
            return await self._worker.run_stoppable(stop, function, *args, **kwargs)
