"""The engine that runs operations on Spark: executors process rows, the driver file names."""

from __future__ import annotations

import logging
import math
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from sqlglot import exp

from deltasql import telemetry
from deltasql._core import RowSet
from deltasql.engine.base import FILE, ROW
from deltasql.engine.inputs import batches, is_spark_frame
from deltasql.engine.parquet.arrow_casts import cast_rows, has_void
from deltasql.engine.parquet.writer import write_batches
from deltasql.engine.spark.errors import is_result_too_large, spark_errors
from deltasql.engine.spark.ranks import range_bounds, with_ranks
from deltasql.engine.spark.s3 import bucket_options
from deltasql.engine.spark.scan import scan
from deltasql.engine.spark.schema import quoted, spark_path, spark_schema
from deltasql.engine.spark.session import (
    active_session,
    is_connect,
    is_same_session,
    require_pyspark,
)
from deltasql.engine.spark.session_copy import QUERY_SETTINGS, SessionCopy, copy_session
from deltasql.engine.spark.sql import spark_query
from deltasql.engine.spark.workers import map_in_arrow
from deltasql.engine.spark.write import target_file_count, write_files
from deltasql.exceptions import TxnLogEngineError
from deltasql.model.counts import size_text
from deltasql.model.schema.convert import schema_from_any, schema_to_arrow
from deltasql.storage.location import root_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from deltasql.config import Config
    from deltasql.engine.base import Relation, WritePlan
    from deltasql.engine.files.live_files import LiveFiles
    from deltasql.model.actions import AddFile
    from deltasql.model.schema.schema import DataType

_log = logging.getLogger(__name__)
_LOCAL_BYTES = 1024**3
_FEW_ROWS = 1_000
_FEW_WIDE_ROWS = 10  # instead of _FEW_ROWS if a column has a type in _WIDE, with large values
_WIDE = ("binary", "array", "map", "struct", "variant")
_SMALL_BYTES = 64 * 1024**2
_BITS = 32_768  # rows per bitmap in Spark's bitmap functions


@dataclass(slots=True)
class SparkRelation:
    """Rows as a Spark DataFrame."""

    frame: DataFrame
    """A DataFrame of the user's session, which computes the rows."""
    columns: tuple[str, ...] = field(init=False)
    view: str | None = None
    """The name of the relation's view in the session copy; None before the first query uses it."""
    size: int | None = None
    """Bytes of the files that the rows come from, if known."""
    is_small: bool = False
    """Whether the rows are already computed and small enough to broadcast."""
    sorted_ranges: Callable[[int], tuple[DataFrame, list[str]]] | None = None
    """For a sorted query: a function of the number of ranges to divide the rows into.

    It returns the DataFrame, and the columns by which each range has to be sorted.
    """

    def __post_init__(self) -> None:
        self.columns = tuple(self.frame.columns)


