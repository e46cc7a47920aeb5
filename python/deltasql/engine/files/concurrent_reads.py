"""Read several sources concurrently, in bounded memory."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Source = TypeVar("Source")
Item = TypeVar("Item")

_QUEUE_SIZE = 2  # items that a reader may be ahead
_END = object()


def read_concurrently(
    read: Callable[[Source], Iterable[Item]], sources: Sequence[Source], *, threads: int
) -> Iterator[Item]:
    """Yield the items of all sources in order, while up to `threads` sources are being read.

    >>> list(read_concurrently(range, [2, 0, 3], threads=2))
    [0, 1, 0, 1, 2]
    """
    if len(sources) <= 1:
        for source in sources:
            yield from read(source)
        return
    stopped = threading.Event()
    queues: list[queue.Queue[object]] = []
    remaining = iter(sources)

    def start_next() -> None:
        for source in remaining:
            items: queue.Queue[object] = queue.Queue(_QUEUE_SIZE)
            queues.append(items)
            threading.Thread(target=work, args=(source, items), daemon=True).start()
            return

    def work(source: Source, items: queue.Queue[object]) -> None:
        try:
            for item in read(source):
                items.put(item)
                if stopped.is_set():
                    return
            items.put(_END)
        except BaseException as error:  # the consumer raises it
            items.put(_Failure(error))

    for _ in range(threads):
        start_next()
    try:
        while queues:
            item = queues[0].get()
            if item is _END:
                queues.pop(0)
                start_next()
            elif isinstance(item, _Failure):
                raise item.error
            else:
                yield item  # type: ignore[misc]
    finally:
        stopped.set()
        for items in queues:  # a thread may be blocked on a full queue
            while not items.empty():
                items.get_nowait()


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error
