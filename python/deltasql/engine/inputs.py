"""Recognise a user's data and convert it to Arrow batches; convert Arrow types and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from deltasql.exceptions import UnreadableRowsError


def is_spark_frame(data: object) -> bool:
    """Return whether data is a Spark DataFrame, classic or Connect, without importing pyspark."""
    return type(data).__module__.startswith("pyspark.") and hasattr(data, "sparkSession")


def is_rows(data: object) -> bool:
    """Return whether data contains rows, as opposed to actions of the log."""
    if isinstance(data, list | tuple):
        return bool(data) and is_rows(data[0])
    interfaces = ("__arrow_c_stream__", "__arrow_c_array__", "to_arrow_reader")
    return is_spark_frame(data) or any(hasattr(data, name) for name in interfaces)


def batches(data: object) -> pa.RecordBatchReader:
    """Return a reader of record batches for any object with rows that Arrow can import.

    >>> batches([pa.record_batch({"id": [1]}), pa.record_batch({"id": [2]})]).read_all().num_rows
    2
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, pa.Table):
        return data.to_reader()
    if _is_from(data, "pandas", "DataFrame"):
        return _from_pandas(data).to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return batches(pa.record_batch(data))
    if _is_from(data, "pyarrow", "Dataset") or _is_from(data, "pyarrow", "Scanner"):
        scanner: Any = data.scanner() if hasattr(data, "scanner") else data
        return scanner.to_reader()
    if _is_from(data, "polars", "LazyFrame"):
        lazy: Any = data
        return batches(lazy.collect())
    if hasattr(data, "to_arrow_reader"):
        relation: Any = data
        return relation.to_arrow_reader()
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _from_sequence(data)
    raise _unreadable(type(data).__name__)


def is_stream(data: object) -> bool:
    """Return whether data can be read only once. Data with a length is not a stream.

    >>> is_stream(pa.table({"id": [1]})), is_stream(pa.table({"id": [1]}).to_reader())
    (False, True)
    """
    return not (hasattr(data, "__len__") or hasattr(data, "num_rows"))


def nanosecond_columns(schema: pa.Schema) -> list[str]:
    """Return the columns that are or contain timestamps with nanoseconds.

    >>> nanosecond_columns(pa.schema([("a", pa.date32()), ("b", pa.list_(pa.timestamp("ns")))]))
    ['b']
    """
    return [field.name for field in schema if has_unit(field.type, "ns")]


def has_unit(kind: pa.DataType, unit: str) -> bool:
    """Return whether a type is or contains a timestamp with this unit."""
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == unit)
    return any(has_unit(kind.field(index).type, unit) for index in range(kind.num_fields))


def duckdb_types(schema: pa.Schema) -> pa.Schema:
    """Return a schema of types that DuckDB imports without loss.

    Timestamps with nanoseconds become timestamps without a zone, in UTC, because DuckDB truncates
    timestamps with a zone to microseconds.

    >>> duckdb_types(pa.schema([("at", pa.timestamp("ns", "UTC"))])).field("at").type
    TimestampType(timestamp[ns])
    """
    return pa.schema(
        [field.with_type(map_leaf_types(field.type, _duckdb_type)) for field in schema]
    )


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column, all as strings if Python cannot represent one of them.

    Python has no dates after the year 9999, and Arrow converts nanoseconds only with pandas.
    """
    try:
        return [*column.to_pylist()]
    except (OverflowError, ValueError):
        return [*column.cast(map_leaf_types(column.type, _as_text)).to_pylist()]


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return each row as a dictionary by column name, with values from `python_values`."""
    columns = map(python_values, table.columns)
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def map_leaf_types(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with `change` applied to every type that is not a struct, a list or a map.

    >>> wide = lambda kind: pa.int64() if kind == pa.int32() else kind
    >>> map_leaf_types(pa.list_(pa.int32()), wide)
    ListType(list<item: int64>)
    """

    def changed(field: pa.Field) -> pa.Field:
        return field.with_type(map_leaf_types(field.type, change))

    types = pa.types
    if types.is_struct(kind):
        return pa.struct([changed(member) for member in kind])
    if types.is_map(kind):
        return pa.map_(changed(kind.key_field), changed(kind.item_field))
    if types.is_list(kind):
        return pa.list_(changed(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(changed(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(changed(kind.value_field), kind.list_size)
    return change(kind)


def _duckdb_type(kind: pa.DataType) -> pa.DataType:
    is_nanoseconds = pa.types.is_timestamp(kind) and kind.unit == "ns"
    return pa.timestamp("ns") if is_nanoseconds else kind


def _as_text(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_temporal(kind) else kind


def _from_pandas(frame: Any) -> pa.Table:
    return pa.Table.from_pandas(frame).replace_schema_metadata(None)


def _from_sequence(data: Sequence[object]) -> pa.RecordBatchReader:
    """Read the members in order; do not call `len`, which a user's class may not support."""
    readers = (_from_member(each, data) for each in data)
    first = next(readers, None)
    if first is None:
        raise _unreadable(type(data).__name__)

    def chained() -> Any:
        yield from first
        for reader in readers:
            for batch in reader:
                yield batch if batch.schema.equals(first.schema) else batch.cast(first.schema)

    return pa.RecordBatchReader.from_batches(first.schema, chained())


def _from_member(member: object, data: Sequence[object]) -> pa.RecordBatchReader:
    is_arrow = isinstance(member, pa.RecordBatch | pa.Table)
    if is_arrow or hasattr(member, "__arrow_c_array__") or hasattr(member, "__arrow_c_stream__"):
        return batches(member)
    raise _unreadable(f"{type(data).__name__} of {type(member).__name__}")


def _is_from(data: object, package: str, name: str) -> bool:
    """Return whether data is an instance of a class, without importing its package."""
    return any(
        each.__name__ == name and each.__module__.partition(".")[0] == package
        for each in type(data).__mro__
    )


def _unreadable(what: str) -> UnreadableRowsError:
    return UnreadableRowsError(
        f"Expected object with __arrow_c_array__ or __arrow_c_stream__ method: "
        f"cannot read rows from {what}"
    )
