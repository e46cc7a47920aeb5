"""Read several sources at once, in bounded memory."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Source = TypeVar("Source")
Item = TypeVar("Item")

_HELD = 2  # items of each reader that wait to be taken
_END = object()


def side_by_side(
    read: Callable[[Source], Iterable[Item]], sources: Sequence[Source], *, at_once: int
) -> Iterator[Item]:
    """Yield the items of all sources in their order, while the next sources are being read.

    >>> list(side_by_side(range, [2, 0, 3], at_once=2))
    [0, 1, 0, 1, 2]
    """
    if len(sources) <= 1:
        for source in sources:
            yield from read(source)
        return
    stopped = threading.Event()
    waiting: list[queue.Queue[object]] = []
    rest = iter(sources)

    def start() -> None:
        for source in rest:
            held: queue.Queue[object] = queue.Queue(_HELD)
            waiting.append(held)
            threading.Thread(target=work, args=(source, held), daemon=True).start()
            return

    def work(source: Source, held: queue.Queue[object]) -> None:
        try:
            for item in read(source):
                held.put(item)
                if stopped.is_set():
                    return
            held.put(_END)
        except BaseException as error:  # raised again by whoever takes the items
            held.put(_Failure(error))

    for _ in range(at_once):
        start()
    try:
        while waiting:
            item = waiting[0].get()
            if item is _END:
                waiting.pop(0)
                start()
            elif isinstance(item, _Failure):
                raise item.error
            else:
                yield item  # type: ignore[misc]
    finally:
        stopped.set()
        for held in waiting:  # a reader may wait for room
            while not held.empty():
                held.get_nowait()


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error
