"""Read the live files of a table with Spark's own Parquet scan.

The schema and the partition values come from the log, never from files or folders. Exactly the
files of the snapshot are read: a name that Spark would leave out or take for a pattern is found
before it could cost rows. Only the driver sees the list of files; executors do the reading.
Nothing here needs py4j, so it also runs on Spark Connect.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltasql.exceptions import MissingDriverError, TxnLogEngineError
from deltasql.model.schema import ArrayType, DataType, MapType, StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from deltasql.engine.live_files import LiveFile, LiveFiles

_GLOB = frozenset("[]{}*?\\")
_LISTING = "spark.sql.sources.parallelPartitionDiscovery"
_LISTED_BY_DRIVER = 1_000_000
_LISTING_TASKS = 64
_BROADCAST_ROWS = 5_000_000
_FILE, _NUMBER, _ROW = "__deltasql_file", "__deltasql_number", "__deltasql_row"


def scan(spark: SparkSession, files: LiveFiles) -> DataFrame:
    """Return the rows of these files, with the columns of the table in their order."""
    _require_pyspark()
    groups = [
        [file for file in files.files if bool(file.vector) is has_deletions]
        for has_deletions in (False, True)
    ]
    frames = [_read(spark, files, group) for group in groups if group]
    if not frames:
        return spark.createDataFrame([], spark_schema(files.schema))
    first, *others = frames
    for other in others:
        first = first.unionAll(other)
    return first


def spark_schema(schema: StructType, column_mapping_mode: str | None = None) -> Any:
    """Return a schema as Spark has it; with a mapping mode, under its physical names."""
    from pyspark.sql.types import StructType as SparkStruct

    plain = StructType(tuple(_plain_field(f, column_mapping_mode) for f in schema.fields))
    return SparkStruct.fromJson(json.loads(plain.to_json()))


def _read(spark: SparkSession, files: LiveFiles, group: Sequence[LiveFile]) -> DataFrame:
    """Read files that all have a deletion vector, or none of which has."""
    from pyspark.sql import functions as F

    mode = files.column_mapping_mode
    partitions = {field.name for field in files.partition_fields()}
    stored = StructType(tuple(f for f in files.schema.fields if f.name not in partitions))
    frame = _load(spark, spark_schema(stored, mode), [_pattern(spark, f.address) for f in group])
    columns = {field.name: _renamed(field, mode) for field in stored.fields}
    constant = len({file.partition for file in group}) == 1
    if constant:
        for field, values in files.partition_values(group[:1]):
            columns[field.name] = _literal(values[0].as_py(), field.type)
    if constant and not group[0].vector:
        return frame.select([columns[name].alias(name) for name in files.schema.names])
    hidden = frame.metadataColumn("_metadata")
    columns[_FILE], columns[_ROW] = hidden.getField("file_path"), hidden.getField("row_index")
    known = _known_files(spark, files, group, _spelled(frame, group), with_values=not constant)
    rows = frame.select([column.alias(name) for name, column in columns.items()])
    found = rows.join(F.broadcast(known), _FILE, "left").where(
        # Spelled in another way than Spark does, a file would lose its rows in silence.
        F.when(F.col(_NUMBER).isNotNull(), F.lit(True)).otherwise(
            F.raise_error(F.concat(F.lit("deltasql does not know the file "), F.col(_FILE)))
        )
    )
    if group[0].vector:
        found = found.join(_deleted_rows(spark, files, group), [_NUMBER, _ROW], "anti")
    return found.select([F.col(quoted(name)) for name in files.schema.names])


def _load(spark: SparkSession, schema: Any, paths: list[str]) -> DataFrame:
    reader = (
        spark.read.schema(schema)
        # Folders named day=… would give columns of their own.
        .option("recursiveFileLookup", "true")
        .option("mergeSchema", "false")
        # Rows must not go missing because a session forgives missing files.
        .option("ignoreMissingFiles", "false")
        .option("ignoreCorruptFiles", "false")
    )
    with _quick_listing(spark, paths):
        frame = reader.parquet(*paths)
        frame.schema  # noqa: B018  (Connect looks at the files only when asked)
    return frame


def spark_path(spark: SparkSession, address: str) -> str:
    """Return an address with the scheme by which Spark finds it."""
    if address.startswith("/"):
        return f"file://{address}"
    if address.startswith("s3://") and spark.conf.get("spark.hadoop.fs.s3.impl", None) is None:
        return f"s3a{address.removeprefix('s3')}"  # the name of Hadoop's own S3 client
    return address


def _pattern(spark: SparkSession, address: str) -> str:
    """Return the pattern that names exactly one file, since Spark takes names for patterns."""
    name = address.rpartition("/")[2]
    if name.startswith(".") or (name.startswith("_") and "=" not in name) or ":" in name:
        raise TxnLogEngineError(
            f"Spark cannot read the file {address!r}: it takes its name for something else",
            engine="spark",
            help="Names that begin with '_' or '.', or hold a ':', are not for Spark; "
            "rewrite the file or read the table with another engine.",
        )
    return "".join(f"\\{c}" if c in _GLOB else c for c in spark_path(spark, address))


@contextmanager
def _quick_listing(spark: SparkSession, paths: Sequence[str]) -> Iterator[None]:
    """Let the driver look at local files itself: a job with a task per file takes far longer.

    On an object store the job is worth it, with few tasks.
    """
    local = paths[0].startswith("file:")
    name = f"{_LISTING}.{'threshold' if local else 'parallelism'}"
    before = spark.conf.get(name)
    spark.conf.set(name, str(_LISTED_BY_DRIVER if local else _LISTING_TASKS))
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def _spelled(frame: DataFrame, group: Sequence[LiveFile]) -> list[str]:
    """Return the files as Spark spells them in `_metadata.file_path`.

    Spark's own list is asked for: no rule of encoding has to be repeated, and a file that Spark
    left out is noticed.
    """
    spelled = {_address(name): name for name in frame.inputFiles()}
    amiss = spelled.keys() ^ {file.address for file in group}
    if amiss:
        raise TxnLogEngineError(
            f"Spark would read {len(spelled)} files, not {len(group)}: {min(amiss)!r} is amiss",
            engine="spark",
            help="A file has a name that Spark cannot take as it is; rewrite it.",
        )
    # The list has three slashes where the column has one.
    return [spelled[file.address].replace("file:///", "file:/", 1) for file in group]


def _address(name: str) -> str:
    """Undo what Spark does to an address."""
    scheme, _, rest = name.partition(":")
    if scheme == "file":
        return unquote("/" + rest.lstrip("/"))
    return unquote(f"{'s3' if scheme == 's3a' else scheme}:{rest}")


def _known_files(
    spark: SparkSession,
    files: LiveFiles,
    group: Sequence[LiveFile],
    spelled: list[str],
    *,
    with_values: bool,
) -> DataFrame:
    """Return a row for each file: its number, and the partition values of the log."""
    import pyarrow as pa

    fields = [StructField(_FILE, "string"), StructField(_NUMBER, "long")]
    columns: list[Any] = [pa.array(spelled, pa.string()), pa.array(range(len(group)), pa.int64())]
    if with_values:
        for field, values in files.partition_values(group):
            fields.append(StructField(field.name, field.type))
            columns.append(values)
    rows = pa.table(columns, names=[field.name for field in fields])
    return spark.createDataFrame(rows, spark_schema(StructType(tuple(fields))))


def _deleted_rows(spark: SparkSession, files: LiveFiles, group: Sequence[LiveFile]) -> DataFrame:
    import pyarrow as pa
    from pyspark.sql import functions as F

    numbers = {file.address: number for number, file in enumerate(group)}
    deleted = files.deleted(group)
    owners = [numbers[address] for address in deleted["filename"].to_pylist()]
    rows = pa.table({_NUMBER: pa.array(owners, pa.int64()), _ROW: deleted["row_number"]})
    frame = spark.createDataFrame(rows)
    return F.broadcast(frame) if rows.num_rows <= _BROADCAST_ROWS else frame


def _renamed(field: StructField, mode: str | None) -> Column:
    """Read a column under its logical name; a cast of a struct renames its members by position."""
    from pyspark.sql import functions as F

    column = F.col(quoted(field.physical_name(mode)))
    if _has_mapped_members(field.type, mode):
        return column.cast(spark_schema(StructType((field,))).fields[0].dataType)
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


def _plain_field(field: StructField, mode: str | None) -> StructField:
    """A field that any file can be read with: nullable, without the metadata of the log."""
    return StructField(field.physical_name(mode), _plain_type(field.type, mode))


def _plain_type(data_type: DataType, mode: str | None) -> DataType:
    if isinstance(data_type, StructType):
        return StructType(tuple(_plain_field(member, mode) for member in data_type.fields))
    if isinstance(data_type, ArrayType):
        return ArrayType(_plain_type(data_type.element_type, mode))
    if isinstance(data_type, MapType):
        key, value = data_type.key_type, data_type.value_type
        return MapType(_plain_type(key, mode), _plain_type(value, mode))
    return data_type


def _literal(value: Any, data_type: DataType) -> Column:
    """A constant of exactly this type; text is cast, since Python's types lose zones."""
    from pyspark.sql import functions as F

    if value is None or isinstance(value, bytes):
        return F.lit(value).cast(str(data_type))
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return F.lit(text).cast(str(data_type))


def quoted(name: str) -> str:
    """Quote a name for Spark.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def _require_pyspark() -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise MissingDriverError(driver="pyspark", extra="spark") from error
