"""Write rows with Spark's own Parquet writer, and return the new files as actions.

Files are written to a new folder below the table's root. They belong to the table only once a
commit adds them. An intent for the folder also covers the files of tasks that fail, are retried or
run twice. Statistics are read from the footers, so that the rows are computed only once.
"""

from __future__ import annotations

import logging
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltasql import telemetry
from deltasql.engine.parquet.file_shape import ParquetOptions, file_shape, parse_size
from deltasql.engine.parquet.footer_stats import FooterStats, read_footer
from deltasql.engine.parquet.writer import add_action, has_tight_bounds, partition_folder
from deltasql.engine.spark.errors import spark_errors
from deltasql.engine.spark.file_columns import has_encoded_value, partition_of, stored_frame
from deltasql.engine.spark.s3 import bucket_options
from deltasql.engine.spark.schema import quoted, spark_path
from deltasql.engine.spark.session_copy import WRITE_SETTINGS, copy_session
from deltasql.engine.spark.workers import map_in_arrow
from deltasql.exceptions import TxnLogEngineError, UnsupportedFeatureError
from deltasql.model.features.iceberg_compat import enabled_compat
from deltasql.model.schema.column_mapping import has_nested_ids
from deltasql.model.schema.schema import column_mapping_mode
from deltasql.storage import open_storage, parse_location
from deltasql.storage.deletion import Deletable, delete_data
from deltasql.storage.location import root_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from deltasql.config import StorageSettings
    from deltasql.engine.base import WritePlan
    from deltasql.engine.parquet.file_shape import FileShape
    from deltasql.model.actions import AddFile
    from deltasql.storage import FileInfo

_log = logging.getLogger(__name__)
_MARKER = "_SUCCESS"
_BY_DRIVER = 3_000  # files whose footers the driver reads itself
_THREADS = 16
_THREADS_REMOTE = 64
_FILES_PER_TASK = 200
_FEWEST_ROWS = 1024
_DEFAULT_WIDTH = 20
_WIDTHS = {  # bytes of a value by type, to estimate how many rows fit in a file
    "byte": 1,
    "boolean": 1,
    "short": 2,
    "integer": 4,
    "float": 4,
    "date": 4,
    "long": 8,
    "double": 8,
    "timestamp": 8,
    "timestamp_ntz": 8,
}


def write_files(
    spark: SparkSession,
    frame: DataFrame,
    plan: WritePlan,
    storage: StorageSettings,
    sort_keys: Sequence[str] = (),
) -> list[AddFile]:
    """Write rows to files below the table's root and return the files that are not empty.

    `sort_keys` are additional columns by which the rows of each file are sorted.
    """
    if plan.materializes_partitions and plan.partition_columns:
        raise UnsupportedFeatureError(
            f"the files of the table at {plan.location} must contain the partition columns, "
            "which Spark does not write to files",
            features=("materializePartitionColumns",),
            help="Write this table with DuckDB: engine='duckdb'.",
        )
    if has_nested_ids(plan.schema) and not plan.folder:
        raise UnsupportedFeatureError(
            f"the files of the table at {plan.location} must contain the field ids of array "
            "elements and map entries, which Spark does not write",
            features=tuple(enabled_compat(plan.configuration)),
            help="Write this table with DuckDB: engine='duckdb'.",
        )
    folder = f"{plan.folder}{uuid.uuid4().hex[:12]}"
    plan.intend([f"{folder}/"])
    plan.storage.make_root()  # executors would create it without a sync to disk
    stored = stored_frame(frame, plan, sort_keys)
    shape = file_shape(plan)
    mode = column_mapping_mode(plan.configuration)
    partitions = [field.physical_name(mode) for field in _partition_fields(plan)]
    if sort_keys:
        # Start with the partition columns: Spark sorts by them before it writes, and would drop a
        # sort that does not start with them.
        stored = stored.sortWithinPartitions(*map(quoted, partitions), *sort_keys).drop(*sort_keys)
    bucket = bucket_options(spark, plan.location, storage)
    options = {**_FIXED, **parquet_options(plan, shape), **bucket}
    target = f"{spark_path(spark, root_address(plan.location))}/{folder}"
    with (
        spark_errors(f"write to {plan.location}"),
        closing(copy_session(spark, WRITE_SETTINGS)) as copy,
    ):
        writer = copy.bring(stored).write.mode("error").options(**options)
        (writer.partitionBy(*partitions) if partitions else writer).parquet(target)
    found, others = _list_folder(plan, folder)
    files = [_Written.of(info, folder, plan) for info in found]
    read = _read_statistics(spark, [file.name for file in files], plan, shape, storage)
    empty = {name for name, each in read.items() if not each.rows}
    own = Deletable(plan.storage, partition_columns=None, engine_folders=[f"{folder}/"])
    delete_data(plan.storage, [*others, *empty], own)
    written = [file for file in files if file.name not in empty]
    if written:
        names = [file.name for file in written]
        plan.intend(names)
        # Spark does not sync files to disk, so do it here, before the commit.
        plan.storage.flush(names)
    return [file.add(read[file.name].stats, plan) for file in written]


def target_file_count(plan: WritePlan, size: int | None) -> int | None:
    """Return the number of files that a compaction should write.

    Return None for other writes: they keep the partitions of the DataFrame, because with fewer
    partitions executors would be idle.
    """
    if plan.data_change or size is None:
        return None
    return max(1, round(size / ParquetOptions.of(plan, file_shape(plan)).target_file_size))


_FIXED = {
    # If this process finds the _SUCCESS file, the job is complete and its files are visible here.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
    # With version 2, files of a failed attempt could remain in the folder.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
}


