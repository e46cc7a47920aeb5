"""Read the live files of a table with Spark's own Parquet scan.

The schema and the partition values come from the log, never from files or folders. Exactly the
files of the snapshot are read: if Spark would skip a file because of its name, an error is raised.
The driver has the list of files, and executors read the files.

Classic Spark gets the files from our own `FileIndex`. It lists no folders, and filters that the
user applies to the DataFrame later still skip files. The index needs py4j and compiles a class in
the JVM. Where this is not possible, as in Spark Connect, Spark gets the file names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from deltasql.engine.base import FILE, ROW
from deltasql.engine.spark.file_index import (
    IndexedScan,
    has_index,
    indexed_frame,
    partition_name,
    unreadable,
)
from deltasql.engine.spark.s3 import files_options
from deltasql.engine.spark.schema import quoted, spark_paths, spark_schema, spark_type
from deltasql.engine.spark.session import is_connect, require_pyspark
from deltasql.engine.spark.void import stored_columns, with_void
from deltasql.exceptions import TxnLogEngineError
from deltasql.model.schema.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    has_void,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from deltasql.engine.files.live_files import LiveFile, LiveFiles

    _Group: TypeAlias = list[tuple[int, LiveFile]]
    Prune: TypeAlias = Callable[[str], pa.ChunkedArray]

_GLOB = frozenset("[]{}*?\\")
_LISTED_BY_DRIVER = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_BROADCAST_ROWS = 5_000_000
_PATH = "__deltasql_path"
_OPTIONS = {
    "mergeSchema": "false",
    # Read dates and timestamps in the Gregorian calendar, whatever the session's rebase mode is.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    # Fail for a missing or damaged file, even if the session ignores such files.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}


@dataclass(frozen=True, slots=True)
class _ScanSettings:
    """The arguments of `scan`, which apply to all groups of files."""

    spark: SparkSession
    files: LiveFiles
    options: Mapping[str, str]
    positions: bool
    prune: Prune | None
    required: bool


def scan(
    spark: SparkSession,
    files: LiveFiles,
    *,
    positions: bool = False,
    prune: Prune | None = None,
    required: bool = False,
) -> DataFrame:
    """Return the rows of these files, with the columns in the order of the table.

    With `positions`, the columns FILE and ROW are added at the end. `prune` returns the paths of
    files that may match a condition; classic Spark calls it for filters that the user applies later
    to the DataFrame. With `required`, the schema in classic Spark says which columns are not
    nullable.
    """
    require_pyspark()
    groups = _groups(files)
    if not groups:
        also = [StructField(name, "long") for name in (FILE, ROW) if positions]
        whole = StructType((*files.schema.fields, *also))
        return spark.createDataFrame([], spark_schema(whole, required=required))
    options = {**_OPTIONS, **files_options(spark, files)}
    settings = _ScanSettings(spark, files, options, positions, prune, required)
    is_indexed = not is_connect(spark) and _sizes_are_known(files) and has_index(spark)
    read = _read_indexed if is_indexed else _read_by_name
    return _union(read(settings, schema, numbers) for schema, numbers in groups)


def _groups(files: LiveFiles) -> list[tuple[StructType, pa.Array]]:
    """Group files that are read in the same way; return the schema and the positions of each group.

    Files with a deletion vector and files without one are in different groups.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    vectors = files.have_vectors
    found = [pc.indices_nonzero(each).cast(pa.int64()) for each in (pc.invert(vectors), vectors)]
    groups = [each for each in found if len(each)]
    if files.column_mapping_mode != "id":
        return [(files.schema, each) for each in groups]
    positions = {id(file): number for number, file in enumerate(files.files)}
    return [
        (schema, pa.array([positions[id(file)] for file in group], pa.int64()))
        for numbers in groups
        for schema, group in files.by_names([files.files[n] for n in numbers.to_pylist()])
    ]


def _sizes_are_known(files: LiveFiles) -> bool:
    known = {"size", "modification_time"} <= set(files.listed.column_names)
    return known and files.listed["size"].null_count == 0


