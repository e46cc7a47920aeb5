"""Check and convert arguments, and raise the same errors as deltalake's Rust code."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltasql.deltalake_internals import RemoveAction
from deltasql.engine.base import EVERY_COLUMN, WriteOptions
from deltasql.exceptions import TxnLogConfigError
from deltasql.exceptions.prefixes import TABLE_ERROR
from deltasql.model.clock import parse_rfc3339
from deltasql.model.schema.schema import StructType

if TYPE_CHECKING:
    from datetime import datetime

    from deltalake import ColumnProperties, WriterProperties

_ADD_FIELDS = ("path", "size", "partition_values", "modification_time", "data_change", "stats")

LARGEST = 2**63 - 1
_LARGEST_UNSIGNED = 2**64 - 1
_SIZES = (
    "data_page_size_limit",
    "dictionary_page_size_limit",
    "data_page_row_count_limit",
    "write_batch_size",
    "max_row_group_size",
    "statistics_truncate_length",
)
_STATISTICS = ("NONE", "CHUNK", "PAGE")
_ENCODINGS = (
    "PLAIN",
    "RLE",
    "BIT_PACKED",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
    "BYTE_STREAM_SPLIT",
)
_DICTIONARIES = ("PLAIN_DICTIONARY", "RLE_DICTIONARY")
_CODEC = re.compile(r"(\w+?)(?:\((\d+)\))?")


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

    A number above the maximum of a signed 64-bit integer is reduced to this maximum.

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


def write_options(
    properties: WriterProperties | None = None, target_file_size: int | None = None
) -> WriteOptions:
    """Return deltalake's WriterProperties as WriteOptions.

    >>> from deltalake import WriterProperties
    >>> options = write_options(WriterProperties(compression="ZSTD", compression_level=3))
    >>> options.compression, options.compression_level
    ('zstd', 3)
    """
    if properties is None:
        return WriteOptions(target_file_size=target_file_size)
    for name in _SIZES:
        _check_number(name, getattr(properties, name))
    codec, level = _codec(properties.compression)
    columns = dict(properties.column_properties or {})
    if properties.default_column_properties is not None:
        columns[EVERY_COLUMN] = properties.default_column_properties
    return WriteOptions(
        target_file_size=target_file_size,
        compression=codec,
        compression_level=level,
        # Replace zero by None, because Arrow accepts zero, which is not a meaningful size.
        max_row_group_size=properties.max_row_group_size or None,
        data_page_size=properties.data_page_size_limit or None,
        data_page_rows=properties.data_page_row_count_limit or None,
        dictionary_page_size=properties.dictionary_page_size_limit or None,
        write_batch_size=properties.write_batch_size or None,
        dictionary_enabled=_choice(columns, "dictionary_enabled", bool),
        statistics_enabled=_choice(columns, "statistics_enabled", _has_statistics),
        statistics_length=properties.statistics_truncate_length,
        encodings={
            name: _encoding(each.encoding) for name, each in columns.items() if each.encoding
        },
        bloom_filters={
            name: (bloom.fpp, bloom.ndv)
            for name, each in columns.items()
            if (bloom := each.bloom_filter_properties) and bloom.set_bloom_filter_enabled
        },
    )


def _check_number(name: str, value: object) -> None:
    """Raise TypeError for an invalid size, because Arrow's writer would accept it and crash."""
    if value is not None and not (isinstance(value, int) and 0 <= value <= LARGEST):
        raise TypeError(f"failed to extract field PyWriterProperties.{name}")


def _codec(text: str | None) -> tuple[str | None, int | None]:
    found = _CODEC.fullmatch(text or "")
    if found is None:
        return None, None
    name = {"uncompressed": "none", "lz4_raw": "lz4"}.get(found[1].lower(), found[1].lower())
    return name, int(found[2]) if found[2] else None


def _choice(
    columns: Mapping[str, ColumnProperties], name: str, meaning: Any
) -> dict[str, bool] | None:
    """Return the value of one property for each column that sets it; None if no column does."""
    given = {column: getattr(each, name) for column, each in columns.items()}
    own = {column: bool(meaning(value)) for column, value in given.items() if value is not None}
    return own or None


def _encoding(name: str) -> str:
    """Return Parquet's name of an encoding; case does not matter."""
    if not isinstance(name, str):
        raise TypeError("failed to extract field PyWriterProperties.column_properties")
    known = name.upper()
    if known in _DICTIONARIES:
        raise TxnLogConfigError(
            "Dictionary encoding can not be used as fallback encoding",
            help="Choose another encoding. Columns use a dictionary unless dictionary_enabled is "
            "False.",
        )
    if known not in _ENCODINGS:
        raise TxnLogConfigError(
            f"Failed to parse parquet: Parquet error: unknown encoding: {name}",
            help=f"Use one of {', '.join(_ENCODINGS)}.",
        )
    return known


def _has_statistics(level: str) -> bool:
    if level not in _STATISTICS:
        raise TxnLogConfigError(
            f"Invalid statistics arg: {level}",
            prefix=TABLE_ERROR,
            help=f"Use one of {', '.join(_STATISTICS)}.",
        )
    return level != "NONE"
