"""Write rows as Parquet files with Delta statistics, in bounded memory.

Rows are collected into chunks. A chunk is split by partition, and each part becomes a row group of
the partition's open file. A file is closed when it reaches the target size. If the rows have more
partitions than there may be open files, DuckDB first sorts the rows by partition; it can spill to
disk.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Self, TypeAlias

import pyarrow as pa

from deltasql import telemetry
from deltasql.config import EngineSettings
from deltasql.engine.parquet.data_file import OpenFile
from deltasql.engine.parquet.file_shape import FileShape, file_shape
from deltasql.engine.parquet.options import ParquetOptions
from deltasql.engine.parquet.partitions import split_by_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from deltasql.engine.base import WritePlan
    from deltasql.model.actions import AddFile

Partition: TypeAlias = tuple[str | None, ...]
Parts: TypeAlias = list[tuple[Partition, pa.Table]]

_CHUNK_BYTES = 64 * 1024 * 1024
_CHUNK_OF_PARTITIONS_BYTES = 128 * 1024 * 1024
_INLINE_BYTES = 4 * 1024 * 1024  # up to this size, starting threads takes longer than writing
_OPEN_FILES = 128
_WORKERS = 2
_CLOSED_AT_ONCE = 8
_SORT_MEMORY = "1GB"


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
                list(split_by_partition(chunk, shape.partition_columns))
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
    """Combine or split the batches into chunks of about the same size; each is written at once."""
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
        reader = connection.execute(f"FROM rows ORDER BY {order}").to_arrow_reader(65_536)
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
        if self._workers and len(files) > 1:
            # Close the files concurrently, because each close waits for the disk.
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
