"""Read the files of a checkpoint in batches; a thread reads ahead while a batch is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql._core import FileList, LogFiles
from deltasql.mirror.read_ahead import read_ahead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from deltasql.mirror.log.read import StateStream

# The number of files in one SQL transaction.
BATCH_FILES = 50_000


def file_batches(
    state: StateStream,
    columns: Sequence[tuple[int, tuple[str, ...], str]],
    partition_columns: Sequence[str],
    batch_files: int,
) -> Iterator[LogFiles]:
    """Yield the files of a state in batches, with new ids from 1, and then its tombstones."""
    return read_ahead(_batches(state, columns, partition_columns, batch_files))


def _batches(
    state: StateStream,
    columns: Sequence[tuple[int, tuple[str, ...], str]],
    partition_columns: Sequence[str],
    batch_files: int,
) -> Iterator[LogFiles]:
    next_file_id = 1
    for table in same_size(state.files, batch_files):
        files = LogFiles(next_file_id)
        files.set_columns(columns, partition_columns)
        files.append(state.version, FileList.from_arrow(table))
        next_file_id = files.next_file_id
        yield files
    ordinal = 0
    for table in same_size(state.tombstones, batch_files):
        files = LogFiles(next_file_id)
        files.set_columns(columns, partition_columns)
        files.append_tombstones(state.version, FileList.from_arrow(table), ordinal)
        ordinal += table.num_rows
        yield files


def same_size(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Split and join tables so that each has `rows` rows; the last may have fewer.

    >>> tables = [pa.table({"n": range(3)}), pa.table({"n": range(4)})]
    >>> [table.num_rows for table in same_size(tables, 2)]
    [2, 2, 2, 1]
    """
    held: list[pa.Table] = []
    count = 0
    for table in tables:
        held.append(table)
        count += table.num_rows
        if count < rows:
            continue
        whole = pa.concat_tables(held)
        while count >= rows:
            yield whole.slice(0, rows)
            whole, count = whole.slice(rows), count - rows
        held = [whole]
    if count:
        yield pa.concat_tables(held)
