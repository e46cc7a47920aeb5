"""Statistics and partition values of files: as typed columns, and as pyarrow expressions."""

from __future__ import annotations

from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.model.schema.schema import StructType, column_mapping_mode, indexed_columns
from deltasql.model.typed_stats import StatsParser, nested_struct, primitive_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.engine.files.live_files import LiveFiles
    from deltasql.model.actions import Metadata

_BATCH_ROWS = 16_384
_IN_LOG = {"null_count": "nullCount", "min": "minValues", "max": "maxValues"}
# Statistics have millisecond precision: the true maximum may be up to 1 ms later.
_ROUNDED = timedelta(milliseconds=1)


def add_actions(metadata: Metadata, listed: pa.Table, live: LiveFiles) -> pa.Table:
    """Return listed files with the columns, types and order of deltalake's `get_add_actions`."""
    columns = {
        "path": listed["path"],
        "size_bytes": listed["size"],
        "modification_time": listed["modification_time"],
        "num_records": listed["num_records"],
    }
    required = {"path", "size_bytes", "modification_time"}
    for name, values in _statistics(metadata, listed).items():
        columns[name] = values
    partitions = live.listed_values()
    if partitions:
        columns["partition"] = pa.StructArray.from_arrays(
            [values for _, values in partitions], names=[field.name for field, _ in partitions]
        )
    fields = [pa.field(name, each.type, name not in required) for name, each in columns.items()]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


def guarantees(
    metadata: Metadata, listed: pa.Table, live: LiveFiles, schema: Any
) -> list[pc.Expression | None]:
    """Return for each file an expression that is true for all its rows, or None.

    The expressions contain only columns of `schema`, with its types.
    """
    wanted: pa.Schema = pa.schema(schema)
    found: list[list[pc.Expression]] = [[] for _ in range(listed.num_rows)]
    for field, values in live.listed_values():
        if field.name in wanted.names:
            _add_partition(found, field.name, values.cast(_plain(wanted.field(field.name).type)))
    _add_statistics(found, metadata, listed, wanted)
    return [reduce(lambda a, b: a & b, each) if each else None for each in found]


def _statistics(metadata: Metadata, listed: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Return `null_count`, `min` and `max` of files, as structs with physical column names."""
    schema = StructType.from_json(metadata.schema_string)
    leaves = indexed_columns(schema, metadata.partition_columns, metadata.configuration)
    counts = {leaf.physical_path: pa.int64() for leaf in leaves}
    bounds = {
        leaf.physical_path: kind
        for leaf in leaves
        if leaf.type != "binary" and (kind := primitive_type(leaf.type)) is not None
    }
    types = {"null_count": counts, "min": bounds, "max": bounds}
    wanted = {name: nested_struct(each) for name, each in types.items() if each}
    if not wanted:
        return {}
    parser = StatsParser(pa.struct([(_IN_LOG[name], each) for name, each in wanted.items()]))
    parsed = [parser.parse(texts) for texts in _texts(listed["stats"])]
    found = pa.chunked_array(parsed, parser.type)
    return {name: pc.struct_field(found, _IN_LOG[name]) for name in wanted}


def _texts(stats: pa.ChunkedArray) -> Iterator[pa.Array]:
    """Yield the statistics in batches, because they need much more memory when they are parsed."""
    for first in range(0, len(stats), _BATCH_ROWS):
        texts = stats.slice(first, _BATCH_ROWS).combine_chunks()
        # A file without statistics has an empty string here.
        yield pc.if_else(pc.equal(texts, ""), None, texts)


def _add_partition(found: list[list[pc.Expression]], name: str, values: pa.Array) -> None:
    column = pc.field(name)
    known: dict[Any, pc.Expression] = {}
    for each, value in zip(found, values, strict=True):
        if value not in known:
            known[value] = column == value if value.is_valid else column.is_null()
        each.append(known[value])


def _add_statistics(
    found: list[list[pc.Expression]], metadata: Metadata, listed: pa.Table, wanted: pa.Schema
) -> None:
    parts = _statistics(metadata, listed)
    schema = StructType.from_json(metadata.schema_string)
    mode = column_mapping_mode(metadata.configuration)
    names = {
        field.name: field.physical_name(mode)
        for field in schema.fields
        if field.name in wanted.names and not isinstance(field.type, StructType)
    }
    nulls = {name: _member(parts.get("null_count"), names[name]) for name in names}
    for name, counts in nulls.items():
        if counts is not None:
            _add_nulls(found, pc.field(name), counts, listed["num_records"])
    for part in ("min", "max"):
        for name, counts in nulls.items():
            kind = _plain(wanted.field(name).type)
            bounds = _member(parts.get(part), names[name]) if _has_exact_bounds(kind) else None
            if bounds is not None:
                typed = bounds.cast(kind)
                _add_bounds(found, pc.field(name), typed, counts, is_maximum=part == "max")


def _add_nulls(
    found: list[list[pc.Expression]],
    column: pc.Expression,
    nulls: pa.Array,
    records: pa.ChunkedArray,
) -> None:
    none, only = column.is_valid(), column.is_null()
    counts = zip(found, nulls.to_pylist(), records.to_pylist(), strict=True)
    for each, count, total in counts:
        if count == 0:
            each.append(none)
        elif count is not None and count == total:
            each.append(only)


def _add_bounds(
    found: list[list[pc.Expression]],
    column: pc.Expression,
    bounds: pa.Array,
    nulls: pa.Array | None,
    *,
    is_maximum: bool,
) -> None:
    if is_maximum and pa.types.is_timestamp(bounds.type):
        bounds = _raised(bounds)
    counts = [None] * len(found) if nulls is None else nulls.to_pylist()
    for each, bound, count in zip(found, bounds, counts, strict=True):
        if bound.is_valid:
            holds = column <= bound if is_maximum else column >= bound
            # Bounds ignore nulls, so the expression must be true for rows with null, too.
            each.append(holds if count == 0 else holds | column.is_null())


def _raised(bounds: pa.Array) -> pa.Array:
    """Raise the upper bounds by the precision that the log lost; null if a bound overflows."""
    more = pc.add(bounds, pa.scalar(_ROUNDED, pa.duration(bounds.type.unit)))
    return pc.if_else(pc.less(more, bounds), pa.scalar(None, bounds.type), more)


def _member(part: pa.Array | None, name: str) -> pa.Array | None:
    if part is None or part.type.get_field_index(name) < 0:
        return None
    return pc.struct_field(part, name)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _has_exact_bounds(kind: pa.DataType) -> bool:
    """Return whether bounds of a type are exact; floats (NaN) and decimals (rounding) are not."""
    tests = ("integer", "date", "timestamp", "boolean", "string", "large_string")
    return any(getattr(pa.types, f"is_{test}")(kind) for test in tests)
