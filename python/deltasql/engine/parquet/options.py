"""Parquet writer options: from the caller, otherwise from table properties, otherwise defaults."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltasql.engine.base import DEFAULT_FILE_SIZE, EVERY_COLUMN, WriteOptions
from deltasql.exceptions import TxnLogEngineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deltasql.engine.base import WritePlan
    from deltasql.engine.parquet.file_shape import FileShape

_ROW_GROUP = 128 * 1024
_SAMPLED_FROM = 20_000
_SAMPLES, _SAMPLE = 5, 2_000
_UNIQUE = 0.95  # share of distinct values above which a column gets no dictionary
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SUFFIXES = {"none": "", "gzip": ".gz", "brotli": ".br"}
_CODECS = ("none", "snappy", "zstd", "gzip", "brotli", "lz4")
_SAME_CODEC = {"uncompressed": "none", "lz4_raw": "lz4"}


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    """Resolved options of a Parquet writer."""

    target_file_size: int
    max_row_group_size: int
    suffix: str
    """The end of a file name, such as `.snappy.parquet`."""
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, plan: WritePlan, shape: FileShape) -> ParquetOptions:
        """Resolve the options of a plan."""
        options, properties = plan.options, plan.configuration
        codec = _codec(options.compression or properties.get("delta.parquet.compression.codec"))
        size = options.target_file_size or parse_size(properties.get("delta.targetFileSize"))
        arguments = {"compression": codec, "compression_level": options.compression_level}
        if options != _PLAIN:
            arguments.update(_arguments(options, shape))
        return cls(
            target_file_size=max(1, size or DEFAULT_FILE_SIZE),
            max_row_group_size=max(1, options.max_row_group_size or _ROW_GROUP),
            suffix=f"{_SUFFIXES.get(codec, f'.{codec}')}.parquet",
            arguments={key: value for key, value in arguments.items() if value is not None},
        )

    def arguments_for(self, rows: pa.Table, shape: FileShape) -> Mapping[str, Any]:
        """Return the arguments of `pq.ParquetWriter` for a file whose first rows are these."""
        if "use_dictionary" in self.arguments or rows.num_rows < _SAMPLED_FROM:
            return self.arguments
        # Do not build dictionaries for mostly distinct values: Arrow would discard them later.
        unique = {
            field.name for field in rows.schema if _is_mostly_distinct(rows.column(field.name))
        }
        kept = [path for _, path in _leaves(shape) if path not in unique]
        return {**self.arguments, "use_dictionary": kept or False}


def parse_size(text: str | None) -> int | None:
    """Parse a size property such as `128mb` to bytes; None if it is missing or invalid.

    >>> parse_size("128mb"), parse_size("1000"), parse_size(None)
    (134217728, 1000, None)
    """
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", text.strip().lower()) if text else None
    return None if found is None else int(found[1]) * _UNITS[found[2]]


def _codec(name: str | None) -> str:
    codec = (name or "snappy").strip().lower()
    codec = _SAME_CODEC.get(codec, codec)
    if codec not in _CODECS or (codec != "none" and not pa.Codec.is_available(codec)):
        raise TxnLogEngineError(
            f"files cannot be compressed with {codec!r}",
            help="Use snappy, zstd, gzip, brotli, lz4 or uncompressed.",
        )
    return codec


def _is_mostly_distinct(column: pa.ChunkedArray) -> bool:
    if pa.types.is_nested(column.type) or pa.types.is_boolean(column.type):
        return False
    step = len(column) // _SAMPLES
    taken = [chunk for n in range(_SAMPLES) for chunk in column.slice(n * step, _SAMPLE).chunks]
    sample = pa.chunked_array(taken, column.type)
    return bool(pc.count_distinct(sample).as_py() > _UNIQUE * len(sample))


def _arguments(options: WriteOptions, shape: FileShape) -> dict[str, Any]:
    leaves = list(_leaves(shape))
    dictionary = _chosen(options.dictionary_enabled, leaves)
    arguments: dict[str, Any] = {
        "data_page_size": options.data_page_size,
        "max_rows_per_page": options.data_page_rows,
        "dictionary_pagesize_limit": options.dictionary_page_size,
        "write_batch_size": options.write_batch_size,
        "use_dictionary": dictionary,
        "write_statistics": _chosen(options.statistics_enabled, leaves),
    }
    if options.encodings:
        general = options.encodings.get(EVERY_COLUMN)
        encoded = {path: options.encodings.get(name, general) for name, path in leaves}
        arguments["column_encoding"] = {p: e for p, e in encoded.items() if e is not None}
        # A column with an explicit encoding cannot have a dictionary.
        wanted = dictionary if isinstance(dictionary, list) else [path for _, path in leaves]
        kept = [path for path in wanted if encoded[path] is None]
        arguments["use_dictionary"] = kept if dictionary is not False and kept else False
        _check_encodings(shape, arguments["column_encoding"])
    if options.bloom_filters:
        every = options.bloom_filters.get(EVERY_COLUMN)
        blooms = {path: options.bloom_filters.get(name, every) for name, path in leaves}
        arguments["bloom_filter_options"] = {p: _bloom(*b) for p, b in blooms.items() if b}
    # Omit arguments that an old version of Arrow does not know: they do not affect the rows.
    known = inspect.signature(pq.ParquetWriter.__init__).parameters.keys() | {"data_page_size"}
    return {key: value for key, value in arguments.items() if key in known}


def _check_encodings(shape: FileShape, encodings: Mapping[str, str]) -> None:
    """Before any file is created, raise for an encoding that a column's type does not support."""
    schema = pa.schema([field.with_nullable(True) for field in shape.stored])
    try:
        with pq.ParquetWriter(
            pa.BufferOutputStream(), schema, use_dictionary=False, column_encoding=dict(encodings)
        ) as writer:
            writer.write_table(schema.empty_table())
    except (OSError, pa.ArrowException) as error:
        raise TxnLogEngineError(
            f"files cannot be written with these encodings: {error}",
            help="Choose an encoding that Parquet supports for the column's type, or none.",
        ) from error


