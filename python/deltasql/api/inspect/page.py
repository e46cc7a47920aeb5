"""Pages of the lists that `catalog.inspect` returns, and their cursors.

A cursor contains the sort key of the last item of a page; the next page starts after that key. So
reading a page takes the same time, however many pages come before it.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from deltasql.model.report import Report

T = TypeVar("T")
LONGEST_PAGE = 10_000
ABOVE_ALL = 2**62
"""A number above every version, file id, file size and timestamp. Descending lists start here."""
_LARGEST = 2**63  # the limit of a 64-bit integer in the database


class BadRequest(ValueError):
    """An invalid argument: a cursor of another list, or a number out of range."""


@dataclass(frozen=True, slots=True)
class Page(Report, Generic[T]):
    """A part of a list; `next` is the cursor of the next page, None on the last page."""

    items: tuple[T, ...]
    next: str | None = None


def page_size(limit: int) -> int:
    """Return the limit; raise BadRequest if it is out of range."""
    return at_most(LONGEST_PAGE, "limit", limit)


def at_most(largest: int, key: str, value: int) -> int:
    """Return an argument; raise BadRequest if it is not from 1 to `largest`."""
    if not 1 <= value <= largest:
        raise BadRequest(f"{key} must be a number from 1 to {largest:,}, got {value}")
    return value


def check_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise BadRequest if an argument is not one of the choices."""
    if value not in choices:
        raise BadRequest(f"{key} must be one of {', '.join(choices)}; got {value!r}")


def write_cursor(kind: str, *place: object) -> str:
    """Return the position in a list as a cursor that is safe in a URL.

    >>> read_cursor("files", write_cursor("files", "a/b", 7), str, int)
    ('a/b', 7)
    """
    text = json.dumps([kind, *place], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(kind: str, cursor: str, *types: type) -> tuple[Any, ...]:
    """Return the position in a cursor of `write_cursor`; raise BadRequest for another string."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found, *place = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadRequest(f"not a cursor: {cursor!r}") from error
    is_deltasql = found == kind and [type(each) for each in place] == list(types)
    if not is_deltasql or not all(map(_can_be_stored, place)):
        raise BadRequest(f"not a cursor of this list: {cursor!r}")
    return tuple(place)


def _can_be_stored(value: int | str) -> bool:
    """Return whether a database accepts the value; if not, deltasql did not create the cursor."""
    if isinstance(value, int):
        return -_LARGEST <= value < _LARGEST
    return "\0" not in value and not any("\ud800" <= each <= "\udfff" for each in value)


def cut(items: list[T], limit: int) -> tuple[tuple[T, ...], bool]:
    """Return the first `limit` items, and whether there are more.

    The caller must query `limit + 1` items.
    """
    return tuple(items[:limit]), len(items) > limit
