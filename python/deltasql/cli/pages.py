"""Read paginated lists up to a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from deltasql.cli.context import talk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql.api.inspect.page import Page

T = TypeVar("T")
_PAGE = 1000


def first_of(read: Callable[..., Page[T]], limit: int, **options: Any) -> Iterator[T]:
    """Yield the first items of a paginated list; print a message if there are more."""
    left, cursor = limit, None
    while left > 0:
        page = read(limit=min(left, _PAGE), cursor=cursor, **options)
        yield from page.items
        left -= len(page.items)
        cursor = page.next
        if cursor is None:
            return
    talk(f"the first {limit:,}; --limit shows more")
