"""The base class of reports: results of operations, as plain values for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

from deltasql.exceptions import TxnLogError


class Report:
    """A dataclass with the result of an operation; `to_dict` converts it to plain values.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Copied(Report):
    ...     computed = ("ok",)
    ...     files: tuple[str, ...]
    ...
    ...     @property
    ...     def ok(self) -> bool:
    ...         return bool(self.files)
    >>> Copied(("a", "b")).to_dict()
    {'ok': True, 'files': ['a', 'b']}
    """

    __slots__ = ()
    computed: ClassVar[tuple[str, ...]] = ()
    """The properties that `to_dict` returns before the fields."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        shown = {name: plain(getattr(self, name)) for name in self.computed}
        return {**shown, **_fields(self)}


def plain(value: Any) -> Any:
    """Convert dataclasses, errors and collections to dictionaries and lists."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, TxnLogError):
        named = {"type": type(value).__name__, "message": value.message, "help": value.help}
        return named | plain(value.fields)
    if is_dataclass(value):
        return _fields(value)
    if isinstance(value, list | tuple | Set):
        return [plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    return value


def _fields(value: Any) -> dict[str, Any]:
    return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
