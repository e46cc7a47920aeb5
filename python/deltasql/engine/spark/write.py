"""Write rows with Spark's own Parquet writer, and tell the log what was written.

Files go into a new folder below the table's root: nothing there belongs to the table before a
commit names it, so tasks that are retried, run twice or die leave only what the intent of the
folder already tells. Statistics come from footers, so the rows are looked at once.
"""

from __future__ import annotations

import logging
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from deltasql import telemetry
from deltasql.engine.files.addresses import root_address
from deltasql.engine.parquet.file_shape import file_shape
from deltasql.engine.parquet.footer_stats import footer_statistics
from deltasql.engine.parquet.options import ParquetOptions, parse_size
from deltasql.engine.parquet.partitions import partition_folder
from deltasql.engine.spark.columns import has_stand_in, partition_of, stored_frame
from deltasql.engine.spark.s3 import bucket_options
from deltasql.engine.spark.schema import quoted, spark_path
from deltasql.engine.spark.session import spark_errors
from deltasql.engine.spark.session_copy import WRITING, copy_session
from deltasql.exceptions import TxnLogEngineError
from deltasql.model.actions import AddFile
from deltasql.model.schema.schema import column_mapping_mode
from deltasql.storage import open_storage, parse_location
from deltasql.storage.deletion import Deletable, delete_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from deltasql.config import StorageSettings
    from deltasql.engine.base import WritePlan
    from deltasql.engine.parquet.file_shape import FileShape
    from deltasql.storage import FileInfo, Storage

_log = logging.getLogger(__name__)
_MARKER = "_SUCCESS"
_BY_DRIVER = 3_000
_THREADS = 16
_THREADS_REMOTE = 64
_PER_TASK = 200
_FEWEST_ROWS = 1024
_WIDE = 20
_WIDTHS = {
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
    keys: Sequence[str] = (),
) -> list[AddFile]:
    """Write rows as files below the table's root and return them; empty ones are left out.

    `keys` are columns more than the table has: the rows of a file are sorted by them.
    """
    folder = f"{plan.folder}{uuid.uuid4().hex[:12]}"
    plan.intend([f"{folder}/"])
    plan.storage.make_root()  # executors would make it, and not wait for the disk
    stored = stored_frame(frame, plan, keys)
    shape = file_shape(plan)
    mode = column_mapping_mode(plan.configuration)
    partitions = [field.physical_name(mode) for field in _partition_fields(plan)]
    if keys:
        # Spark sorts by the folders, and leaves out a sort that does not begin with them.
        stored = stored.sortWithinPartitions(*map(quoted, partitions), *keys).drop(*keys)
    reaching = bucket_options(spark, plan.location, storage)
    options = {**_FIXED, **_parquet_options(plan, shape), **reaching}
    target = f"{spark_path(spark, root_address(plan.location))}/{folder}"
    with (
        spark_errors(f"write to {plan.location}"),
        closing(copy_session(spark, WRITING)) as copy,
    ):
        writer = copy.bring(stored).write.mode("error").options(**options)
        (writer.partitionBy(*partitions) if partitions else writer).parquet(target)
    found, rest = _listed(plan, folder)
    files = [_Written.of(info, folder, plan) for info in found]
    counted = _statistics(spark, [file.name for file in files], plan, shape, storage)
    empty = {name for name, each in counted.items() if not each.rows}
    own = Deletable(plan.storage, partition_columns=None, engine_folders=[f"{folder}/"])
    delete_data(plan.storage, [*rest, *empty], own)
    written = [file for file in files if file.name not in empty]
    if written:
        names = [file.name for file in written]
        plan.intend(names)
        # Spark does not wait for the disk; the commit that names these files does.
        plan.storage.flush(names)
    return [file.add(counted[file.name].stats, plan) for file in written]


def wanted_files(plan: WritePlan, size: int | None) -> int | None:
    """Return how many files there should be where files are only put together; None is any.

    Rows that change keep their parts: fewer of them would leave executors without work.
    """
    if plan.data_change or size is None:
        return None
    return max(1, round(size / ParquetOptions.of(plan, file_shape(plan)).target_file_size))


_FIXED = {
    # Proves that the job is complete, and that this process sees what executors wrote.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
    # The other algorithm may leave files of an attempt that failed.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
}


def _partition_fields(plan: WritePlan) -> list[Any]:
    return [plan.schema.find(name) for name in plan.partition_columns]


