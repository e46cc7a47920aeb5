"""Report: the base class of results that can be converted to plain values."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar


class Report:
    """Base class of dataclasses that describe a result; `to_dict` converts them to plain values.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, slots=True)
    ... class Copied(Report):
    ...     files: tuple[str, ...]
    >>> Copied(("a", "b")).to_dict()
    {'files': ['a', 'b']}
    """

    __slots__ = ()

    KEYS: ClassVar[tuple[str, ...]] = ()
    """Fields and properties that `to_dict` returns, in this order; by default all fields."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary of plain values, for JSON."""
        return {key: _plain(getattr(self, key)) for key in self.KEYS or _names(self)}


def _names(value: Any) -> list[str]:
    return [each.name for each in fields(value)]


def _plain(value: Any) -> Any:
    if isinstance(value, Report):
        return value.to_dict()
    if is_dataclass(value):
        return {name: _plain(getattr(value, name)) for name in _names(value)}
    if isinstance(value, list | tuple | Set):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return value
