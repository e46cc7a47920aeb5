"""Run blocking work in a bounded number of threads, and handle cancelled callers."""

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
    """Makes work in a thread stop at its next batch."""

    def __init__(self) -> None:
        self._requested = threading.Event()

    def request(self) -> None:
        self._requested.set()

    def check(self) -> None:
        """Raise if the caller was cancelled."""
        if self._requested.is_set():
            raise TransactionClosedError(
                "the caller was cancelled", help="Nothing was committed. Run the transaction again."
            )

    def watched(self, data: object) -> object:
        """Return the data as batches; after the caller was cancelled, the next batch raises.

        An Arrow table, and data without an Arrow stream such as a Spark DataFrame, is returned as
        it is.
        """
        if not hasattr(data, "__arrow_c_stream__") or isinstance(data, pa.Table):
            return data
        reader = batches(data)

        def until_stopped() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                self.check()
                yield batch

        return pa.RecordBatchReader.from_batches(reader.schema, until_stopped())


class Worker:
    """A bounded pool of threads for blocking functions.

    If the caller is cancelled, a function that has not started yet is never started. A function
    that is already running is completed, and CancelledError is raised afterwards.
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
        """Call a function in a thread and return its result."""
        return await self.run_stoppable(Stop(), function, *args, **kwargs)

    async def run_stoppable(
        self, stop: Stop, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function in a thread and return its result; the function must check `stop`.

        `stop` is set when the caller is cancelled.
        """
        begun = self._threads.submit(function, *args, **kwargs)
        future = asyncio.wrap_future(begun)
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            stop.request()
            if not begun.cancel():
                await _ended(future)
            raise
        return future.result()

    async def iterate(self, items: Iterator[T]) -> AsyncIterator[T]:
        """Yield the items of an iterator; each `next` runs in a thread."""
        end: Any = object()
        while (item := await self.run(next, items, end)) is not end:
            yield item

    async def close(self) -> None:
        """Wait for running functions and end the threads."""
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end even if the caller is cancelled; then raise CancelledError."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _ended(task)
        raise


async def _ended(future: asyncio.Future[T]) -> None:
    """Wait until a future is done, and ignore further cancellations."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
    if not future.cancelled():
        future.exception()  # marks the exception as retrieved, so that asyncio does not log it
