"""A transaction over many tables, for code with an event loop."""

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
    """All or nothing over many tables; commits when the `async with` block ends without an error.

    A task that is cancelled while rows are written leaves nothing behind. One that is cancelled
    while the commit is under way gets its CancelledError after the commit, which holds then as a
    whole or not at all: `versions` tells.
    """

    def __init__(self, transaction: MultiTableTransaction, worker: Worker) -> None:
        self._transaction, self._worker = transaction, worker
        self._turn = asyncio.Lock()  # the steps of one transaction follow each other

    def __repr__(self) -> str:
        return f"Async{self._transaction!r}"

    @property
    def txn_id(self) -> str:
        """The id under which the commit is found again."""
        return self._transaction.txn_id

    @property
    def versions(self) -> dict[str, int]:
        """The committed versions by name; empty before the commit."""
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
            # It may not have come to its turn: then its files are still to be deleted.
            exit_ = partial(self._transaction.__exit__, type(cancelled), cancelled, None)
            await to_the_end(self._locked(Stop(), exit_))
            raise

    async def run(self, function: Callable[[MultiTableTransaction], T]) -> T:
        """Do with the transaction what has no method here, in a thread."""
        return await self._locked(Stop(), function, self._transaction)

    async def write(self, table: str, data: object, **options: Any) -> Any:
        """Write rows as files now and stage them: they become visible with the commit."""
        stop = Stop()

        def write() -> Any:
            written = self._transaction.write(table, stop.watched(data), **options)
            stop.check()
            return written

        return await self._locked(stop, write)

    async def read(self, table: str, **options: Any) -> pa.Table:
        """Return rows as this transaction sees them, its own writes included."""
        return await self._locked(Stop(), self._transaction.read, table, **options)

    async def delete(self, table: str, predicate: str | None = None, **options: Any) -> Any:
        """Stage the removal of the rows for which a predicate is true; returns the metrics."""
        return await self._locked(Stop(), self._transaction.delete, table, predicate, **options)

    async def update(self, table: str, updates: Any = None, **options: Any) -> Any:
        """Stage new values for the rows for which a predicate is true; returns the metrics."""
        return await self._locked(Stop(), self._transaction.update, table, updates, **options)

    async def stage_table(self, table: str, actions: object, **options: Any) -> None:
        """Stage Delta actions, or rows, for a table."""
        await self._locked(Stop(), self._transaction.stage_table, table, actions, **options)

    async def create_table(self, name: str, schema: object, **options: Any) -> None:
        """Stage a new table: it comes into being with the rest of the commit."""
        await self._locked(Stop(), self._transaction.create_table, name, schema, **options)

    async def commit(self) -> dict[str, int]:
        """Ratify everything that was staged and publish it; returns the versions by name."""
        return await self._locked(Stop(), self._transaction.commit)

    async def rollback(self) -> None:
        """Forget everything that was staged."""
        await self._locked(Stop(), self._transaction.rollback)

    async def _locked(
        self, stop: Stop, function: Callable[..., T], /, *args: Any, **kwargs: Any
    ) -> T:
        async with self._turn:
            return await self._worker.run_stoppable(stop, function, *args, **kwargs)
