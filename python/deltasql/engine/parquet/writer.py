"""Write rows as Parquet files with Delta statistics, in bounded memory.

Rows are gathered into chunks, a chunk is parted by its partitions, and each part becomes a row
group of the partition's open file; a file ends when it has the size that was asked for. Rows of
more partitions than files can be open are sorted first, on disk.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Self, TypeAlias

import pyarrow as pa

from deltasql import telemetry
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
_ALONE_BYTES = 4 * 1024 * 1024  # less than this is written faster than threads are started
_OPEN_FILES = 128
_HANDS = 2
_CLOSED_AT_ONCE = 8


def write_batches(reader: pa.RecordBatchReader, plan: WritePlan) -> list[AddFile]:
    """Write all rows of a stream; a file without a commit is invisible."""
    shape = file_shape(plan)
    options = ParquetOptions.of(plan, shape)
    chunks = _chunks(reader, shape, options)
    is_sorted = not shape.partition_columns
    with (
        telemetry.span("write", location=plan.location),
        _Writer(plan, shape, options) as writer,
    ):
        while (chunk := next(chunks, None)) is not None:
            parts = list(split_by_partition(chunk, shape.partition_columns))
            if not is_sorted and writer.files_with(parts) > _OPEN_FILES:
                following = next(chunks, None)
                if following is not None:
                    chunks = _sorted(chain([chunk, following], chunks), shape, options)
                    is_sorted = True
                    continue
            writer.write(parts, is_small=_is_small(chunk, _ALONE_BYTES), is_sorted=is_sorted)
        return writer.finish()


def _chunks(
    reader: pa.RecordBatchReader, shape: FileShape, options: ParquetOptions
) -> Iterator[pa.Table]:
    """Gather rows that are written together."""
    most_bytes = _CHUNK_OF_PARTITIONS_BYTES if shape.partition_columns else _CHUNK_BYTES
    most_rows = None if shape.partition_columns else options.max_row_group_size
    held: list[pa.RecordBatch] = []
    size = length = 0
    for batch in reader:
        for part in _cut(batch, most_bytes, most_rows):
            if held:
                size += held[-1].nbytes  # not before another comes: small writes have one batch
                if size + part.nbytes > most_bytes or (
                    most_rows is not None and length + part.num_rows > most_rows
                ):
                    yield shape.conform(pa.Table.from_batches(held))
                    held, size, length = [], 0, 0
            held.append(part)
            length += part.num_rows
    if length:
        yield shape.conform(pa.Table.from_batches(held))


def _cut(batch: pa.RecordBatch, most_bytes: int, most_rows: int | None) -> Iterator[pa.RecordBatch]:
    """Cut a batch that is everything at once, so that what is made of it stays small."""
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
    """Tell whether rows have at most so many bytes."""
    # `nbytes` looks at every column. What columns share is counted once here: at most that often.
    most = rows.get_total_buffer_size() * rows.num_columns
    return bool(most <= most_bytes or rows.nbytes <= most_bytes)


def _sorted(
    chunks: Iterable[pa.Table], shape: FileShape, options: ParquetOptions
) -> Iterator[pa.Table]:
    """Bring the rows of a partition together."""
    from deltasql.engine.duckdb.sort import sorted_stream

    source = pa.RecordBatchReader.from_batches(
        shape.table, chain.from_iterable(chunk.to_batches() for chunk in chunks)
    )
    with sorted_stream(source, shape.partition_columns) as reader:
        yield from _chunks(reader, shape, options)


class _Writer:
    """The files that are being written, each by one thread at a time."""

    def __init__(self, plan: WritePlan, shape: FileShape, options: ParquetOptions) -> None:
        self._plan, self._shape, self._options = plan, shape, options
        self._files: dict[tuple[Partition, int], OpenFile] = {}
        self._hands: list[ThreadPoolExecutor] = []
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
        for hand in self._hands:
            hand.shutdown(cancel_futures=True)
        for file in self._files.values():
            file.discard()

    def files_with(self, parts: Parts) -> int:
        """Return how many files would be open if these rows were written too."""
        return len({values for values, _ in self._files} | {values for values, _ in parts})

    def write(self, parts: Parts, *, is_small: bool, is_sorted: bool) -> None:
        """Write rows, while the next ones are being made if they are many."""
        # Only the last partition of sorted rows, or of rows after which none come, goes on.
        ends = is_sorted or len(parts) > _OPEN_FILES
        keys = [(values, self._lane(values)) for values, _ in parts]
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
        if not self._hands:
            self._hands = [ThreadPoolExecutor(1) for _ in range(_HANDS)]
        self._wait(at_most=0 if self._shape.partition_columns else _HANDS - 1)
        # Two threads never write to one file: its lane is its thread, or all earlier work is done.
        self._work.append(
            [
                self._hands[(keys[number][1] + number) % _HANDS].submit(work, rows)
                for number, (work, rows) in enumerate(jobs)
            ]
        )

    def finish(self) -> list[AddFile]:
        """Complete all files and return their actions."""
        self._wait(at_most=0)
        files = list(self._files.values())
        if self._hands and len(files) > 1:
            # Side by side, since each of them waits for the disk.
            with ThreadPoolExecutor(_CLOSED_AT_ONCE) as hands:
                for done in hands.map(OpenFile.close, files):
                    self._added += done
        else:
            for file in files:
                self._added += file.close()
        self._files.clear()
        return self._added

    def _open(self, keys: list[tuple[Partition, int]], *, others: int) -> list[OpenFile]:
        """Return the file of each partition; names of new ones are told before they are made."""
        unneeded = self._files.keys() - set(keys)
        if len(unneeded) > others:
            self._wait(at_most=0)
            for key in unneeded:
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

    def _lane(self, values: Partition) -> int:
        """Without partitions, rows that fill more than a file go to several at once."""
        if self._plan.options.keeps_order:
            return 0
        first = None if values else self._files.get((values, 0))
        return self._chunks % _HANDS if first is not None and first.is_full_once else 0

    def _wait(self, *, at_most: int) -> None:
        while len(self._work) > at_most:
            for each in self._work.pop(0):
                self._added += each.result()
