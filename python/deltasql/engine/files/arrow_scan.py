"""Read files with Arrow if they are in an object store, or have nanoseconds or variants.

DuckDB does not read these files itself. For object stores, it needs an extension, which would have
to be downloaded and configured with the credentials that our storage already has. It also truncates
nanoseconds, and it does not distinguish a missing variant from a variant with the value null.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltasql.engine.base import FILE, ROW
from deltasql.engine.inputs import duckdb_types
from deltasql.engine.parquet.arrow_casts import as_void, list_offsets
from deltasql.engine.parquet.file_errors import convert_read_errors
from deltasql.engine.parquet.footers import named_as_in_file
from deltasql.engine.parquet.variants import unshredded
from deltasql.exceptions import TxnLogEngineError, TxnLogError
from deltasql.model.schema.convert import schema_to_arrow
from deltasql.model.schema.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    has_nanoseconds,
)
from deltasql.storage import storage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from deltasql.config import StorageSettings
    from deltasql.engine.files.live_files import LiveFile, LiveFiles

_BATCH_ROWS = 65_536
_FILES_AT_ONCE = 4
_QUEUE_SIZE = 2  # batches that a thread may read ahead
_END = object()

_Source = TypeVar("_Source")
_Item = TypeVar("_Item")


class ArrowScan:
    """The live rows of files, with the columns of their table, as an Arrow C stream.

    Each call of `__arrow_c_stream__` reads the files again.
    """

    def __init__(
        self,
        files: LiveFiles,
        settings: StorageSettings,
        *,
        positions: bool = False,
        only: Collection[str] | None = None,
        also_local: bool = False,
    ) -> None:
        """`only` names the columns to read; None means all columns.

        Without `also_local`, files on the local disk are skipped, because DuckDB reads them.
        """
        self._files, self._settings = files, settings
        self._also_local = also_local
        fields = [f for f in files.schema.fields if only is None or f.name in only]
        self._fields = fields or [*files.schema.fields[:1]]
        arrow = schema_to_arrow(StructType(tuple(self._fields)))
        columns = [pa.field(field.name, field.type) for field in arrow]
        if positions:
            columns += [pa.field(name, pa.int64()) for name in (FILE, ROW)]
        self._read = pa.schema(columns)
        self.schema = duckdb_types(self._read)
        self.failure: TxnLogError | None = None
        """The error that ended the last stream. The consumer of a C stream gets only its text."""
        self._positions = positions
        self._numbered = [
            (number, file)
            for number, file in enumerate(files.files)
            if also_local or not file.address.startswith("/")
        ]

    def narrowed(self, names: Collection[str]) -> ArrowScan:
        """Return the same rows with fewer columns."""
        return ArrowScan(
            self._files,
            self._settings,
            positions=self._positions,
            only=names,
            also_local=self._also_local,
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._read_files()
        except TxnLogError as error:
            self.failure = error
            raise

    def _read_files(self) -> Iterator[pa.RecordBatch]:
        values = self._files.partition_values([file for _, file in self._numbered])
        constants = {field.name: array for field, array in values}
        reads = [
            (number, file, {name: array[position] for name, array in constants.items()})
            for position, (number, file) in enumerate(self._numbered)
        ]
        return _read_concurrently(lambda read: self._file(*read), reads, threads=_FILES_AT_ONCE)

    def _file(
        self, number: int, file: LiveFile, constants: dict[str, pa.Scalar]
    ) -> Iterator[pa.RecordBatch]:
        mode = self._files.column_mapping_mode
        deleted = self._files.deleted([file])["row_number"] if file.vector else None
        storage, name = storage_of(self._files.location, file.path, self._settings)
        start = 0
        # By default, Arrow reads INT96 timestamps as nanoseconds. Read microseconds if possible:
        # the range of nanoseconds (1677 to 2262) is smaller than that of Delta's timestamps.
        unit = "ns" if has_nanoseconds(self._files.schema) else "us"
        with (
            convert_read_errors(file.path, self._files.location),
            storage.open_input(name) as opened,
            pq.ParquetFile(opened, coerce_int96_timestamp_unit=unit, pre_buffer=True) as parquet,
        ):
            fields = self._fields
            if mode == "id":
                schema = StructType(tuple(fields))
                fields = [*named_as_in_file(schema, parquet.schema_arrow, file.path).fields]
            names = {field.name for field in parquet.schema_arrow}
            stored = (f.physical_name(mode) for f in fields if f.name not in constants)
            wanted = [name for name in stored if name in names]
            if not wanted:
                wanted = [parquet.schema_arrow.names[0]]  # any column, to count the rows
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=wanted):
                numbers = pa.array(range(start, start + batch.num_rows), pa.int64())
                start += batch.num_rows
                columns = [
                    pa.repeat(constants[field.name], batch.num_rows)
                    if field.name in constants
                    else _logical(_column(batch, field.physical_name(mode)), field, mode)
                    for field in fields
                ]
                if self._positions:
                    columns += [pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows), numbers]
                found = pa.RecordBatch.from_arrays(columns, schema=self._read)
                if self.schema != self._read:
                    found = found.cast(self.schema)
                if deleted is not None:
                    found = found.filter(pc.invert(pc.is_in(numbers, value_set=deleted)))
                yield found


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name in batch.schema.names:
        return batch.column(name)
    return pa.nulls(batch.num_rows)


def _logical(array: pa.Array, field: StructField, mode: str | None) -> pa.Array:
    kind = schema_to_arrow(StructType((StructField(field.name, field.type),))).field(0).type
    try:
        return _converted(array, field.type, kind, mode)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TxnLogEngineError(
            f"column {field.name!r} of a file cannot be read as {field.type}: {error}",
            help="The file does not match the table's schema; rewrite the file.",
        ) from error


def _converted(array: pa.Array, data_type: DataType, kind: pa.DataType, mode: str | None) -> Any:
    """Convert an array from a file to the names and types of the table."""
    if pa.types.is_null(kind):
        return as_void(array, kind)
    if data_type == "variant" and pa.types.is_struct(array.type):
        return unshredded(array, kind)
    if pa.types.is_null(array.type) or not isinstance(data_type, StructType | ArrayType | MapType):
        if array.type == kind:
            return array
        # Check the cast to nanoseconds: their range is smaller than that of microseconds.
        is_finer = pa.types.is_timestamp(kind) and kind.unit == "ns"
        return array.cast(kind, safe=is_finer)
    if isinstance(data_type, StructType):
        positions = {member.name: number for number, member in enumerate(array.type)}
        members = []
        for member, wanted in zip(data_type.fields, kind, strict=True):
            position = positions.get(member.physical_name(mode))
            part = pa.nulls(len(array)) if position is None else array.field(position)
            members.append(_converted(part, member.type, wanted.type, mode))
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=array.is_null())
    if isinstance(data_type, MapType):
        keys = _converted(array.keys, data_type.key_type, kind.key_type, mode)
        items = _converted(array.items, data_type.value_type, kind.item_type, mode)
        return pa.MapArray.from_arrays(list_offsets(array), keys, items, type=kind)
    values = _converted(array.values, data_type.element_type, kind.value_type, mode)
    return pa.ListArray.from_arrays(list_offsets(array), values, type=kind)


def _read_concurrently(
    read: Callable[[_Source], Iterable[_Item]], sources: Sequence[_Source], *, threads: int
) -> Iterator[_Item]:
    """Yield the items of all sources in order, while up to `threads` sources are being read.

    >>> list(_read_concurrently(range, [2, 0, 3], threads=2))
    [0, 1, 0, 1, 2]
    """
    if len(sources) <= 1:
        for source in sources:
            yield from read(source)
        return
    stopped = threading.Event()
    queues: list[queue.Queue[object]] = []
    remaining = iter(sources)

    def start_next() -> None:
        for source in remaining:
            items: queue.Queue[object] = queue.Queue(_QUEUE_SIZE)
            queues.append(items)
            threading.Thread(target=work, args=(source, items), daemon=True).start()
            return

    def work(source: _Source, items: queue.Queue[object]) -> None:
        try:
            for item in read(source):
                items.put(item)
                if stopped.is_set():
                    return
            items.put(_END)
        except BaseException as error:  # the thread that consumes the items raises the error
            items.put(_Failure(error))

    for _ in range(threads):
        start_next()
    try:
        while queues:
            item = queues[0].get()
            if item is _END:
                queues.pop(0)
                start_next()
            elif isinstance(item, _Failure):
                raise item.error
            else:
                yield item  # type: ignore[misc]
    finally:
        stopped.set()
        for items in queues:  # a thread may be blocked on a full queue
            while not items.empty():
                items.get_nowait()


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error
