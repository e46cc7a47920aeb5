"""Write Arrow data as Parquet files with Delta statistics, in bounded memory."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltasql.engine.statistics import statistics_json
from deltasql.exceptions import TxnLogEngineError, TxnLogSchemaError
from deltasql.model.actions import AddFile
from deltasql.model.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deltasql.storage import Storage

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Where and how to write."""

    storage: Storage
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    intend: Callable[[list[str]], None]
    """Told the names of files before they are written, so that an orphan is known."""


def batches(data: object) -> pa.RecordBatchReader:
    """Read anything that speaks Arrow's C interface, record by record."""
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    raise TxnLogEngineError(
        f"cannot read rows from {type(data).__name__}",
        help="Give Arrow, pandas, polars or anything that offers the Arrow C stream interface.",
    )


def write_parquet(reader: pa.RecordBatchReader, plan: WritePlan) -> list[AddFile]:
    """Write one file per partition and batch; a file without a commit is invisible."""
    files = []
    for batch in reader:
        table = _conform(pa.Table.from_batches([batch]), plan.schema)
        parts = [
            (_file_name(values), values, part)
            for values, part in _partitions(table, plan.partition_columns)
            if part.num_rows
        ]
        plan.intend([name for name, _, _ in parts])
        files += [_write_one(name, values, part, plan.storage) for name, values, part in parts]
    return files


def _file_name(values: dict[str, str | None]) -> str:
    folder = "".join(f"{_escape_name(name)}={_escape(value)}/" for name, value in values.items())
    return f"{folder}part-00000-{uuid.uuid4()}-c000.snappy.parquet"


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    chosen = table.select(schema.names)
    for field in schema:
        if not field.nullable and chosen[field.name].null_count:
            raise TxnLogSchemaError(
                f"column {field.name!r} must not be null, and the data has nulls in it",
                column=field.name,
                help="Fill or leave out these rows.",
            )
    try:
        return chosen.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TxnLogSchemaError(
            f"the data does not fit the table's types: {error}",
            help="Cast the data to the table's schema.",
        ) from error


def _partitions(
    table: pa.Table, columns: Sequence[str]
) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Split a table by its partition values; every row comes out once, NaN and null included."""
    if not columns:
        yield {}, table
        return
    # Rows are grouped by the codes of their values: comparing values would lose NaN.
    encoded = [
        _without_empty(table[name].combine_chunks()).dictionary_encode(null_encoding="encode")
        for name in columns
    ]
    codes = pa.array([0] * table.num_rows, pa.int64())
    for each in encoded:
        size = pa.scalar(max(1, len(each.dictionary)), pa.int64())
        codes = pc.add(pc.multiply(codes, size), each.indices.cast(pa.int64()))
    order = pc.sort_indices(codes)
    runs = pc.run_end_encode(codes.take(order), run_end_type=pa.int64())
    data = [name for name in table.column_names if name not in columns]
    rows = table.take(order)
    start = 0
    for end in runs.run_ends.to_pylist():
        first = order[start].as_py()
        values = {n: _partition_text(table[n][first].as_py()) for n in columns}
        yield values, rows.slice(start, end - start).select(data)
        start = end


def _without_empty(values: pa.Array) -> pa.Array:
    """An empty text is null as a partition value, so both belong to one partition."""
    kind = values.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind)):
        return values
    is_empty = pc.equal(pc.binary_length(values), 0)
    return pc.if_else(is_empty, pa.scalar(None, kind), values)


def _write_one(
    name: str, values: dict[str, str | None], table: pa.Table, storage: Storage
) -> AddFile:
    with storage.writer(name) as sink:
        pq.write_table(table, sink, compression="snappy")
        size = sink.tell()
    return AddFile(
        path=quote(name, safe="/=-_.~!$&'()*+,;@"),
        partition_values=values,
        size=size,
        modification_time=now_ms(),
        stats=statistics_json(table),
    )


def _partition_text(value: Any) -> str | None:
    match value:
        case None | "":
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            zone = "Z" if value.tzinfo else ""
            return (
                value.replace(tzinfo=None).isoformat(
                    sep="T" if zone else " ", timespec="microseconds"
                )
                + zone
            )
        case Decimal():
            return format(value, "f")
        case bytes():
            return _binary_text(value)
        case _:
            return str(value)


def _binary_text(value: bytes) -> str | None:
    """Delta has only text for partition values: readers take its bytes as UTF-8."""
    try:
        return value.decode() or None
    except UnicodeDecodeError as error:
        raise TxnLogSchemaError(
            f"{value!r} cannot be a partition value: it is not UTF-8",
            help="Partition by a column of text, such as the bytes in hexadecimal.",
        ) from error


def _escape_name(name: str) -> str:
    # Some readers look for a column's own name in the path, letters of any language included.
    return "".join(letter if letter.isalnum() else quote(letter, safe="-_.~") for letter in name)


def _escape(value: str | None) -> str:
    # A space too: some readers of object stores cannot open a name that has one.
    return _NULL_PARTITION if value is None else quote(value, safe="-_.~")