class SparkEngine:
    """Runs queries on a Spark session, classic or Connect. It needs no jar."""

    name = "spark"
    dialect = "spark"
    streams_full_joins = False  # Spark shuffles both sides, which mixes the rows of all files
    writes_at_once = 8  # a write of a compaction is often a single task, which uses one core

    def __init__(self, config: Config, session: SparkSession | None = None) -> None:
        require_pyspark()
        self._config = config
        self.spark: SparkSession = active_session() if session is None else session
        self._connect = is_connect(self.spark)
        self._copy: SessionCopy | None = None
        self._copy_lock = threading.Lock()  # writes may run in several threads
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cleanup.close()

    def scan(self, files: LiveFiles, *, positions: bool = False) -> SparkRelation:
        """Return the live rows of files, read with Spark's own Parquet scan."""
        with spark_errors(f"read {files.location}"):
            size = sum(file.size or 0 for file in files.files)
            return SparkRelation(scan(self.spark, files, positions=positions), size=size)

    def delta_rows(self, location: str, version: int) -> SparkRelation | None:
        """Return a published table as delta-spark reads it.

        Return None if delta-spark is not installed in the session.
        """
        from pyspark.errors import AnalysisException

        options = bucket_options(self.spark, location, self._config.storage)
        reader = self.spark.read.format("delta").options(versionAsOf=version, **options)
        try:
            frame = reader.load(spark_path(self.spark, root_address(location)))
        except AnalysisException as error:
            if error.getCondition() != "DATA_SOURCE_NOT_FOUND":
                raise TxnLogEngineError(
                    f"delta-spark could not read {location}: {error}", engine="spark"
                ) from error
            return None
        return SparkRelation(frame)

    def rows(self, data: object) -> SparkRelation:
        """Return a DataFrame of this session, or Arrow data, as a relation.

        Arrow data is read into the driver's memory.
        """
        if is_spark_frame(data):
            frame: Any = data
            if not is_same_session(frame.sparkSession, self.spark):
                raise TxnLogEngineError(
                    "this DataFrame belongs to another Spark session",
                    engine="spark",
                    help="Use one session for all DataFrames of a transaction.",
                )
            return SparkRelation(frame)
        import pyarrow as pa

        table = _read_into_memory(batches(data))
        delta = schema_from_any(table.schema)
        plain = cast_rows(table, schema_to_arrow(delta))
        with spark_errors("import the rows"):
            try:
                frame = self.spark.createDataFrame(plain, spark_schema(delta))
            except pa.ArrowException as error:  # pyspark cannot cast lists with nulls
                raise TxnLogEngineError(
                    f"pyspark cannot import these Arrow rows: {error}",
                    engine="spark",
                    help="Pass a Spark DataFrame.",
                ) from error
            size = int(plain.nbytes)
            return SparkRelation(frame, size=size, is_small=size <= _SMALL_BYTES)

    def query(self, sql: exp.Query, /, **relations: Relation) -> SparkRelation:
        """Return the result of a query as a relation.

        The result does not depend on the settings of the user's session.
        """
        used = {name: cast("SparkRelation", each) for name, each in relations.items()}

        def type_of(relation: str, column: str) -> DataType | None:
            found = schema_from_any(used[relation].frame.schema).find(column)
            return None if found is None else found.type

        small = {name for name, each in used.items() if each.is_small}
        with spark_errors("analyse a query"):
            text = spark_query(sql, lambda name: self._view(used[name]), used, type_of, small)
            found, view = self._analysis_copy.sql(text)
            sizes = [each.size for each in used.values()]
            known = None if None in sizes else sum(size or 0 for size in sizes)
            ranges = None
            if isinstance(sql, exp.Select) and sql.args.get("order") is not None:
                ranges = partial(self._sorted_ranges, sql, relations)
            return SparkRelation(found, view=view, size=known, sorted_ranges=ranges)

    def _sorted_ranges(
        self, sql: exp.Select, relations: Mapping[str, Relation], parts: int
    ) -> tuple[DataFrame, list[str]]:
        """Return the rows of a sorted query in `parts` ranges, and the columns to sort a range by.

        The ranges replace the sort of the query, because Spark would drop that sort if the result
        were coalesced.
        """
        order = [
            each.this if isinstance(each, exp.Ordered) else each
            for each in sql.args["order"].expressions
        ]
        names = [f"__deltasql_key_{number}" for number in range(len(order))]
        unsorted = sql.select(
            *(exp.alias_(key.copy(), name) for key, name in zip(order, names, strict=True))
        )
        unsorted.set("order", None)
        frame = self.query(unsorted, **relations).frame
        return frame.repartitionByRange(parts, *names), names

    @property
    def _analysis_copy(self) -> SessionCopy:
        """The copy of the user's session that analyses our queries."""
        with self._copy_lock:
            if self._copy is None:
                self._copy = copy_session(self.spark, QUERY_SETTINGS)
                self._cleanup.callback(self._copy.close)
            return self._copy

    def _view(self, relation: SparkRelation) -> str:
        if relation.view is None:
            relation.view = self._analysis_copy.view(relation.frame)
        return relation.view

    def keep(self, relation: Relation) -> SparkRelation:
        """Compute the rows now and store them on the executors.

        Every read returns the same rows, even if they contain random values. A read fails if an
        executor with stored rows was lost.
        """
        rows = cast("SparkRelation", relation)
        with spark_errors("compute rows"):
            kept = rows.frame.localCheckpoint(eager=True)
        is_small = False
        if not self._connect:
            self._cleanup.callback(_release, kept)
            is_small = _checkpointed_bytes(kept) <= _SMALL_BYTES
        return SparkRelation(kept, size=rows.size, is_small=is_small)

    def collect(self, relation: Relation) -> pa.Table:
        """Return all rows as an Arrow table. Use it only for small results."""
        frame = cast("SparkRelation", relation).frame
        schema = _arrow_schema(frame)
        if any(has_void(field.type) for field in schema):
            return self.stream(relation).read_all()  # pyspark's own casts fail for void in lists
        with spark_errors("compute rows"):
            table = frame.toArrow()
        return table.cast(schema)

    def positions(self, relation: Relation) -> dict[int, RowSet]:
        """Return the positions of rows by file; executors send a bitmap for each 32,768 rows."""
        import pyarrow as pa
        from pyspark.sql import functions as F

        row = F.col(quoted(ROW)) + 1  # these functions count from 1
        bucket, bits = F.bitmap_bucket_number(row), F.bitmap_bit_position(row)
        with spark_errors("compute the positions of rows"):
            by_bucket = cast("SparkRelation", relation).frame.groupBy(
                quoted(FILE), bucket.alias("b")
            )
            found = by_bucket.agg(F.bitmap_construct_agg(bits).alias("bits"))
            first = ((F.col("b") - 1) * _BITS).alias("first")
            table = found.select(quoted(FILE), first, "bits").toArrow()
        types = [(FILE, pa.int64()), ("first", pa.int64()), ("bits", pa.binary())]
        return RowSet.by_file(table.cast(pa.schema(types)))

    def stream(self, relation: Relation) -> pa.RecordBatchReader:
        """Return rows as Arrow batches, with one partition in memory at a time."""
        import pyarrow as pa

        def pack(given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            """Serialize each batch to one value, because sending single rows would be slow."""
            # The function is nested, so that executors do not need the package deltasql.
            import pyarrow as pa

            for batch in given:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, batch.schema) as writer:
                    writer.write_batch(batch)
                packed = pa.array([sink.getvalue().to_pybytes()], pa.binary())
                yield pa.record_batch({"batch": packed})

        frame = cast("SparkRelation", relation).frame
        with spark_errors("compute rows"):
            schema = _arrow_schema(frame)
            packed = map_in_arrow(frame, pack, "batch binary").toLocalIterator()

        def unpacked() -> Iterator[pa.RecordBatch]:
            with spark_errors("compute rows"):
                for row in packed:
                    with pa.ipc.open_stream(bytes(row[0])) as reader:
                        for batch in reader:
                            rows = pa.Table.from_batches([batch])
                            yield from cast_rows(rows, schema).to_batches()

        return pa.RecordBatchReader.from_batches(schema, unpacked())

    def numbered(self, relation: Relation, name: str) -> Relation:
        """Add a column with a unique number for every row; the rows are computed once."""
        number = exp.Window(this=exp.RowNumber())
        return self.keep(self._with_columns(relation, {name: number}))

    def ranked(self, relation: Relation, keys: Mapping[str, exp.Expr], bits: int) -> Relation:
        """Add a column with the rank of each key, estimated from a sample of the rows."""
        keyed = self._with_columns(relation, keys)
        frame = keyed.frame
        with spark_errors("compute ranks"):
            bounds = self.keep(SparkRelation(range_bounds(frame, list(keys), bits)))
            ranks = with_ranks(frame, bounds.frame, list(keys), bits)
            return SparkRelation(ranks, size=keyed.size)

    def _with_columns(self, relation: Relation, added: Mapping[str, exp.Expr]) -> SparkRelation:
        """Add columns, which are computed by expressions."""
        columns = [exp.column(exp.to_identifier(each, quoted=True)) for each in relation.columns]
        named = [exp.alias_(each.copy(), name, quoted=True) for name, each in added.items()]
        return self.query(exp.select(*columns, *named).from_("r"), r=relation)

    def write(self, relation: Relation, plan: WritePlan) -> list[AddFile]:
        """Write rows as Parquet files with statistics.

        If there are only a few rows, the driver writes them itself, because a Spark job that writes
        files takes several times as long as a job that returns rows.
        """
        if self._are_few(relation):
            try:
                return write_batches(self.collect(relation).to_reader(), plan)
            except TxnLogEngineError as error:
                if not is_result_too_large(error.__cause__):  # other errors recur on executors
                    raise
                telemetry.log(_log, logging.INFO, "rows written by executors", reason=str(error))
        with (
            telemetry.span("write", location=plan.location),
            spark_errors(f"write to {plan.location}"),
        ):
            own = cast("SparkRelation", relation)
            files = target_file_count(plan, own.size)
            frame, keys = own.frame, list[str]()
            if files is not None and own.sorted_ranges is not None:
                frame, keys = own.sorted_ranges(files)
            elif files is not None:
                frame = own.frame.coalesce(files)
            return write_files(self.spark, frame, plan, self._config.storage, keys)

    def _are_few(self, relation: Relation) -> bool:
        """Return whether Spark's plan guarantees that there are only a few rows.

        Return False if the user repartitioned the DataFrame: executors then write the rows, so that
        the partitions determine the files.
        """
        if self._connect:
            return False
        frame: Any = cast("SparkRelation", relation).frame
        plan = frame._jdf.queryExecution().analyzed()
        most = plan.maxRows()
        wide = any(field.dataType.typeName() in _WIDE for field in frame.schema.fields)
        if not most.isDefined() or int(most.get()) > (_FEW_WIDE_ROWS if wide else _FEW_ROWS):
            return False
        patterns = frame._sc._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
        repartitions = (patterns.REPARTITION_OPERATION(), patterns.REBALANCE_PARTITIONS())
        return not any(plan.containsPattern(each) for each in repartitions)