def _read_indexed(settings: _ScanSettings, schema: StructType, numbers: pa.Array) -> DataFrame:
    """Read a group through our own index, which provides positions and partition values."""
    from pyspark.sql import functions as F

    files, positions = settings.files, settings.positions
    mode, vectors = files.column_mapping_mode, bool(files.have_vectors[numbers[0].as_py()].as_py())
    partitions = {f.name: number for number, f in enumerate(files.partition_fields())}
    stored = stored_columns(schema, partitions)
    indexed = IndexedScan(
        files, numbers, stored, positions or vectors, settings.prune, settings.required
    )
    wanted = spark_schema(stored, mode, required=settings.required)
    frame = indexed_frame(settings.spark, indexed, wanted, settings.options)
    known = set(stored.names)
    columns: dict[str, Column | str] = {
        f.name: _named(f, mode) if f.name in known else F.lit(None).alias(f.name)
        for f in schema.fields
        if f.name not in partitions
    }
    for name, number in partitions.items():
        columns[name] = F.col(partition_name(number)).alias(name)
    if positions or vectors:
        columns[FILE] = FILE
        columns[ROW] = frame.metadataColumn("_metadata").getField("row_index").alias(ROW)
    shown = [*files.schema.names, *((FILE, ROW) if positions else ())]
    if not vectors:
        return frame.select([columns[name] for name in shown])
    rows = frame.select(list(columns.values()))
    group = [(number, files.files[number]) for number in numbers.to_pylist()]
    left = rows.join(_deleted_rows(settings.spark, files, group), [FILE, ROW], "anti")
    return left.select([F.col(quoted(name)) for name in shown])


def _read_by_name(settings: _ScanSettings, schema: StructType, numbers: pa.Array) -> DataFrame:
    """Read a group by its file names, and join the positions and partition values of the files."""
    from pyspark.sql import functions as F

    spark, files, positions = settings.spark, settings.files, settings.positions
    mode = files.column_mapping_mode
    group = [(number, files.files[number]) for number in numbers.to_pylist()]
    listed = [file for _, file in group]
    partitions = {field.name for field in files.partition_fields()}
    stored = stored_columns(schema, partitions)
    # Without recursive lookup, Spark would add partition columns for folders such as day=….
    reader = spark.read.schema(spark_schema(stored, mode))
    reader = reader.options(recursiveFileLookup="true", **settings.options)
    frames = [reader.parquet(*paths) for paths in _listings(spark, _patterns(spark, listed))]
    stored_names = set(stored.names)
    columns = {
        field.name: _renamed(field, mode) if field.name in stored_names else F.lit(None)
        for field in schema.fields
        if field.name not in partitions
    }
    constant = len({file.partition for file in listed}) == 1
    if constant:
        for field, values in files.partition_values(listed[:1]):
            columns[field.name] = _literal(values[0].as_py(), field.type)
    shown = [*files.schema.names, *((FILE, ROW) if positions else ())]
    if constant and not listed[0].vector and not positions:
        return _union(f.select([columns[name].alias(name) for name in shown]) for f in frames)
    named = [column.alias(name) for name, column in columns.items()]
    rows = _union(frame.select([*named, *_row_positions(frame)]) for frame in frames)
    known = _known_files(spark, files, group, _spark_names(rows, listed), with_values=not constant)
    found = rows.join(F.broadcast(known), _PATH, "left").where(
        # If Spark reports a path that is not in `known`, raise an error. An inner join would drop
        # the rows of that file silently.
        F.when(F.col(FILE).isNotNull(), F.lit(True)).otherwise(
            F.raise_error(F.concat(F.lit("deltasql does not know the file "), F.col(_PATH)))
        )
    )
    if listed[0].vector:
        found = found.join(_deleted_rows(spark, files, group), [FILE, ROW], "anti")
    return found.select([F.col(quoted(name)) for name in shown])


def _union(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionAll(other), frames)


def _row_positions(frame: DataFrame) -> list[Column]:
    """Return columns with the path of each row's file and the row's position in it."""
    hidden = frame.metadataColumn("_metadata")
    return [hidden.getField("file_path").alias(_PATH), hidden.getField("row_index").alias(ROW)]


def _listings(spark: SparkSession, paths: list[str]) -> list[list[str]]:
    """Split the paths of local files into lists that the driver can list itself.

    For a longer list, Spark starts a job with one task per file. For local files, the job takes
    much longer. For an object store, the job is faster, so the list is not split.
    """
    if not paths[0].startswith("file:"):
        return [paths]
    most = max(1, int(spark.conf.get(_LISTED_BY_DRIVER) or 1))
    return [paths[start : start + most] for start in range(0, len(paths), most)]


