"""Convert deltalake's WriterProperties to WriteOptions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from deltasql.api.arguments import LARGEST
from deltasql.engine.base import EVERY_COLUMN, WriteOptions
from deltasql.exceptions import TxnLogConfigError
from deltasql.exceptions.prefixes import TABLE_ERROR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalake import ColumnProperties, WriterProperties

_NUMBERS = (
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
    for name in _NUMBERS:
        _check_number(name, getattr(properties, name))
    codec, level = _codec(properties.compression)
    columns = dict(properties.column_properties or {})
    if properties.default_column_properties is not None:
        columns[EVERY_COLUMN] = properties.default_column_properties
    return WriteOptions(
        target_file_size=target_file_size,
        compression=codec,
        compression_level=level,
        # Arrow accepts zero, although it is not a meaningful size.
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
