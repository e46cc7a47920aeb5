"""Read the next item of an iterator in a thread, while the current one is used."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Item = TypeVar("Item")


def read_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items, while a thread reads the next item from the iterator.

    At most two items are in memory. An error of the iterator is raised in the caller's thread.

    >>> list(read_ahead(range(3)))
    [0, 1, 2]
    """
    source, end = iter(items), object()
    with ThreadPoolExecutor(1, "deltasql-read-ahead") as reader:
        upcoming = reader.submit(next, source, end)
        while (item := upcoming.result()) is not end:
            upcoming = reader.submit(next, source, end)
            yield item  # type: ignore[misc]
