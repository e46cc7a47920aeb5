"""Write rows as Parquet files with Delta statistics, in bounded memory.

Rows are collected into chunks. A chunk is split by partition, and each part becomes a row group of
the partition's open file. When a file reaches the target size, a new file is started. If the rows
have more partitions than there may be open files, DuckDB first sorts the rows by partition; it can
spill to disk.
"""

from __future__ import annotations

import sys
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql import telemetry
from deltasql.config import EngineSettings
from deltasql.engine.parquet.file_shape import FileShape, ParquetOptions, file_shape
from deltasql.engine.parquet.partitions import split_by_partition
from deltasql.engine.parquet.statistics import Statistics
from deltasql.exceptions import TxnLogStorageError
from deltasql.model.actions import AddFile
from deltasql.model.clock import now_ms
from deltasql.model.duckdb_results import arrow_reader
from deltasql.storage.location import parse_location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import TracebackType

    from deltasql.engine.base import WritePlan

Partition: TypeAlias = tuple[str | None, ...]
Parts: TypeAlias = list[tuple[Partition, pa.Table]]

_CHUNK_BYTES = 64 * 1024 * 1024
_CHUNK_OF_PARTITIONS_BYTES = 128 * 1024 * 1024
_INLINE_BYTES = 4 * 1024 * 1024  # up to this size, starting threads takes longer than writing
_OPEN_FILES = 128
_WORKERS = 2
_CLOSED_AT_ONCE = 8
_SORT_MEMORY = "1GB"
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_FULL = 0.95  # share of the target size; filling the rest would add a very small row group
_SMALL = 64 * 1024  # up to this many bytes of rows, storage is told that a file will be small
_FEWEST_ROWS = 1024  # minimum rows of a row group that is cut to meet the target size


def write_batches(reader: pa.RecordBatchReader, plan: WritePlan) -> list[AddFile]:
    """Write all rows of a stream, and return an `add` action for each new file."""
    shape = file_shape(plan)
    options = ParquetOptions.of(plan, shape)
    chunks = _chunks(reader, shape, options)
    is_sorted = not shape.partition_columns
    with (
        telemetry.span("write", location=plan.location),
        _Writer(plan, shape, options) as writer,
    ):
        while (chunk := next(chunks, None)) is not None:
            parts: Parts = (
                list(split_by_partition(chunk, shape.partition_columns, shape.materialized))
                if shape.partition_columns
                else [((), chunk)]
            )
            if not is_sorted and writer.files_with(parts) > _OPEN_FILES:
                following = next(chunks, None)
                if following is not None:
                    chunks = _sorted(chain([chunk, following], chunks), shape, options)
                    is_sorted = True
                    continue
            writer.write(parts, is_small=_is_small(chunk, _INLINE_BYTES), is_sorted=is_sorted)
        return writer.finish()


def _chunks(
    reader: pa.RecordBatchReader, shape: FileShape, options: ParquetOptions
) -> Iterator[pa.Table]:
    """Combine or split the batches into chunks of about the same size, which are then written."""
    most_bytes = _CHUNK_OF_PARTITIONS_BYTES if shape.partition_columns else _CHUNK_BYTES
    most_rows = None if shape.partition_columns else options.max_row_group_size
    pending: list[pa.RecordBatch] = []
    size = length = 0
    for batch in reader:
        for part in _split(batch, most_bytes, most_rows):
            if pending:
                size += pending[-1].nbytes  # not computed for a small write, which has one batch
                if size + part.nbytes > most_bytes or (
                    most_rows is not None and length + part.num_rows > most_rows
                ):
                    yield shape.conform(pa.Table.from_batches(pending))
                    pending, size, length = [], 0, 0
            pending.append(part)
            length += part.num_rows
    if length:
        yield shape.conform(pa.Table.from_batches(pending))


