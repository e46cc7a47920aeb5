"""What an engine does for the operations: one plan, written as SQL over relations, on any of them.

An operation says which rows of which files it wants and what becomes of them. DuckDB runs that in
this process, Spark on its executors; only small results and the metadata of new files come back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    import pyarrow as pa
    from sqlglot import exp

    from deltasql.engine.files.live_files import LiveFiles
    from deltasql.model.actions import AddFile
    from deltasql.model.schema.schema import StructType
    from deltasql.storage import Storage

FILE = "__deltasql_file"
"""Column of a scan: the position of a row's file in `LiveFiles.files`."""
ROW = "__deltasql_row"
"""Column of a scan: the position of a row in its file, deleted rows counted."""
CHANGE_TYPE = "_change_type"
"""Column of change data: insert, delete, update_preimage or update_postimage."""
COMMIT_VERSION, COMMIT_TIMESTAMP = "_commit_version", "_commit_timestamp"
"""Columns of a change feed: which commit changed a row, and when."""

EVERY_COLUMN = "*"
"""In options by column: all those that have none of their own."""
DEFAULT_FILE_SIZE = 100 * 1024 * 1024
"""Bytes of a new file, about, when nobody asks for another size."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How files are written: what deltalake's WriterProperties say, and the size of a file."""

    target_file_size: int | None = None
    keeps_order: bool = False
    """Whether neighbours in the relation are neighbours in the files, also in many files."""
    compression: str | None = None
    """A codec in lower case: snappy, zstd, gzip, brotli, lz4, none."""
    compression_level: int | None = None
    max_row_group_size: int | None = None
    data_page_size: int | None = None
    data_page_rows: int | None = None
    dictionary_page_size: int | None = None
    write_batch_size: int | None = None
    dictionary_enabled: bool | Mapping[str, bool] | None = None
    """For all columns, or by name; EVERY_COLUMN is for those that are not named."""
    statistics_enabled: bool | Mapping[str, bool] | None = None
    statistics_length: int | None = None
    """Characters of a text that the statistics of the log keep."""
    encodings: Mapping[str, str] = field(default_factory=dict)
    """Encodings of columns by name, which exclude a dictionary for them."""
    bloom_filters: Mapping[str, tuple[float | None, int | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Where and how rows become files."""

    location: str
    storage: Storage
    schema: StructType
    """The table's columns by their logical names, partition columns among them."""
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    """The table's properties: column mapping, which columns get statistics, the codec."""
    intend: Callable[[list[str]], None]
    """Told the names of files before they are written, so that an orphan is known.

    A name that ends with a slash is a folder of the engine's own: all that comes into it.
    """
    options: WriteOptions = WriteOptions()
    data_change: bool = True
    folder: str = ""
    """Put before every name; `_change_data/` for change data."""


class Relation(Protocol):
    """Rows that an engine can compute. Only the engine that made it looks inside."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""


class Engine(Protocol):
    """Runs relational work on data files. Use it as a context manager: it cleans up after itself.

    `query` takes a sqlglot tree in which relations are tables by the names of the keywords.
    """

    name: str
    dialect: str
    writes_at_once: int
    """How many writes may run at the same time, each in a thread of its own."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def scan(self, files: LiveFiles, *, positions: bool = False) -> Relation:
        """Return the live rows of files, with the table's columns in their order.

        With `positions` the columns FILE and ROW come after them.
        """

    def rows(self, data: object) -> Relation:
        """Return what a user handed in: Arrow in any form, or a data frame of the engine.

        It can be read as often as wanted; a stream is kept, on disk when it is large.
        """

    def query(self, sql: exp.Query, /, **relations: Relation) -> Relation:
        """Return the answer to a query, computed when it is needed.

        `ROW_NUMBER() OVER ()` gives every row a number of its own, in no order.
        """

    def keep(self, relation: Relation) -> Relation:
        """Compute rows once, for what is read more than once; large ones go to disk."""

    def numbered(self, relation: Relation, name: str) -> Relation:
        """Give every row a number of its own in a new column; the rows are computed once."""

    def ranked(self, relation: Relation, keys: Mapping[str, exp.Expr], bits: int) -> Relation:
        """Add a column for each key: the rank of its value among all rows, below `2**bits`.

        Equal values have one rank, and so may values that are near each other; nulls come first.
        """

    def collect(self, relation: Relation) -> pa.Table:
        """Return rows as Arrow: for small results."""

    def stream(self, relation: Relation) -> pa.RecordBatchReader:
        """Return rows as Arrow, batch by batch, in bounded memory."""

    def write(self, relation: Relation, plan: WritePlan) -> list[AddFile]:
        """Write rows as Parquet files with statistics; one without a commit is invisible.

        The relation has the columns of `plan.schema` by name; with change data, CHANGE_TYPE too.
        """
