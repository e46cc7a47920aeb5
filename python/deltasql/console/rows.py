"""Read the rows of a query up to a size limit, for a page, as CSV or as Parquet."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from deltasql.console.values import is_interval, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH_ROWS = 2048  # DuckDB's smallest batch, because limits are checked after each batch
MAX_BYTES = 64 * 2**20
MAX_CSV_ROWS = 1_000_000
MAX_CSV_BYTES = 2**30
MAX_CHARACTERS = 2001  # the limit of a value on a page, whose tooltip shows at most 2,000
MAX_VALUE_BYTES = 64 * 2**20  # of a value in a file
_IN_MEMORY = 8 * 2**20
_PART = 2**18
_ROWS_OF_PART = 32_768
_BYTES_OF_PART = 16 * 2**20
_FORMULA = r"^[=+\-@\t\r]"
_PLAIN = (
    pa.types.is_boolean,
    pa.types.is_decimal,
    pa.types.is_floating,
    pa.types.is_integer,
    pa.types.is_large_string,
    pa.types.is_null,
    pa.types.is_string,
    pa.types.is_temporal,
)


@dataclass(frozen=True, slots=True)
class LimitedRows:
    """The first rows of a result; `is_truncated` if the size limit left rows out."""

    rows: pa.Table
    is_truncated: bool


def read_limited(result: pa.RecordBatchReader, most: int | None = None) -> LimitedRows:
    """Read a result up to `most` bytes."""
    most = MAX_BYTES if most is None else most
    batches, size = [], 0
    with result:
        for batch in result:
            size += batch.nbytes
            if size > most:
                left = most - (size - batch.nbytes)
                # Assume that all rows of a batch have about the same size.
                batches.append(batch.slice(0, int(batch.num_rows * left / batch.nbytes)))
                return LimitedRows(pa.Table.from_batches(batches, result.schema), True)
            batches.append(batch)
    return LimitedRows(pa.Table.from_batches(batches, result.schema), False)


@dataclass(frozen=True, slots=True)
class Download:
    """Rows in a temporary file, which is on disk if it is large."""

    file: IO[bytes]
    rows: int
    is_truncated: bool

    def parts(self) -> Iterator[bytes]:
        """Yield the content in parts, then close the file."""
        with self.file:
            while part := self.file.read(_PART):
                yield part


def as_csv(result: pa.RecordBatchReader) -> Download:
    """Write a result to CSV up to the limits of rows and bytes.

    The query must request one row more than the row limit, so that a longer result is detected.
    """
    schema = pa.schema(
        [pa.field(_escaped(each.name), _csv_type(each.type)) for each in result.schema]
    )
    return _download(result, schema, _csv_column, pa_csv.CSVWriter)


def as_parquet(result: pa.RecordBatchReader) -> Download:
    """Write a result to Parquet up to the limits of `as_csv`; intervals are written as text."""
    schema = pa.schema([pa.field(each.name, _parquet_type(each.type)) for each in result.schema])
    return _download(result, schema, _parquet_column, pq.ParquetWriter)


def _download(
    result: pa.RecordBatchReader,
    schema: pa.Schema,
    convert: Callable[[pa.Array], pa.Array],
    open_writer: Callable[[Any, pa.Schema], Any],
) -> Download:
    file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - `Download.parts` closes it
    rows, is_truncated = 0, False
    try:
        with result, open_writer(file, schema) as writer:
            for batch in result:
                kept = batch.slice(0, MAX_CSV_ROWS - rows)
                step = _rows_of_part(kept)
                for first in range(0, kept.num_rows, step):
                    part = kept.slice(first, step)
                    columns = [convert(each) for each in part.columns]
                    writer.write_batch(pa.record_batch(columns, schema))
                    rows += part.num_rows
                    if file.tell() > MAX_CSV_BYTES:
                        is_truncated |= first + step < kept.num_rows
                        break
                if kept.num_rows < batch.num_rows or file.tell() > MAX_CSV_BYTES:
                    is_truncated = True
                    break
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return Download(file, rows, is_truncated)


def _rows_of_part(batch: pa.RecordBatch) -> int:
    """Return how many rows of a batch to write before the size of the file is checked."""
    average: int = max(1, batch.nbytes // max(1, batch.num_rows))
    return max(1, min(_ROWS_OF_PART, _BYTES_OF_PART // average))


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether values of a type go to Arrow's CSV writer without conversion to text."""
    if pa.types.is_duration(kind) or pa.types.is_interval(kind):
        return False
    return any(is_such(kind) for is_such in _PLAIN)


def _csv_type(kind: pa.DataType) -> pa.DataType:
    return kind if _is_plain(kind) else pa.string()


def _csv_column(column: pa.Array) -> pa.Array:
    if not _is_plain(column.type):
        column = pa.array([_csv_text(value) for value in column.to_pylist()], pa.string())
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    # A spreadsheet would run a text that starts like a formula.
    is_formula = pc.match_substring_regex(column, _FORMULA)
    return pc.if_else(is_formula, pc.binary_join_element_wise("'", column, ""), column)


def _escaped(name: str) -> str:
    """Return the name of a column for a spreadsheet.

    >>> _escaped("=1+1"), _escaped("a")
    ("'=1+1", 'a')
    """
    return f"'{name}" if re.match(_FORMULA, name) else name


def _parquet_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_interval(kind) else kind


def _parquet_column(column: pa.Array) -> pa.Array:
    if not pa.types.is_interval(column.type):
        return column
    return pa.array([_csv_text(value) for value in column.to_pylist()], pa.string())


def _csv_text(value: object) -> str | None:
    """Return a value of any other type as text: bytes as hex, nested values as JSON."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict | list) or (isinstance(value, tuple) and not is_interval(value)):
        return json.dumps(value, default=plain, ensure_ascii=False)
    return str(plain(value))
