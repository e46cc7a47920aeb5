"""Report: the base class of results that can be converted to plain values."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from deltasql.exceptions import TxnLogError


class Report:
    """Base class of frozen dataclasses that describe a result; `to_dict` returns plain values.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, slots=True)
    ... class Copied(Report):
    ...     files: tuple[str, ...]
    >>> Copied(("a", "b")).to_dict()
    {'files': ['a', 'b']}
    """

    __slots__ = ()

    # Fields and properties that `to_dict` returns, in this order; by default all fields.
    KEYS: ClassVar[tuple[str, ...]] = ()
    # Deprecated names, and the names that replace them. `to_dict` returns both.
    OLD_NAMES: ClassVar[Mapping[str, str]] = {}

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary of plain values, for JSON."""
        values = {key: _plain(getattr(self, key)) for key in self.KEYS or _names(self)}
        if "seconds" in values:
            values["seconds"] = round(values["seconds"], 3)
        return values | {old: values[new] for old, new in self._old_keys().items()}

    def _old_keys(self) -> Mapping[str, str]:
        """Return the deprecated names that `to_dict` returns."""
        return self.OLD_NAMES

    if not TYPE_CHECKING:  # mypy would accept every name

        def __getattr__(self, name: str) -> Any:
            """Return the value of a deprecated name."""
            new = type(self).OLD_NAMES.get(name)
            if new is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            message = f"{type(self).__name__}.{name} is deprecated; use {new} instead"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return getattr(self, new)


def _names(value: Any) -> list[str]:
    return [each.name for each in fields(value)]


def _plain(value: Any) -> Any:
    """Return a value as JSON can represent it; other objects become strings."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Report):
        return value.to_dict()
    if isinstance(value, TxnLogError):
        texts = {"type": type(value).__name__, "message": value.message, "help": value.help}
        return texts | _plain(value.fields)
    if is_dataclass(value):
        return {name: _plain(getattr(value, name)) for name in _names(value)}
    if isinstance(value, list | tuple | Set):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return value.isoformat() if isinstance(value, datetime) else str(value)
