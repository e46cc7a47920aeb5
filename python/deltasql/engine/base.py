"""The interface of an engine, which runs the same plan of an operation on DuckDB or on Spark.

A plan is SQL over relations: which rows of which files to read, and how to change them. DuckDB runs
it in this process, Spark on its executors. Only small results and the metadata of new files come
back.
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
"""Column of a scan: the position of a row in its file, counting deleted rows."""
CHANGE_TYPE = "_change_type"
"""Column of change data: insert, delete, update_preimage or update_postimage."""
COMMIT_VERSION, COMMIT_TIMESTAMP = "_commit_version", "_commit_timestamp"
"""Columns of a change feed: the version and the time of the commit that changed a row."""

EVERY_COLUMN = "*"
"""Key in options by column: the value for every column that has no key of its own."""
DEFAULT_FILE_SIZE = 100 * 1024 * 1024
"""Approximate bytes of a new file when no target size is set."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How files are written: deltalake's WriterProperties, and the target size of a file."""

    target_file_size: int | None = None
    keeps_order: bool = False
    """Whether files keep the order of the rows, also when there are many files."""
    compression: str | None = None
    """A codec in lower case: snappy, zstd, gzip, brotli, lz4, none."""
    compression_level: int | None = None
    max_row_group_size: int | None = None
    data_page_size: int | None = None
    data_page_rows: int | None = None
    dictionary_page_size: int | None = None
    write_batch_size: int | None = None
    dictionary_enabled: bool | Mapping[str, bool] | None = None
    """For all columns, or by name; EVERY_COLUMN covers the columns that are not named."""
    statistics_enabled: bool | Mapping[str, bool] | None = None
    statistics_length: int | None = None
    """Characters of a string that the statistics in the log keep."""
    encodings: Mapping[str, str] = field(default_factory=dict)
    """Encodings by column name. A column with an encoding is not dictionary-encoded."""
    bloom_filters: Mapping[str, tuple[float | None, int | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Where and how rows are written to files."""

    location: str
    storage: Storage
    schema: StructType
    """The table's columns under their logical names, including partition columns."""
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    """The table's properties: column mapping, which columns get statistics, the codec."""
    intend: Callable[[list[str]], None]
    """Records an intent for file names before the files are written, so that vacuum finds orphans.

    A name that ends with a slash is a new folder of the engine and covers every file in it.
    """
    options: WriteOptions = WriteOptions()
    data_change: bool = True
    folder: str = ""
    """Prefix of every file name; `_change_data/` for change data."""


class Relation(Protocol):
    """Rows that an engine can compute. It is opaque to everyone but the engine that made it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""


class Engine(Protocol):
    """Runs queries on data files. Use it as a context manager, which releases its resources.

    `query` takes a sqlglot tree; a table in it is the relation passed as the keyword of that name.
    """

    name: str
    dialect: str
    writes_at_once: int
    """How many writes may run at the same time, each in its own thread."""
    streams_full_joins: bool
    """Whether a full join with a small relation reads the large one in its order."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def scan(self, files: LiveFiles, *, positions: bool = False) -> Relation:
        """Return the live rows of files, with the table's columns in their order.

        With `positions` the columns FILE and ROW follow.
        """

    def rows(self, data: object) -> Relation:
        """Return data of a user as a relation: Arrow data, or a data frame of the engine.

        The relation can be read many times; a stream is stored, on disk when it is large.
        """

    def query(self, sql: exp.Query, /, **relations: Relation) -> Relation:
        """Return the result of a query, which is computed when it is read.

        `ROW_NUMBER() OVER ()` gives every row a unique number, in no particular order.
        """

    def keep(self, relation: Relation) -> Relation:
        """Compute rows once, for relations that are read repeatedly; large ones spill to disk."""

    def numbered(self, relation: Relation, name: str) -> Relation:
        """Add a column with a unique number for every row; the rows are computed once."""

    def ranked(self, relation: Relation, keys: Mapping[str, exp.Expr], bits: int) -> Relation:
        """Add a column for each key: the rank of its value among all rows, below `2**bits`.

        Equal values have the same rank, and close values may have it too; nulls come first.
        """

    def collect(self, relation: Relation) -> pa.Table:
        """Return all rows as an Arrow table; for small results."""

    def stream(self, relation: Relation) -> pa.RecordBatchReader:
        """Return rows as Arrow batches, in bounded memory."""

    def write(self, relation: Relation, plan: WritePlan) -> list[AddFile]:
        """Write rows as Parquet files with statistics; a commit makes them visible.

        The relation has the columns of `plan.schema` by name; change data also has CHANGE_TYPE.
        """