def _read_into_memory(reader: pa.RecordBatchReader) -> pa.Table:
    """Read a stream into memory, and raise if it is too large for the driver."""
    import pyarrow as pa

    found, size = [], 0
    for batch in reader:
        found.append(batch)
        size += batch.nbytes
        if size > _LOCAL_BYTES:
            raise TxnLogEngineError(
                f"the rows have more than {size_text(_LOCAL_BYTES)}, which is the limit for rows "
                "that pass through Spark's driver",
                engine="spark",
                help="Let Spark read the rows from their source, and pass a DataFrame.",
            )
    return pa.Table.from_batches(found, reader.schema)


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the Arrow schema for Delta: in Spark's, timestamps have the session's time zone."""
    return schema_to_arrow(schema_from_any(frame.schema))


def _release(frame: Any) -> None:
    """Free the memory and disk of checkpointed rows.

    `RDD.unpersist` does the same, but logs a warning that the rows cannot be computed again. The
    warning would be misleading, because the rows are not read any more.
    """
    rows = _checkpointed_rdd(frame)
    if rows is not None:
        rows.context().unpersistRDD(rows.id(), False)


def _checkpointed_bytes(frame: Any) -> float:
    """Return the memory and disk that checkpointed rows use; Spark's plan only has an estimate.

    Spark counts stored partitions in the background. While some are not counted, the size is
    unknown and therefore infinite.
    """
    rows = _checkpointed_rdd(frame)
    if rows is not None:
        for info in rows.context().getRDDStorageInfo():
            if info.id() == rows.id() and info.numCachedPartitions() == info.numPartitions():
                return int(info.memSize() + info.diskSize())
    return math.inf


def _checkpointed_rdd(frame: Any) -> Any:
    plan = frame._jdf.queryExecution().logical()
    return plan.rdd() if hasattr(plan, "rdd") else None
