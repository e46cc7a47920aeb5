"""Check arguments, and raise the same errors as deltalake's Rust code."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltalake.transaction import RemoveAction

from deltasql.model.clock import parse_rfc3339
from deltasql.model.schema.schema import StructType

if TYPE_CHECKING:
    from datetime import datetime

_ADD_FIELDS = ("path", "size", "partition_values", "modification_time", "data_change", "stats")

LARGEST = 2**63 - 1
_LARGEST_UNSIGNED = 2**64 - 1


def check_text(value: Any) -> None:
    """Raise TypeError if the value is not a string."""
    if not isinstance(value, str):
        raise _wrong_type(value, "str")


def check_texts(*values: Any) -> None:
    """Raise TypeError if a value is neither a string nor None.

    >>> check_texts(5)
    Traceback (most recent call last):
    TypeError: 'int' object is not an instance of 'str'
    """
    for value in values:
        if value is not None:
            check_text(value)


def check_flags(*values: Any) -> None:
    """Raise TypeError if a value is not a bool, because the string "false" would count as true.

    >>> check_flags("false")
    Traceback (most recent call last):
    TypeError: 'str' object is not an instance of 'bool'
    """
    for value in values:
        kind = type(value)
        is_numpy_bool = kind.__module__ == "numpy" and kind.__name__.startswith("bool")
        if not isinstance(value, bool) and not is_numpy_bool:
            raise _wrong_type(value, "bool")


def check_sequence(value: Any, kind: type) -> None:
    """Raise TypeError if the value is not a sequence of `kind`; a string is not accepted either."""
    if isinstance(value, str):
        raise TypeError("Can't extract `str` to `Vec`")
    if not isinstance(value, Sequence):
        raise _wrong_type(value, "Sequence")
    for each in value:
        if not isinstance(each, kind):
            raise _wrong_type(each, kind.__name__)


def check_names(value: Any) -> None:
    """Raise TypeError if the value is not a string, a sequence of strings or None."""
    if value is None or isinstance(value, str):
        return
    if not isinstance(value, Sequence):
        raise _wrong_type(value, "Sequence")
    check_texts(*value)


def check_mapping(value: Any) -> None:
    """Raise TypeError if the value is not a mapping from strings to strings or None."""
    if not isinstance(value, Mapping):
        raise _wrong_type(value, "dict")
    check_texts(*value.keys(), *value.values())


def check_options(value: Any) -> None:
    """Raise TypeError if the value is not a mapping from strings to strings."""
    check_mapping(value)
    for each in (*value.keys(), *value.values()):
        check_text(each)


def check_schema(value: Any) -> None:
    """Raise ValueError if the value cannot be converted to a schema."""
    readable = isinstance(value, str | StructType) or hasattr(value, "jsonValue")
    if not readable and not hasattr(value, "__arrow_c_schema__"):
        raise ValueError("Expected an object with dunder __arrow_c_schema__")


def check_file_actions(actions: Any, mode: str) -> None:
    """Raise deltalake's error if a write cannot commit these file actions."""
    if not isinstance(actions, Sequence) or isinstance(actions, str | bytes):
        raise TypeError(f"'{type(actions).__name__}' object is not an instance of 'Sequence'")
    removed = []
    for each in actions:
        if isinstance(each, RemoveAction):
            removed.append(each.path)
        elif (missing := _missing_field(each)) is not None:
            kind = type(each).__name__
            raise TypeError(
                "failed to extract enum PyFileAction ('Remove | Add')\n"
                f"- variant Remove (Remove): '{kind}' object is not an instance of 'RemoveAction'\n"
                f"- variant Add (Add): '{kind}' object has no attribute '{missing}'"
            )
    if removed and mode == "overwrite":
        raise ValueError(
            "RemoveAction is not supported with mode='overwrite'; overwrite already removes the "
            "existing files that match the partition filters"
        )
    added = {each.path for each in actions if not isinstance(each, RemoveAction)}
    for path in removed:
        if path in added:
            raise ValueError(f"Cannot add and remove the same file path in one transaction: {path}")


def check_add_actions(actions: Any) -> None:
    """Raise deltalake's error if an action of a new table does not add a file."""
    for each in actions:
        if isinstance(each, RemoveAction):
            raise TypeError("failed to extract field PyAddAction.size")
        if (missing := _missing_field(each)) is not None:
            raise AttributeError(f"'{type(each).__name__}' object has no attribute '{missing}'")


def _missing_field(action: object) -> str | None:
    return next((name for name in _ADD_FIELDS if not hasattr(action, name)), None)


def unsigned(value: Any) -> int:
    """Return a non-negative integer, or raise deltalake's error for another value.

    A number above the range of a signed 64-bit integer is reduced to its maximum.

    >>> unsigned(-1)
    Traceback (most recent call last):
    OverflowError: can't convert negative int to unsigned
    """
    number = operator.index(value)
    if number < 0:
        raise OverflowError("can't convert negative int to unsigned")
    if number > _LARGEST_UNSIGNED:
        raise OverflowError("int too big to convert")
    return min(number, LARGEST)


def check_unsigned(*values: Any) -> None:
    """Raise deltalake's error if a value is neither a non-negative integer nor None."""
    for value in values:
        if value is not None:
            unsigned(value)


def check_file_size(value: Any) -> None:
    """Raise deltalake's error if a target file size is neither a positive integer nor None."""
    if value is not None and unsigned(value) == 0:
        raise ValueError("target_file_size must be greater than 0")


def parse_timestamp(text: str) -> datetime:
    """Parse an RFC 3339 timestamp.

    >>> parse_timestamp("2024-05-01T10:00:00+02:00").isoformat()
    '2024-05-01T10:00:00+02:00'
    """
    try:
        return parse_rfc3339(text)
    except ValueError as error:
        raise ValueError(f"Failed to parse datetime string: {error}") from error


def _wrong_type(value: object, wanted: str) -> TypeError:
    found = "'None'" if value is None else f"{type(value).__name__!r} object"
    return TypeError(f"{found} is not an instance of {wanted!r}")
