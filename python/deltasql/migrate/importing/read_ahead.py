"""Work that is done ahead, on a thread of its own, one item at most."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Item = TypeVar("Item")

_END = object()


def read_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items, the next of which is being made while the last is in use.

    >>> list(read_ahead(range(3)))
    [0, 1, 2]
    """
    waiting: queue.Queue[object] = queue.Queue(1)
    stopped, taken = threading.Event(), threading.Event()

    def hand_over(item: object) -> bool:
        """Two items are held at a time: the next is begun when this one is taken."""
        taken.clear()
        if stopped.is_set():  # looked at after the clearing, so that no stop goes unseen
            return False
        waiting.put(item)
        taken.wait()
        return not stopped.is_set()

    def work() -> None:
        try:
            for item in items:
                if not hand_over(item):
                    return
            hand_over(_END)
        except BaseException as error:  # raised again by whoever takes the items
            hand_over(_Failure(error))

    worker = threading.Thread(target=work, name="deltasql-read-ahead", daemon=True)
    worker.start()
    try:
        while (item := waiting.get()) is not _END:
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