def _split(
    batch: pa.RecordBatch, most_bytes: int, most_rows: int | None
) -> Iterator[pa.RecordBatch]:
    """Split a batch that is larger than a chunk, to bound the memory of its conversion."""
    rows = batch.num_rows
    if (most_rows is None or rows <= most_rows) and _is_small(batch, most_bytes):
        yield batch
        return
    step = max(1, -(-rows // (batch.nbytes // most_bytes + 1)))
    if most_rows is not None:
        step = min(step, most_rows)
    if step >= rows:
        yield batch
        return
    for start in range(0, rows, step):
        yield batch.slice(start, step)


def _is_small(rows: pa.Table | pa.RecordBatch, most_bytes: int) -> bool:
    """Return whether rows have at most `most_bytes` bytes."""
    # `nbytes` is slow, because it visits every column, so try an upper bound first. A buffer that
    # several columns share is counted once in the total but for each column in `nbytes`.
    upper_bound = rows.get_total_buffer_size() * rows.num_columns
    return bool(upper_bound <= most_bytes or rows.nbytes <= most_bytes)


def _sorted(
    chunks: Iterable[pa.Table], shape: FileShape, options: ParquetOptions
) -> Iterator[pa.Table]:
    """Sort the rows by partition with DuckDB, on disk if they do not fit in memory."""
    # lazy import: DuckDB is an extra
    from deltasql.engine.duckdb.connection import temporary_database
    from deltasql.engine.duckdb.scan import identifier  # lazy import: DuckDB is an extra

    source = pa.RecordBatchReader.from_batches(
        shape.table, chain.from_iterable(chunk.to_batches() for chunk in chunks)
    )
    with temporary_database(EngineSettings(memory_limit=_SORT_MEMORY)) as connection:
        # Pass the C stream to avoid a deadlock, see `DuckDbEngine.rows`.
        connection.register("rows", source.__arrow_c_stream__())
        order = ", ".join(map(identifier, shape.partition_columns))
        found = connection.execute(f"FROM rows ORDER BY {order}")
        reader = arrow_reader(found, 65_536)
        yield from _chunks(reader, shape, options)


class _Writer:
    """The open files. Only one thread at a time writes to a file."""

    def __init__(self, plan: WritePlan, shape: FileShape, options: ParquetOptions) -> None:
        self._plan, self._shape, self._options = plan, shape, options
        self._files: dict[tuple[Partition, int], OpenFile] = {}
        self._workers: list[ThreadPoolExecutor] = []
        self._work: list[list[Future[list[AddFile]]]] = []
        self._chunks = 0
        self._added: list[AddFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.shutdown(cancel_futures=True)
        for file in self._files.values():
            file.discard()

    def files_with(self, parts: Parts) -> int:
        """Return how many partitions have an open file or rows in these parts."""
        return len({values for values, _ in self._files} | {values for values, _ in parts})

    def write(self, parts: Parts, *, is_small: bool, is_sorted: bool) -> None:
        """Write parts, in worker threads unless they are small.

        The caller can prepare the next parts while these are written.
        """
        # Files can be closed early in two cases. If rows are sorted, only the last partition of a
        # chunk continues in the next chunk. A chunk with more partitions than there may be open
        # files is the last chunk, because otherwise the rows are sorted.
        ends = is_sorted or len(parts) > _OPEN_FILES
        keys = [(values, self._file_number(values)) for values, _ in parts]
        files = self._open(keys, others=0 if ends and parts[0][0] else _OPEN_FILES - len(parts))
        if ends:
            for key in keys[:-1]:
                del self._files[key]
        last = len(parts) - 1
        jobs = [
            (file.write_last if ends and number < last else file.write, rows)
            for number, (file, (_, rows)) in enumerate(zip(files, parts, strict=True))
        ]
        self._chunks += 1
        if is_small:
            self._wait(at_most=0)
            for work, rows in jobs:
                self._added += work(rows)
            return
        if not self._workers:
            self._workers = [ThreadPoolExecutor(1) for _ in range(_WORKERS)]
        self._wait(at_most=0 if self._shape.partition_columns else _WORKERS - 1)
        # Two threads never write to the same file: without partitions, each file always has the
        # same worker; with partitions, all earlier work is complete at this point.
        self._work.append(
            [
                self._workers[(keys[number][1] + number) % _WORKERS].submit(work, rows)
                for number, (work, rows) in enumerate(jobs)
            ]
        )

    def finish(self) -> list[AddFile]:
        """Complete all files and return their actions."""
        self._wait(at_most=0)
        files = list(self._files.values())
        waits = bool(self._workers) or not parse_location(self._plan.location).is_local
        if waits and len(files) > 1:
            # Close the files concurrently, because each close waits for the disk or the store.
            with ThreadPoolExecutor(_CLOSED_AT_ONCE) as pool:
                for done in pool.map(OpenFile.close, files):
                    self._added += done
        else:
            for file in files:
                self._added += file.close()
        self._files.clear()
        return self._added

    def _open(self, keys: list[tuple[Partition, int]], *, others: int) -> list[OpenFile]:
        """Return the open file of each key; record intents for new files.

        If more than `others` other files are open, they are closed first.
        """
        unused = self._files.keys() - set(keys)
        if len(unused) > others:
            self._wait(at_most=0)
            for key in unused:
                self._added += self._files.pop(key).close()
        new = []
        for key in keys:
            if key not in self._files:
                file = OpenFile(self._plan, self._shape, self._options, key[0])
                self._files[key] = file
                new.append(file.name)
        if new:
            self._plan.intend(new)
        return [self._files[key] for key in keys]

    def _file_number(self, values: Partition) -> int:
        """Return the number of the open file that the rows are written to.

        Without partitions, once a file was filled, chunks alternate between one file per worker,
        unless the order of the rows must be kept. Otherwise the number is always 0.
        """
        if self._plan.options.keeps_order:
            return 0
        first = None if values else self._files.get((values, 0))
        return self._chunks % _WORKERS if first is not None and first.has_filled_one else 0

    def _wait(self, *, at_most: int) -> None:
        while len(self._work) > at_most:
            for each in self._work.pop(0):
                self._added += each.result()


class OpenFile:
    """The open file for rows of one partition. It is created when the first rows are written."""

    def __init__(
        self,
        plan: WritePlan,
        shape: FileShape,
        options: ParquetOptions,
        values: tuple[str | None, ...],
    ) -> None:
        """`values` are the partition values, in the order of the partition columns."""
        self._plan, self._shape, self._options = plan, shape, options
        self._values = dict(zip(shape.partition_keys, values, strict=True))
        self._sink: Any = None
        self._context: Any = None
        self._writer: Any = None
        self._statistics: Statistics | None = None
        self._bytes_per_byte = 1.0
        """Bytes in the file per byte in memory, as measured for the latest row group."""
        self.name = new_name(plan, options, self._values)
        self.has_filled_one = False
        """Whether the rows have filled at least one file."""

    def write(self, rows: pa.Table) -> list[AddFile]:
        """Write rows, and return the files that are complete."""
        try:
            return self._write_rows(rows)
        except BaseException:
            self.discard()
            raise

    def write_last(self, rows: pa.Table) -> list[AddFile]:
        """Write the last rows, and return the files that are complete."""
        return self.write(rows) + self.close()

    def close(self) -> list[AddFile]:
        """Complete the open file, and return it if there is one."""
        try:
            return [] if self._writer is None else [self._finish()]
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Abort the open file, so that it never becomes visible.

        The storage may replace the current error with a more specific one, such as a full disk. In
        that case, the more specific error is raised.
        """
        if self._context is not None:
            kind, error, traceback = sys.exc_info()
            failed = error if error is not None else RuntimeError("the file was discarded")
            context, self._context, self._writer = self._context, None, None
            # Call `__exit__` with the current error: the storage then discards the file, and may
            # raise a more specific error.
            try:
                context.__exit__(kind or type(failed), failed, traceback)
            except type(failed) as raised:
                if raised is not failed and isinstance(raised, TxnLogStorageError):
                    raise

    def _write_rows(self, rows: pa.Table) -> list[AddFile]:
        done = []
        stored = self._shape.store(rows)
        # Do not estimate from a few rows: metadata takes most of the space in their row group.
        size = stored.nbytes if stored.num_rows > _FEWEST_ROWS else 0
        start = 0
        while start < stored.num_rows:
            if self._writer is None:
                self._open(stored)
            room = self._options.target_file_size - self._sink.tell()
            fitting = int(stored.num_rows * room / max(1.0, size * self._bytes_per_byte)) + 1
            length = max(fitting, _FEWEST_ROWS)
            whole = not start and length >= stored.num_rows
            piece = stored if whole else stored.slice(start, length)
            self._write(piece, size * piece.num_rows / stored.num_rows)
            start += piece.num_rows
            if self._sink.tell() >= self._options.target_file_size * _FULL:
                done.append(self._finish())
                self.has_filled_one = True
                self.name = ""
        return done

    def _write(self, piece: pa.Table, size: float) -> None:
        before = self._sink.tell()
        self._writer.write_table(piece, row_group_size=self._options.max_row_group_size)
        if size:
            self._bytes_per_byte = max(0.001, (self._sink.tell() - before) / max(1.0, size))
        if self._statistics is not None:
            self._statistics.add(piece)

    def _open(self, rows: pa.Table) -> None:
        if not self.name:
            self.name = new_name(self._plan, self._options, self._values)
            self._plan.intend([self.name])
        context = self._plan.storage.writer(
            self.name,
            small=rows.get_total_buffer_size() <= _SMALL,
        )
        self._sink = context.__enter__()
        self._context = context
        arguments = self._options.arguments_for(rows, self._shape)
        self._writer = pq.ParquetWriter(
            self._sink, self._shape.stored, store_schema=False, **arguments
        )
        if not self._plan.folder:
            length = self._plan.options.statistics_length
            self._statistics = Statistics(self._shape.indexed, length)

    def _finish(self) -> AddFile:
        self._writer.close()
        size = self._sink.tell()
        context, self._context, self._writer = self._context, None, None
        context.__exit__(None, None, None)
        stats = None
        if self._statistics is not None:
            stats = self._statistics.to_json(tight=has_tight_bounds(self._plan))
        return add_action(
            self._plan, self.name, self._values, size=size, modified_ms=now_ms(), stats=stats
        )


def new_name(plan: WritePlan, options: ParquetOptions, partition: Mapping[str, str | None]) -> str:
    """Return a unique file name in the folder of a partition."""
    folder = f"{plan.folder}{partition_folder(partition)}"
    return f"{folder}part-00000-{uuid.uuid4()}-c000{options.suffix}"


def partition_folder(values: Mapping[str, str | None]) -> str:
    """Return the Hive-style folder of a partition; empty if there are no partition columns.

    >>> partition_folder({"day": "2024-05-01", "place": None})
    'day=2024-05-01/place=__HIVE_DEFAULT_PARTITION__/'
    """
    return "".join(f"{escape_name(name)}={_escape(value)}/" for name, value in values.items())


def has_tight_bounds(plan: WritePlan) -> bool:
    """Return whether statistics get `tightBounds`: only if the table has deletion vectors."""
    return plan.configuration.get("delta.enableDeletionVectors") == "true"


def add_action(
    plan: WritePlan,
    name: str,
    partition: Mapping[str, str | None],
    *,
    size: int,
    modified_ms: int,
    stats: str | None,
) -> AddFile:
    """Return the `add` action for a complete file."""
    return AddFile(
        path=logged_path(name),
        partition_values=partition,
        size=size,
        modification_time=modified_ms,
        data_change=plan.data_change,
        stats=stats,
    )


def logged_path(name: str) -> str:
    """Return the path of a file in the log: its name below the table's root as a URL."""
    return quote(name, safe="/=-_.~!$&'()*+,;@")


def escape_name(name: str) -> str:
    """Return the name of a partition column, escaped for use in a folder name."""
    # Do not escape letters of any language: some readers search the path for the column name.
    return "".join(letter if letter.isalnum() else quote(letter, safe="-_.~") for letter in name)


def _escape(value: str | None) -> str:
    # Also escape spaces: some readers cannot open an object with a space in its name.
    return _NULL_PARTITION if value is None else quote(value, safe="-_.~")
