"""Read and parse a log, in this process or on Spark executors.

Spark is for logs that are too large for one process. The driver receives the same results in the
same order as if it had parsed the log itself, so the rows in the database are the same. deltasql
must be installed on the executors.
"""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from deltasql._core import FileList, parse_commit
from deltasql.engine.spark.errors import spark_errors
from deltasql.engine.spark.session import active_session
from deltasql.engine.spark.workers import map_in_arrow
from deltasql.exceptions import TxnLogEngineError, TxnLogError
from deltasql.mirror.log.read import read_commits, stream_state
from deltasql.mirror.log.read_checkpoint import count_row_groups, read_files
from deltasql.mirror.read_ahead import read_ahead
from deltasql.storage import open_storage
from deltasql.store.dialect import chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from deltasql._core import Commit
    from deltasql.config import StorageSettings
    from deltasql.migrate.importing.load_log import ParsedCommit
    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.log.read import StateStream
    from deltasql.mirror.log.read_checkpoint import Kind
    from deltasql.storage import FileInfo, Storage

    Task: TypeAlias = tuple[Any, ...]
    Work: TypeAlias = Callable[[Storage, Task], Iterable[bytes]]

_COMMITS_PER_TASK = 50
# The number of tasks in one Spark job. A job runs while the results of the previous job are loaded.
_WAVE = 32
_COMMITS = pa.schema(
    [
        ("version", pa.int64()),
        ("digest", pa.string()),
        ("rest", pa.binary()),
        ("adds", pa.binary()),
    ]
)


class LogSource(Protocol):
    """Reads the commits and states of one log."""

    def commits(self, first: int, last: int) -> Iterator[ParsedCommit]:
        """Yield the commits first..last."""

    def state(self, version: int) -> StateStream:
        """Return the state at a version, with its files in batches."""


@dataclass(frozen=True, slots=True)
class LocalLog:
    """A log that is read in this process."""

    storage: Storage
    listing: LogListing

    def commits(self, first: int, last: int) -> Iterator[ParsedCommit]:
        return read_commits(self.storage, self.listing, first, last)

    def state(self, version: int) -> StateStream:
        return stream_state(self.storage, version, listing=self.listing)


def open_log(
    storage: Storage, listing: LogListing, settings: StorageSettings, engine: object = None
) -> LogSource:
    """Open a log with an engine: None, 'auto', 'duckdb', 'spark' or a Spark session."""
    if engine in (None, "auto", "duckdb"):
        return LocalLog(storage, listing)
    if isinstance(engine, str) and engine != "spark":
        raise TxnLogEngineError(
            f"there is no engine called {engine!r}", engine=engine, help="Use 'duckdb' or 'spark'."
        )
    return SparkLog(None if engine == "spark" else engine, storage, listing, settings)


@dataclass(frozen=True, slots=True)
class SparkCommit:
    """A commit file that was parsed on an executor; `adds` has its added files as columns."""

    version: int
    file: FileInfo
    digest: str
    actions: Commit
    adds: FileList


class SparkLog:
    """A log that is parsed on Spark executors."""

    def __init__(
        self, spark: Any, storage: Storage, listing: LogListing, settings: StorageSettings
    ) -> None:
        self._spark = spark if spark is not None else active_session()
        self._storage, self._listing, self._settings = storage, listing, settings

    def commits(self, first: int, last: int) -> Iterator[SparkCommit]:
        """Yield the commits first..last."""
        files = dict(enumerate(self._listing.commits_from(first, last), start=first))
        named = [(version, file.name) for version, file in files.items()]
        for packed in self._run(_parse, [tuple(some) for some in chunks(named, _COMMITS_PER_TASK)]):
            for row in _unpacked(packed).to_pylist():
                version, file = row["version"], files[row["version"]]
                yield SparkCommit(
                    version,
                    file,
                    row["digest"],
                    parse_commit(row["rest"], version=version, path=file.name),
                    FileList.from_arrow(_unpacked(row["adds"])),
                )

    def state(self, version: int) -> StateStream:
        """Return the state at a version; executors read the files of the checkpoint."""
        return stream_state(self._storage, version, listing=self._listing, read=self._read)

    def _read(self, storage: Storage, name: str, kind: Kind) -> Iterator[pa.Table]:
        groups = range(count_row_groups(storage, name))
        tasks = [(name, kind, group) for group in groups]
        for packed in self._run(_convert, tasks):
            yield _unpacked(packed)

    def _run(self, work: Work, tasks: Sequence[Task]) -> Iterator[bytes]:
        """Yield the results of tasks in order. Spark stores the results of at most two jobs."""
        with spark_errors("parse the log"):
            for frame in read_ahead(self._waves(work, tasks)):
                try:
                    for row in frame.toLocalIterator():
                        if row["error"] is not None:
                            raise pickle.loads(bytes(row["error"]))
                        yield bytes(row["found"])
                finally:
                    frame.unpersist()

    def _waves(self, work: Work, tasks: Sequence[Task]) -> Iterator[Any]:
        location, settings = self._storage.location, self._settings
        for wave in chunks(tasks, _WAVE):

            def run(
                batches: Iterable[pa.RecordBatch], wave: Sequence[Task] = wave
            ) -> Iterator[pa.RecordBatch]:
                storage = open_storage(location, settings)
                for batch in batches:
                    for number in batch.column("id").to_pylist():
                        yield from _outcomes(work, storage, wave[number])

            numbers = self._spark.range(0, len(wave), 1, len(wave))
            frame = map_in_arrow(numbers, run, "found binary, error binary").persist()
            frame.count()  # toLocalIterator would run the tasks one after the other
            yield frame


def _outcomes(work: Work, storage: Storage, task: Task) -> Iterator[pa.RecordBatch]:
    """Yield the results of a task. An error is a result, too, so that the driver gets its type."""
    try:
        for found in work(storage, task):
            yield _outcome(found, None)
    except (TxnLogError, FileNotFoundError) as error:
        yield _outcome(None, pickle.dumps(error))


def _outcome(found: bytes | None, error: bytes | None) -> pa.RecordBatch:
    columns = {"found": pa.array([found], pa.binary()), "error": pa.array([error], pa.binary())}
    return pa.record_batch(columns)


def _parse(storage: Storage, task: Task) -> Iterator[bytes]:
    """Parse commits; yield their added files as columns, and the other actions as JSON."""
    rows = []
    for version, name in task:
        data = storage.read(name)
        adds, rest = parse_commit(data, version=version, path=name).split()
        rows.append(
            {
                "version": version,
                "digest": hashlib.sha256(data).hexdigest(),
                "rest": rest.to_ndjson(),
                "adds": _packed(pa.RecordBatchReader.from_stream(adds).read_all()),
            }
        )
    yield _packed(pa.Table.from_pylist(rows, _COMMITS))


def _convert(storage: Storage, task: Task) -> Iterator[bytes]:
    """Read one row group of a checkpoint into our columns."""
    name, kind, group = task
    for table in read_files(storage, name, kind, row_groups=[group]):
        yield _packed(table)


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _unpacked(packed: bytes) -> pa.Table:
    with pa.ipc.open_stream(packed) as reader:
        return reader.read_all()
