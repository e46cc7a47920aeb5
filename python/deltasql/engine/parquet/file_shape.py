"""The layout of the data files of a table: columns, types, statistics, and Parquet options."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltasql.engine.base import CHANGE_TYPE, DEFAULT_FILE_SIZE, EVERY_COLUMN, WriteOptions
from deltasql.engine.parquet.arrow_casts import (
    has_required_member,
    has_void,
    plain_layout,
    void_column,
    with_required_members,
)
from deltasql.exceptions import TxnLogEngineError, TxnLogSchemaError
from deltasql.model.features.row_tracking import COLUMN_NAMES, ENABLED, materialized_columns
from deltasql.model.schema.column_mapping import NESTED_IDS
from deltasql.model.schema.convert import schema_to_arrow
from deltasql.model.schema.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    column_mapping_mode,
    indexed_columns,
    without_void,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from deltasql.engine.base import WritePlan

Indexed: TypeAlias = "dict[str, Indexed | None]"
"""Physical names of columns with statistics; a struct maps to its members, a leaf to None."""

_SHAPING = ("delta.columnMapping.mode", "delta.dataSkipping", ENABLED, *COLUMN_NAMES)
_FIELD_ID = "delta.columnMapping.id"
_CHANGE_FIELD = StructField(CHANGE_TYPE, "string")
_PLAIN = WriteOptions()
_ROW_GROUP = 128 * 1024
_SAMPLED_FROM = 20_000
_SAMPLES, _SAMPLE = 5, 2_000
_UNIQUE = 0.95  # share of distinct values above which a column gets no dictionary
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SUFFIXES = {"none": "", "gzip": ".gz", "brotli": ".br"}
_CODECS = ("none", "snappy", "zstd", "gzip", "brotli", "lz4")
_SAME_CODEC = {"uncompressed": "none", "lz4_raw": "lz4"}


@dataclass(frozen=True, slots=True)
class FileShape:
    """The layout of a table's data files."""

    table: pa.Schema
    """All columns except void ones, under logical names; nested fields are nullable."""
    stored: pa.Schema
    """The columns of a file under their physical names."""
    partition_columns: tuple[str, ...]
    partition_keys: tuple[str, ...]
    """The physical names of the partition columns."""
    indexed: Indexed
    required: tuple[pa.Field, ...]
    """Columns that are not nullable, or that have a field that is not nullable."""
    void: tuple[pa.Field, ...] = ()
    """Columns that are void or have a void field."""
    materialized: tuple[str, ...] = ()
    """The partition columns that files also contain, as their last columns."""

    def conform(self, rows: pa.Table) -> pa.Table:
        """Cast rows to the columns and types of the table; raise if they do not fit."""
        schema, given = self.table, rows.schema
        if given.equals(schema, check_metadata=True):
            return self._checked(rows)
        rows = self._with_void(rows)
        names = rows.schema.names
        missing = [name for name in schema.names if name not in names]
        if missing:
            raise TxnLogSchemaError(
                f"the data has no column {missing[0]!r}",
                column=missing[0],
                help="Give the data all columns of the table.",
            )
        columns = [_as_type(rows.column(field.name), field) for field in schema]
        return self._checked(pa.Table.from_arrays(columns, schema=schema))

    def _with_void(self, rows: pa.Table) -> pa.Table:
        """Cast void columns, which engines return as integers, to Arrow's null type."""
        for field in self.void:
            index = rows.schema.get_field_index(field.name)
            if index >= 0:
                column = _voided(rows.column(index), field)
                if _has_required(field):
                    _check_nulls(column, field)
                rows = rows.set_column(index, field.name, column)
        return rows

    def _checked(self, rows: pa.Table) -> pa.Table:
        for field in self.required:
            _check_nulls(rows.column(field.name), field)
        return rows

    def store(self, rows: pa.Table) -> pa.Table:
        """Convert rows to the file's schema, which lacks partition columns that are not stored."""
        columns = [
            column if column.type.equals(field.type) else _viewed(column, field.type)
            for column, field in zip(rows.columns, self.stored, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self.stored)


def file_shape(plan: WritePlan) -> FileShape:
    """Return the layout of the files that a plan writes."""
    configuration = tuple(
        (key, value) for key, value in plan.configuration.items() if key.startswith(_SHAPING)
    )
    schema = plan.schema
    if plan.folder and schema.find(CHANGE_TYPE) is None:
        schema = StructType((*schema.fields, _CHANGE_FIELD))
    materialized = plan.partition_columns if plan.materializes_partitions else ()
    return _shape(schema, plan.partition_columns, configuration, materialized)


@lru_cache(maxsize=256)
def _shape(
    schema: StructType,
    partitions: tuple[str, ...],
    configuration: tuple[tuple[str, str], ...],
    materialized: tuple[str, ...],
) -> FileShape:
    properties = dict(configuration)
    mode = column_mapping_mode(properties)
    kept = without_void(schema, partitions)
    exact = schema_to_arrow(kept)
    fields = {
        field.name: _stored_field(arrow, field, mode)
        for arrow, field in zip(exact, kept.fields, strict=True)
    }
    stored = [field for name, field in fields.items() if name not in partitions]
    stored += [fields[name] for name in materialized]
    keys = [schema.find(name) for name in partitions]
    row_columns = {each.name for each in materialized_columns(properties)}
    return FileShape(
        table=pa.schema([pa.field(f.name, _loose(f.type), f.nullable) for f in exact]),
        stored=pa.schema(stored),
        partition_columns=partitions,
        materialized=materialized,
        partition_keys=tuple(key.physical_name(mode) for key in keys if key is not None),
        indexed=_indexed(_without(schema, row_columns), partitions, properties),
        required=tuple(filter(_has_required, exact)),
        void=tuple(
            pa.field(field.name, _loose(field.type), field.nullable)
            for field in schema_to_arrow(schema)
            if has_void(field.type)
        ),
    )


def _without(schema: StructType, names: Collection[str]) -> StructType:
    return StructType(tuple(field for field in schema.fields if field.name not in names))


def _stored_field(arrow: pa.Field, field: StructField, mode: str | None) -> pa.Field:
    number = field.metadata.get(_FIELD_ID) if mode else None
    ids = field.metadata.get(NESTED_IDS, {}) if mode else {}
    name = field.physical_name(mode)
    kind = _stored_type(arrow.type, field.type, mode, ids, name)
    return pa.field(name, kind, arrow.nullable, _with_id(number))


def _with_id(number: int | None) -> dict[str, str] | None:
    return None if number is None else {"PARQUET:field_id": str(number)}


def _stored_type(
    arrow: pa.DataType, data_type: DataType, mode: str | None, ids: Mapping[str, int], path: str
) -> pa.DataType:
    """Return a type as it is stored in Parquet files.

    `ids` has the field id of each list element, map key and map value by its path.
    """

    def inner(field: pa.Field, kind: DataType, name: str) -> pa.Field:
        here = f"{path}.{name}"
        stored = field.with_type(_stored_type(field.type, kind, mode, ids, here))
        return stored.with_metadata(_with_id(ids.get(here)))

    if isinstance(data_type, StructType):
        members = zip(arrow, data_type.fields, strict=True)
        return pa.struct([_stored_field(kind, member, mode) for kind, member in members])
    if isinstance(data_type, ArrayType):
        return pa.list_(inner(arrow.value_field, data_type.element_type, "element"))
    if isinstance(data_type, MapType):
        return pa.map_(
            inner(arrow.key_field, data_type.key_type, "key"),
            inner(arrow.item_field, data_type.value_type, "value"),
        )
    return arrow


def _loose(kind: pa.DataType) -> pa.DataType:
    """Return a type in which all fields are nullable.

    A cast to a field that is not nullable would fail before `_check_nulls` can name the field.
    """
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(member.name, _loose(member.type)) for member in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _loose(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_loose(kind.key_type), _loose(kind.item_type))
    return kind


def _indexed(
    schema: StructType, partitions: tuple[str, ...], configuration: dict[str, str]
) -> Indexed:
    found: Indexed = {}
    for leaf in indexed_columns(schema, partitions, configuration):
        here = found
        for name in leaf.physical_path[:-1]:
            below = here.setdefault(name, {})
            assert below is not None
            here = below
        if leaf.path != (CHANGE_TYPE,) and leaf.type != "void":
            here[leaf.physical_path[-1]] = None
    return found


def _as_type(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    # If the table has microseconds, truncate nanoseconds.
    options = pc.CastOptions(field.type, allow_time_truncate=True)
    try:
        return pc.cast(plain_layout(column), options=options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TxnLogSchemaError(
            f"the data does not fit the table's types: column {field.name!r}: {error}",
            column=field.name,
            help="Cast the data to the table's schema.",
        ) from error


def _voided(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return void_column(plain_layout(column), field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        what = "is void" if pa.types.is_null(field.type) else "has a void field"
        raise TxnLogSchemaError(
            f"column {field.name!r} {what}, which can only be null, but the data has a value there",
            column=field.name,
            help="Write null there. To give the column a type, overwrite the table with "
            "schema_mode='overwrite'.",
        ) from error


def _viewed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Rename the fields of a column without copying data."""
    if has_required_member(kind):
        column = with_required_members(column, kind)
    return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)


def _has_required(field: pa.Field) -> bool:
    kind = field.type
    return not field.nullable or (pa.types.is_struct(kind) and any(map(_has_required, kind)))


def _check_nulls(column: Any, field: pa.Field, path: str = "", outer: Any = None) -> None:
    """Raise for a null in a field that is not nullable, unless its struct is null too."""
    name = f"{path}{field.name}"
    if not field.nullable and column.null_count:
        wrong = column.is_null() if outer is None else pc.and_(column.is_null(), outer)
        if pc.any(wrong).as_py():
            raise TxnLogSchemaError(
                f"column {name!r} must not be null, but the data has nulls in it",
                column=name,
                help="Fill in the values, or leave these rows out.",
            )
    if pa.types.is_struct(field.type):
        for member, part in zip(field.type, column.flatten(), strict=True):
            if _has_required(member):
                _check_nulls(part, member, f"{name}.", column.is_valid())


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
    # Omit arguments that an old version of Arrow does not support: they do not affect the rows.
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
    names += shape.materialized
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
