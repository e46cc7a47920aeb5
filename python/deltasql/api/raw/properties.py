"""deltalake's WriterProperties and CommitProperties in our words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deltasql.engine.base import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from deltalake import ColumnProperties, WriterProperties

_CODEC = re.compile(r"(\w+?)(?:\((\d+)\))?")


def write_options(
    properties: WriterProperties | None = None, target_file_size: int | None = None
) -> WriteOptions:
    """Return how files are written, as deltalake's WriterProperties say it.

    >>> from deltalake import WriterProperties
    >>> options = write_options(WriterProperties(compression="ZSTD", compression_level=3))
    >>> options.compression, options.compression_level
    ('zstd', 3)
    """
    if properties is None:
        return WriteOptions(target_file_size=target_file_size)
    codec, level = _codec(properties.compression)
    default, columns = properties.default_column_properties, properties.column_properties or {}
    return WriteOptions(
        target_file_size=target_file_size,
        compression=codec,
        compression_level=level,
        max_row_group_size=properties.max_row_group_size,
        data_page_size=properties.data_page_size_limit,
        dictionary_page_size=properties.dictionary_page_size_limit,
        write_batch_size=properties.write_batch_size,
        dictionary_enabled=_choice(default, columns, "dictionary_enabled", bool),
        statistics_enabled=_choice(default, columns, "statistics_enabled", _has_statistics),
        encodings={name: each.encoding for name, each in columns.items() if each.encoding},
        bloom_filters={
            name: (bloom.fpp, bloom.ndv)
            for name, each in columns.items()
            if (bloom := each.bloom_filter_properties) and bloom.set_bloom_filter_enabled
        },
    )


def _codec(text: str | None) -> tuple[str | None, int | None]:
    found = _CODEC.fullmatch(text or "")
    if found is None:
        return None, None
    name = {"uncompressed": "none", "lz4_raw": "lz4"}.get(found[1].lower(), found[1].lower())
    return name, int(found[2]) if found[2] else None


def _choice(
    default: ColumnProperties | None,
    columns: Mapping[str, ColumnProperties],
    name: str,
    meaning: Any,
) -> bool | dict[str, bool] | None:
    """Return one choice for all columns, or the choices of those that have one of their own."""
    everywhere = getattr(default, name, None)
    given = {column: getattr(each, name) for column, each in columns.items()}
    own = {column: bool(meaning(value)) for column, value in given.items() if value is not None}
    if own:
        return own
    return None if everywhere is None else bool(meaning(everywhere))


def _has_statistics(level: str) -> bool:
    return level != "NONE"