def _bloom(fpp: float | None, ndv: int | None) -> dict[str, Any]:
    return {"fpp": 0.05 if fpp is None else fpp, "ndv": 1_000_000 if ndv is None else ndv}


def _chosen(
    wanted: bool | Mapping[str, bool] | None, leaves: list[tuple[str, str]]
) -> bool | list[str] | None:
    if wanted is None or isinstance(wanted, bool):
        return wanted
    every = wanted.get(EVERY_COLUMN, True)
    chosen = [path for name, path in leaves if wanted.get(name, every)]
    return chosen if chosen else False


def _leaves(shape: FileShape) -> Iterator[tuple[str, str]]:
    """Yield the leaf columns of a file as (logical name, path in Parquet)."""
    names = [name for name in shape.table.names if name not in shape.partition_columns]
    for name, field in zip(names, shape.stored, strict=True):
        logical = shape.table.field(name).type
        yield from _paths(logical, field.type, name, field.name)


def _paths(
    logical: pa.DataType, stored: pa.DataType, name: str, path: str
) -> Iterator[tuple[str, str]]:
    if pa.types.is_struct(stored):
        for here, there in zip(logical, stored, strict=True):
            yield from _paths(here.type, there.type, f"{name}.{here.name}", f"{path}.{there.name}")
    elif pa.types.is_map(stored):
        below = f"{path}.key_value"
        yield from _paths(logical.key_type, stored.key_type, f"{name}.key", f"{below}.key")
        yield from _paths(logical.item_type, stored.item_type, f"{name}.value", f"{below}.value")
    elif pa.types.is_list(stored):
        below = f"{path}.list.element"
        yield from _paths(logical.value_type, stored.value_type, f"{name}.element", below)
    else:
        yield name, path


_PLAIN = WriteOptions()