def _partition_fields(plan: WritePlan) -> list[Any]:
    return [plan.schema.find(name) for name in plan.partition_columns]


def parquet_options(plan: WritePlan, shape: FileShape) -> dict[str, str]:
    """Return the options of Spark's Parquet writer for new files of a table."""
    options = plan.options
    codec = str(ParquetOptions.of(plan, shape).arguments["compression"])
    found: dict[str, Any] = {
        "compression": "lz4_raw" if codec == "lz4" else codec,
        "parquet.compression.codec.zstd.level": options.compression_level
        if codec == "zstd"
        else None,
        "maxRecordsPerFile": _most_rows(plan),
        "parquet.block.row.count.limit": options.max_row_group_size,
        "parquet.page.size": options.data_page_size,
        "parquet.page.row.count.limit": options.data_page_rows,
        "parquet.dictionary.page.size": options.dictionary_page_size,
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def _most_rows(plan: WritePlan) -> int | None:
    """Return the maximum number of rows of a file, estimated from the column types.

    Return None if no target size is set, or if the write is a compaction.
    """
    size = plan.options.target_file_size or parse_size(
        plan.configuration.get("delta.targetFileSize")
    )
    if size is None or not plan.data_change:
        return None
    width = sum(_WIDTHS.get(str(field.type), _DEFAULT_WIDTH) for field in plan.schema.fields)
    return max(_FEWEST_ROWS, size // max(1, width))


def _list_folder(plan: WritePlan, folder: str) -> tuple[list[FileInfo], list[str]]:
    """Return the data files that a job wrote, and the names of the committer's own files."""
    found, others = [], []
    for info in plan.storage.list(folder):
        below = info.name[len(folder) + 1 :]
        if _is_committer_file(below):
            others.append(info.name)
        else:
            found.append(info)
    if f"{folder}/{_MARKER}" not in others:
        raise TxnLogEngineError(
            f"this process does not see the files that Spark wrote to {plan.location}",
            engine="spark",
            help="The driver, the executors and this process must access the same storage: "
            "use a shared file system or an object store for the table's location.",
        )
    return found, others


def _is_committer_file(name: str) -> bool:
    """Return whether a file belongs to Hadoop's output committer, judged by its name.

    Data files and partition folders never have such names. Speculative attempts may still write
    committer files while the job commits.

    >>> names = ["_SUCCESS", "__magic_job-1/a.parquet", "_p=1/a.parquet"]
    >>> [_is_committer_file(name) for name in names]
    [True, True, False]
    """
    *folders, last = name.split("/")
    hidden = ("_", ".")
    return last.startswith(hidden) or any(
        folder.startswith(hidden) and "=" not in folder for folder in folders
    )


@dataclass(frozen=True, slots=True)
class _Written:
    """A file that a job wrote."""

    name: str
    size: int
    modified_ms: int
    values: dict[str, str | None]

    @classmethod
    def of(cls, info: FileInfo, folder: str, plan: WritePlan) -> _Written:
        """Return a file with its partition values; move it if its folder name is encoded."""
        *folders, last = info.name[len(folder) + 1 :].split("/")
        values = partition_of(folders, plan)
        name = info.name
        if any(has_encoded_value(each) for each in folders):
            # A Spark task uses the same file name in every partition. If two partition values map
            # to the same folder, the files would collide, so add a random part to the name.
            own = last.replace("part-", f"part-{uuid.uuid4().hex[:8]}-", 1)
            name = f"{folder}/{partition_folder(values)}{own}"
            plan.storage.rename(info.name, name, flush_folder=False)
        return cls(name, info.size, info.modified_ms, values)

    def add(self, stats: str, plan: WritePlan) -> AddFile:
        return add_action(
            plan,
            self.name,
            self.values,
            size=self.size,
            modified_ms=self.modified_ms,
            stats=None if plan.folder else stats,
        )


def _read_statistics(
    spark: SparkSession,
    names: list[str],
    plan: WritePlan,
    shape: FileShape,
    settings: StorageSettings,
) -> dict[str, FooterStats]:
    tight = has_tight_bounds(plan)
    if len(names) > _BY_DRIVER:
        try:
            return _read_on_executors(spark, names, plan.location, shape, settings, tight)
        except TxnLogEngineError:  # executors may not have this package
            telemetry.log(_log, logging.INFO, "footers read by the driver", files=len(names))
    local = parse_location(plan.location).is_local
    with ThreadPoolExecutor(_THREADS if local else _THREADS_REMOTE) as pool:
        read = pool.map(lambda name: read_footer(plan.storage, name, shape, tight), names)
        return dict(zip(names, read, strict=True))


def _read_on_executors(
    spark: SparkSession,
    names: list[str],
    location: str,
    shape: FileShape,
    settings: StorageSettings,
    tight: bool,
) -> dict[str, FooterStats]:
    import pyarrow as pa

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = open_storage(location, settings)
        for batch in batches:
            here = batch.column("name").to_pylist()
            found = [read_footer(storage, name, shape, tight) for name in here]
            yield pa.record_batch(
                {
                    "name": pa.array(here, pa.string()),
                    "rows": pa.array([each.rows for each in found], pa.int64()),
                    "stats": pa.array([each.stats for each in found], pa.string()),
                }
            )

    frame = spark.createDataFrame(pa.table({"name": pa.array(names, pa.string())}))
    tasks = frame.repartition(len(names) // _FILES_PER_TASK + 1)
    with spark_errors("read the footers of new files"):
        read_rows = map_in_arrow(tasks, read, "name string, rows long, stats string")
        rows = read_rows.toArrow().to_pylist()
    return {row["name"]: FooterStats(row["rows"], row["stats"]) for row in rows}
