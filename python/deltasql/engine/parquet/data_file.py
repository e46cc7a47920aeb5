"""Write the data files of one partition; when a file is full, a new one is started."""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow.parquet as pq

from deltasql.engine.parquet.statistics import Statistics
from deltasql.exceptions import TxnLogStorageError
from deltasql.model.actions import AddFile
from deltasql.model.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from deltasql.engine.base import WritePlan
    from deltasql.engine.parquet.file_shape import FileShape
    from deltasql.engine.parquet.options import ParquetOptions

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_FULL = 0.95  # share of the target size; filling the rest would add a very small row group
_SMALL = 64 * 1024  # up to this many bytes of rows, a file is opened with `small`
_FEWEST_ROWS = 1024  # minimum rows of a row group that is cut to meet the target size


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
        path=quote(name, safe="/=-_.~!$&'()*+,;@"),
        partition_values=partition,
        size=size,
        modification_time=modified_ms,
        data_change=plan.data_change,
        stats=stats,
    )


def escape_name(name: str) -> str:
    """Return the name of a partition column as folder names contain it."""
    # Do not escape letters of any language: some readers search the path for the column name.
    return "".join(letter if letter.isalnum() else quote(letter, safe="-_.~") for letter in name)


def _escape(value: str | None) -> str:
    # Also escape spaces: some readers cannot open an object with a space in its name.
    return _NULL_PARTITION if value is None else quote(value, safe="-_.~")
