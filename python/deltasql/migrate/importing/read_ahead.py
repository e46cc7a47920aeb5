"""Produce the next item of an iterator on a thread, while the current one is used."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Item = TypeVar("Item")

_END = object()


def read_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items; a thread produces the next one while the caller uses the current one.

    At most two items are in memory. An error of the iterator is raised to the caller.

    >>> list(read_ahead(range(3)))
    [0, 1, 2]
    """
    items_ready: queue.Queue[object] = queue.Queue(1)
    stopped, taken = threading.Event(), threading.Event()

    def put(item: object) -> bool:
        """Wait until the caller takes the item; return False if the caller has stopped."""
        taken.clear()
        if stopped.is_set():  # checked after `clear`, since stopping also sets `taken`
            return False
        items_ready.put(item)
        taken.wait()
        return not stopped.is_set()

    def work() -> None:
        try:
            for item in items:
                if not put(item):
                    return
            put(_END)
        except BaseException as error:  # raised again in the caller's thread
            put(_Failure(error))

    worker = threading.Thread(target=work, name="deltasql-read-ahead", daemon=True)
    worker.start()
    try:
        while (item := items_ready.get()) is not _END:
            taken.set()
            if isinstance(item, _Failure):
                raise item.error
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        taken.set()
        worker.join()


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error
