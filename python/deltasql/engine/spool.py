"""Rows that are computed now and read later: in memory if they are few, else in a file."""

from __future__ import annotations

import tempfile
from collections import deque
from contextlib import ExitStack
from itertools import chain
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from deltasql.exceptions import TxnLogEngineError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HELD_BYTES = 2 * 1024 * 1024
_FIRST_BYTES = 32 * 1024 * 1024


def first_rows(reader: pa.RecordBatchReader) -> tuple[deque[pa.RecordBatch], bool]:
    """Take rows of a stream until they are many; tell if there are no others."""
    return rows_up_to(reader, _FIRST_BYTES)


def rows_up_to(reader: pa.RecordBatchReader, most_bytes: int) -> tuple[deque[pa.RecordBatch], bool]:
    """Take rows of a stream until they are more than so many bytes; tell if there are no others."""
    held: deque[pa.RecordBatch] = deque()
    size = 0
    for batch in reader:
        held.append(batch)
        size += batch.nbytes
        if size > most_bytes:
            return held, False
    return held, True


def spooled(reader: pa.RecordBatchReader) -> tuple[pa.RecordBatchReader, bool]:
    """Take all rows of a stream, so that what computes them can be let go; tell if they are few.

    >>> rows, are_few = spooled(pa.RecordBatchReader.from_batches(pa.schema([]), []))
    >>> rows.read_all().num_rows, are_few
    (0, True)
    """
    held, are_few = rows_up_to(reader, _HELD_BYTES)
    batches = taken(held) if are_few else _filed(reader, held)
    return pa.RecordBatchReader.from_batches(reader.schema, batches), are_few


def _filed(reader: pa.RecordBatchReader, held: deque[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put rows into a file without a name, those that are held first; return them as read back."""
    try:
        with ExitStack() as stack:
            file = stack.enter_context(tempfile.TemporaryFile(prefix="deltasql-"))
            with pa.ipc.new_stream(pa.PythonFile(file, "w"), reader.schema) as writer:
                for batch in chain(taken(held), reader):
                    writer.write_batch(batch)
            file.seek(0)
            stack.pop_all()
            return _read(file)
    except OSError as error:
        raise TxnLogEngineError(
            f"rows could not be put into a temporary file: {error}",
            help="It needs room on the disk for temporary files, in the folder of TMPDIR.",
        ) from error


def _read(file: IO[bytes]) -> Iterator[pa.RecordBatch]:
    with file, pa.ipc.open_stream(pa.PythonFile(file, "r")) as reader:
        yield from reader


def taken(held: deque[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches that nobody has any more once they are used."""
    while held:
        yield held.popleft()
