"""Blocking work in a few threads, and what becomes of it when its caller is cancelled."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pyarrow as pa

from deltasql.engine.inputs import batches
from deltasql.exceptions import TransactionClosedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

T = TypeVar("T")
P = ParamSpec("P")


class Stop:
    """Asks work in a thread to end at the next batch."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        self._asked.set()

    def check(self) -> None:
        """Raise if the caller was cancelled."""
        if self._asked.is_set():
            raise TransactionClosedError(
                "the caller was cancelled", help="Nothing was committed; run it again."
            )

    def watched(self, data: object) -> object:
        """Return rows that end when the caller is cancelled; a frame of Spark as it is."""
        if not hasattr(data, "__arrow_c_stream__") or isinstance(data, pa.Table):
            return data
        reader = batches(data)

        def until_asked() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                self.check()
                yield batch

        return pa.RecordBatchReader.from_batches(reader.schema, until_asked())


class Worker:
    """A bounded number of threads.

    A caller that is cancelled gets its CancelledError when the work has come to an end: nothing
    goes on behind its back. Work that has not begun never begins.
    """

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="deltasql-aio")

    async def run(
        self,
        function: Callable[P, T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Return what a function returns."""
        return await self.run_stoppable(Stop(), function, *args, **kwargs)

    async def run_stoppable(
        self, stop: Stop, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return what a function returns; it looks at `stop` now and then."""
        begun = self._threads.submit(function, *args, **kwargs)
        future = asyncio.wrap_future(begun)
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            stop.ask()
            if not begun.cancel():
                await _ended(future)
            raise
        return future.result()

    async def iterate(self, items: Iterator[T]) -> AsyncIterator[T]:
        """Yield what an iterator yields, each item made in a thread."""
        end: Any = object()
        while (item := await self.run(next, items, end)) is not end:
            yield item

    async def close(self) -> None:
        """Wait for what is under way and end the threads."""
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Do what must not be left half-done; a caller that is cancelled is told so after it."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _ended(task)
        raise


async def _ended(future: asyncio.Future[T]) -> None:
    """Wait for the end, also when cancelled once more."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
    if not future.cancelled():
        future.exception()  # it is looked at: the caller is told of the cancellation instead