def _parquet_options(plan: WritePlan, shape: FileShape) -> dict[str, str]:
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
    """Return how many rows a file may have where a size was asked for, by the widths of types."""
    wanted = plan.options.target_file_size or parse_size(
        plan.configuration.get("delta.targetFileSize")
    )
    if wanted is None or not plan.data_change:
        return None
    width = sum(_WIDTHS.get(str(field.type), _WIDE) for field in plan.schema.fields)
    return max(_FEWEST_ROWS, wanted // max(1, width))


def _listed(plan: WritePlan, folder: str) -> tuple[list[FileInfo], list[str]]:
    """List what a job wrote: the data files, and what is beside them."""
    found, rest = [], []
    for info in plan.storage.list(folder):
        below = info.name[len(folder) + 1 :]
        if _is_beside(below):
            rest.append(info.name)
        else:
            found.append(info)
    if f"{folder}/{_MARKER}" not in rest:
        raise TxnLogEngineError(
            f"Spark wrote its files where this process does not find them: {plan.location}",
            engine="spark",
            help="The driver, the executors and this process must see the same place: "
            "use a shared file system or an object store for the table's location.",
        )
    return found, rest


def _is_beside(name: str) -> bool:
    """Tell whether a file is a committer's own: its folders have names that no partition has.

    An attempt that another one has overtaken may still write while the job is committed.

    >>> [_is_beside(name) for name in ("_SUCCESS", "__magic_job-1/a.parquet", "_p=1/a.parquet")]
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
        """Find its partition values, and give its folder the name that they have in Delta."""
        *folders, last = info.name[len(folder) + 1 :].split("/")
        values = partition_of(folders, plan)
        name = info.name
        if any(has_stand_in(each) for each in folders):
            # A task gives its files of all partitions one name, and two values may share a folder.
            own = last.replace("part-", f"part-{uuid.uuid4().hex[:8]}-", 1)
            name = f"{folder}/{partition_folder(values)}{own}"
            plan.storage.rename(info.name, name, flush_folder=False)
        return cls(name, info.size, info.modified_ms, values)

    def add(self, stats: str, plan: WritePlan) -> AddFile:
        return AddFile(
            path=quote(self.name, safe="/=-_.~!$&'()*+,;@"),
            partition_values=self.values,
            size=self.size,
            modification_time=self.modified_ms,
            data_change=plan.data_change,
            stats=None if plan.folder else stats,
        )


@dataclass(frozen=True, slots=True)
class _Counted:
    rows: int
    stats: str


def _statistics(
    spark: SparkSession,
    names: list[str],
    plan: WritePlan,
    shape: FileShape,
    settings_: StorageSettings,
) -> dict[str, _Counted]:
    tight = plan.configuration.get("delta.enableDeletionVectors") == "true"
    if len(names) > _BY_DRIVER:
        try:
            return _on_executors(spark, names, plan.location, shape, settings_, tight)
        except TxnLogEngineError:  # this package need not be there
            telemetry.log(_log, logging.INFO, "footers read by the driver", files=len(names))
    local = parse_location(plan.location).is_local
    with ThreadPoolExecutor(_THREADS if local else _THREADS_REMOTE) as pool:
        counted = pool.map(lambda name: _counted(plan.storage, name, shape, tight), names)
        return dict(zip(names, counted, strict=True))


def _on_executors(
    spark: SparkSession,
    names: list[str],
    location: str,
    shape: FileShape,
    settings_: StorageSettings,
    tight: bool,
) -> dict[str, _Counted]:
    import pyarrow as pa

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = open_storage(location, settings_)
        for batch in batches:
            here = batch.column("name").to_pylist()
            counted = [_counted(storage, name, shape, tight) for name in here]
            yield pa.record_batch(
                {
                    "name": pa.array(here, pa.string()),
                    "rows": pa.array([each.rows for each in counted], pa.int64()),
                    "stats": pa.array([each.stats for each in counted], pa.string()),
                }
            )

    frame = spark.createDataFrame(pa.table({"name": pa.array(names, pa.string())}))
    tasks = frame.repartition(len(names) // _PER_TASK + 1)
    with spark_errors("read the footers of new files"):
        rows = tasks.mapInArrow(read, "name string, rows long, stats string").toArrow().to_pylist()
    return {row["name"]: _Counted(row["rows"], row["stats"]) for row in rows}


def _counted(storage: Storage, name: str, shape: FileShape, tight: bool) -> _Counted:
    import pyarrow.parquet as pq

    with storage.open_input(name) as file:
        footer = pq.read_metadata(file)
    return _Counted(footer.num_rows, footer_statistics(footer, shape).to_json(tight=tight))
