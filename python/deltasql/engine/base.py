"""The interface of an engine. An operation runs the same queries on DuckDB or on Spark.

A query is SQL over relations: which rows of which files to read, and how to change them. DuckDB
runs the query in this process, Spark runs it on its executors. Operations receive only small
results and the metadata of new files.
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

    from deltasql._core import RowSet
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
"""Key in a mapping by column name: its value applies to all columns that the mapping omits."""
DEFAULT_FILE_SIZE = 100 * 1024 * 1024
"""Approximate bytes of a new file when no target size is set."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for writing files: those of deltalake's WriterProperties, and a target file size."""

    target_file_size: int | None = None
    keeps_order: bool = False
    """Whether files keep the order of the rows: each file contains consecutive rows."""
    compression: str | None = None
    """A codec in lower case: snappy, zstd, gzip, brotli, lz4, none."""
    compression_level: int | None = None
    max_row_group_size: int | None = None
    data_page_size: int | None = None
    data_page_rows: int | None = None
    dictionary_page_size: int | None = None
    write_batch_size: int | None = None
    dictionary_enabled: bool | Mapping[str, bool] | None = None
    """One value for all columns, or values by column name, with EVERY_COLUMN for the others."""
    statistics_enabled: bool | Mapping[str, bool] | None = None
    statistics_length: int | None = None
    """The length to which strings are truncated in the statistics of the log."""
    encodings: Mapping[str, str] = field(default_factory=dict)
    """Encodings by column name. A column with an encoding is not dictionary-encoded."""
    bloom_filters: Mapping[str, tuple[float | None, int | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Everything that a write of rows needs: the location, the schema and the options."""

    location: str
    storage: Storage
    schema: StructType
    """The table's columns under their logical names, including partition columns."""
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    """The table's properties: column mapping, which columns get statistics, the codec."""
    intend: Callable[[list[str]], None]
    """Records intents: the names of files that will be written.

    A vacuum uses them to find the files of transactions that never committed. A name that ends with
    a slash is a new folder, and its intent covers every file in the folder.
    """
    options: WriteOptions = WriteOptions()
    data_change: bool = True
    materializes_partitions: bool = False
    """Whether data files also contain the partition columns."""
    folder: str = ""
    """Prefix of every file name; `_change_data/` for change data."""


class Relation(Protocol):
    """Rows that an engine can compute. Only the engine that created a relation can read it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The column names."""


class Engine(Protocol):
    """Runs queries on data files. Use it as a context manager to release its resources.

    `query` takes a sqlglot tree. A table name in the tree refers to the relation that is passed as
    the keyword argument of the same name.
    """

    name: str
    dialect: str
    writes_at_once: int
    """How many writes may run at the same time, each in its own thread."""
    streams_full_joins: bool
    """Whether a full join with a small relation keeps the row order of the large relation."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def scan(self, files: LiveFiles, *, positions: bool = False) -> Relation:
        """Return the live rows of files, with the columns in the order of the table.

        With `positions`, the columns FILE and ROW are added at the end.
        """

    def rows(self, data: object) -> Relation:
        """Return a user's data, which is Arrow data or a data frame of the engine, as a relation.

        The relation can be read many times. A stream can be read only once, so the engine stores
        its rows, on disk if there are many.
        """

    def query(self, sql: exp.Query, /, **relations: Relation) -> Relation:
        """Return the result of a query as a relation; the query runs when the relation is read.

        `ROW_NUMBER() OVER ()` gives every row a unique number, in no particular order.
        """

    def keep(self, relation: Relation) -> Relation:
        """Compute the rows now and store them, so that reading them again does not recompute them.

        Large results spill to disk.
        """

    def numbered(self, relation: Relation, name: str) -> Relation:
        """Add a column with a unique number for every row; the rows are computed once."""

    def ranked(self, relation: Relation, keys: Mapping[str, exp.Expr], bits: int) -> Relation:
        """Add a column for each key, with the rank of the key's value among all rows.

        A rank is below `2**bits`.

        Equal values have the same rank. Values that are close may also have the same rank. Nulls
        rank first.
        """

    def collect(self, relation: Relation) -> pa.Table:
        """Return all rows as an Arrow table. Use it only for small results."""

    def positions(self, relation: Relation) -> dict[int, RowSet]:
        """Return the set of row positions (ROW) for each position of a file (FILE)."""

    def stream(self, relation: Relation) -> pa.RecordBatchReader:
        """Return rows as Arrow batches, in bounded memory."""

    def write(self, relation: Relation, plan: WritePlan) -> list[AddFile]:
        """Write rows as Parquet files with statistics, and return an `add` action for each file.

        Readers see the files once a commit adds them. The relation has the columns of
        `plan.schema`, matched by name. Change data also has the column CHANGE_TYPE.
        """
