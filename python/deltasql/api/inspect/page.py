"""What every inspection returns: frozen objects that become plain values, a page at a time.

A list goes on after the last item of the page before it, so a page costs the same wherever it is.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
LONGEST_PAGE = 10_000
_LARGEST = 2**63  # what a number of a database can be


class BadRequest(ValueError):
    """Asked for in a way that means nothing: a cursor of something else, a number out of bounds."""


class Shown:
    """An object that is shown: its fields as plain values."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return names and values; objects inside of it are dictionaries, too."""
        shown: dict[str, Any] = _plain(self)
        return shown


@dataclass(frozen=True, slots=True)
class Page(Shown, Generic[T]):
    """Some of a list, and where the rest begins; `next` is None at the end."""

    items: tuple[T, ...]
    next: str | None = None


def page_size(limit: int) -> int:
    """Return a limit that is one."""
    if not 1 <= limit <= LONGEST_PAGE:
        raise BadRequest(f"limit is a number from 1 to {LONGEST_PAGE:,}, got {limit}")
    return limit


def write_cursor(kind: str, *place: object) -> str:
    """Return where a list goes on, as text that can stand in a URL.

    >>> read_cursor("files", write_cursor("files", "a/b", 7), str, int)
    ('a/b', 7)
    """
    text = json.dumps([kind, *place], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(kind: str, cursor: str, *types: type) -> tuple[Any, ...]:
    """Return the place that `write_cursor` wrote down; BadRequest for anything else."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found, *place = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadRequest(f"not a cursor: {cursor!r}") from error
    is_ours = found == kind and [type(each) for each in place] == list(types)
    if not is_ours or not all(map(_can_be_stored, place)):
        raise BadRequest(f"not a cursor of this list: {cursor!r}")
    return tuple(place)


def _can_be_stored(value: int | str) -> bool:
    """Tell whether a database takes a value: one that it does not was never written down by us."""
    if isinstance(value, int):
        return -_LARGEST <= value < _LARGEST
    return "\0" not in value and not any("\ud800" <= each <= "\udfff" for each in value)


def cut(items: list[T], limit: int) -> tuple[tuple[T, ...], bool]:
    """Take a page off a list that was asked for one more, and tell whether there is more."""
    return tuple(items[:limit]), len(items) > limit


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value