def _patterns(spark: SparkSession, listed: Sequence[LiveFile]) -> list[str]:
    """Escape each path as a glob pattern that matches only this file: Spark expands file names.

    Raise for a file name that Spark would not read.
    """
    addresses = [file.address for file in listed]
    for address in addresses:
        name = address.rpartition("/")[2]
        if name.startswith(".") or (name.startswith("_") and "=" not in name) or ":" in name:
            raise unreadable(address)
    return [
        "".join(f"\\{c}" if c in _GLOB else c for c in path)
        for path in spark_paths(spark, addresses)
    ]


def _spark_names(frame: DataFrame, group: Sequence[LiveFile]) -> list[str]:
    """Return the paths of files as Spark encodes them in `_metadata.file_path`.

    The paths come from Spark's own list of files, so its encoding rules need not be repeated here.
    Raise if the list differs from the group, for example because Spark skipped a file.
    """
    names = {_address(name): name for name in frame.inputFiles()}
    different = names.keys() ^ {file.address for file in group}
    if different:
        raise TxnLogEngineError(
            f"Spark would read {len(names)} files instead of {len(group)}: one difference is "
            f"{min(different)!r}",
            engine="spark",
            help="Spark misinterprets the name of a file; rewrite the file under another name.",
        )
    # Local paths start with `file:///` in the list and with `file:/` in `_metadata.file_path`.
    return [names[file.address].replace("file:///", "file:/", 1) for file in group]


def _address(name: str) -> str:
    """Decode a name from Spark's list of files to a path or URL, as in `LiveFile.address`."""
    scheme, _, rest = name.partition(":")
    if scheme == "file":
        return unquote("/" + rest.lstrip("/"))
    return unquote(f"{'s3' if scheme == 's3a' else scheme}:{rest}")


def _known_files(
    spark: SparkSession,
    files: LiveFiles,
    group: _Group,
    names: list[str],
    *,
    with_values: bool,
) -> DataFrame:
    """Return one row per file: its path, its position and, optionally, its partition values."""
    import pyarrow as pa

    fields = [StructField(_PATH, "string"), StructField(FILE, "long")]
    numbers = [number for number, _ in group]
    columns: list[Any] = [pa.array(names, pa.string()), pa.array(numbers, pa.int64())]
    if with_values:
        for field, values in files.partition_values([file for _, file in group]):
            fields.append(StructField(field.name, field.type))
            columns.append(values)
    rows = pa.table(columns, names=[field.name for field in fields])
    return spark.createDataFrame(rows, spark_schema(StructType(tuple(fields))))


def _deleted_rows(spark: SparkSession, files: LiveFiles, group: _Group) -> DataFrame:
    import pyarrow as pa
    from pyspark.sql import functions as F

    deleted = files.deleted([file for _, file in group])
    numbers = pa.array([number for number, _ in group], pa.int64())
    rows = pa.table({FILE: numbers.take(deleted["file_index"]), ROW: deleted["row_number"]})
    frame = spark.createDataFrame(rows)
    return F.broadcast(frame) if rows.num_rows <= _BROADCAST_ROWS else frame


def _named(field: StructField, mode: str | None) -> Column | str:
    """Return a column under its logical name; if possible as a string, which saves py4j calls."""
    is_mapped = field.physical_name(mode) != field.name or _has_mapped_members(field.type, mode)
    if not is_mapped and not has_void(field.type):
        return quoted(field.name)
    return _renamed(field, mode).alias(field.name)


def _renamed(field: StructField, mode: str | None) -> Column:
    """Return a column whose struct members have their logical names: a cast renames members."""
    from pyspark.sql import functions as F

    column = F.col(quoted(field.physical_name(mode)))
    if has_void(field.type):
        return with_void(column, field.type, mode)
    if _has_mapped_members(field.type, mode):
        return column.cast(spark_type(field.type))
    return column


def _has_mapped_members(data_type: DataType, mode: str | None) -> bool:
    if isinstance(data_type, StructType):
        return any(
            member.physical_name(mode) != member.name or _has_mapped_members(member.type, mode)
            for member in data_type.fields
        )
    if isinstance(data_type, ArrayType):
        return _has_mapped_members(data_type.element_type, mode)
    if isinstance(data_type, MapType):
        inner = (data_type.key_type, data_type.value_type)
        return any(_has_mapped_members(each, mode) for each in inner)
    return False


def _literal(value: Any, data_type: DataType) -> Column:
    """Return a literal of exactly this type, cast from a string: Python types lose time zones."""
    from pyspark.sql import functions as F

    # Use a type object, because settings of the session change the meaning of some type names.
    kind = spark_type(data_type)
    if value is None or isinstance(value, bytes):
        return F.lit(value).cast(kind)
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return F.lit(text).cast(kind)
