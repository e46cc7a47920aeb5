"""A `FileIndex` of a snapshot's files for the planner of classic Spark.

Spark plans a scan over a `FileIndex`. Our index returns the files that the database lists, so that
Spark neither lists folders nor requests the status of files. Partition values have the types of the
table's schema. Filters that the user applies to the DataFrame later still skip files.

The index is a JVM class (SnapshotFiles.java). No jar is needed, because Janino, the compiler that
Spark uses for its queries, compiles the class at run time. The whole list of files is sent to the
JVM in one call; a long list is sent as a file.
"""

from __future__ import annotations

import logging
import os
import re
import struct
import tempfile
import threading
import uuid
import weakref
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from importlib.resources import files as resources
from string import ascii_letters, digits
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from deltasql import telemetry
from deltasql.engine.base import FILE
from deltasql.engine.spark.errors import root_message, spark_exceptions
from deltasql.engine.spark.filters import pruning_sql
from deltasql.engine.spark.schema import spark_paths, spark_schema
from deltasql.exceptions import TxnLogEngineError
from deltasql.model.schema.schema import StructField, StructType
from deltasql.storage.location import data_addresses, root_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from deltasql.engine.files.live_files import LiveFiles

_Part: TypeAlias = bytes | memoryview
_log = logging.getLogger(__name__)
_COMPILER = "org.codehaus.janino.SimpleCompiler"
_RELATION = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
_SOURCE, _CLASS = "SnapshotFiles.java", "deltasql.SnapshotFiles"
_PARTITION = "__deltasql_p"
# Relative paths that are valid URIs: plain or encoded characters, no scheme, no `..`.
_ENCODED = "%(?:[13-9A-Fa-f][0-9A-Fa-f]|2[0-9A-Da-d])"
_NAME = f"(?:[A-Za-z0-9_=~+,-]|{_ENCODED})(?:[A-Za-z0-9_=~+,.-]|{_ENCODED})*"
_PLAIN = f"^(?:{_NAME}/)*{_NAME}$"
_COLON = "%3[Aa][^/]*$"
_UNENCODED_BYTES = f"{ascii_letters}{digits}_=~+,.-/".encode()
_EMPTY_OR_DOT_PART = re.compile(rb"/[/.]")
# Up to this size the py4j gateway is as fast as a file.
_GATEWAY_BYTES = 1 << 16
_lock = threading.Lock()
_classes: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class IndexedScan:
    """The files that an index lists, and how they are read."""

    files: LiveFiles
    numbers: pa.Array
    """Positions in `LiveFiles.files` of the files to list."""
    stored: StructType
    """The columns that the files store."""
    numbered: bool
    """Whether rows have the column FILE, with the position of their file."""
    prune: Callable[[str], pa.ChunkedArray] | None
    """A function that returns the paths of the files that may have rows that match a condition."""
    required: bool = False
    """Whether the schema says which partition columns are not nullable."""


def indexed_frame(
    spark: SparkSession, scan: IndexedScan, schema: Any, options: Mapping[str, str]
) -> DataFrame:
    """Return the rows of files.

    Columns have their physical names, and partition columns have names from `partition_name`.
    `has_index` must be true for the session.
    """
    from pyspark.sql import DataFrame

    session: Any = spark
    index = _index(session, scan)
    return DataFrame(_relation_rows(session, index, schema.json(), options), spark)


def _relation_rows(session: Any, index: Any, schema: str, options: Mapping[str, str]) -> Any:
    """Return the rows of Spark's Parquet scan over an index, as a JVM object."""
    from pyspark.sql.utils import to_scala_map

    jvm = session._sc._jvm
    sources = jvm.org.apache.spark.sql.execution.datasources
    relation = reduce(getattr, _RELATION.split("."), jvm)(
        index,
        index.partitionSchema(),
        jvm.org.apache.spark.sql.types.DataType.fromJson(schema),
        jvm.scala.Option.empty(),
        sources.parquet.ParquetFileFormat(),
        to_scala_map(jvm, dict(options)),
        session._jsparkSession,
    )
    return session._jsparkSession.baseRelationToDataFrame(relation)


def partition_name(number: int) -> str:
    """Return a name for a partition column; no column in a data file has this name."""
    return f"{_PARTITION}{number}"


def unreadable(address: str) -> TxnLogEngineError:
    """Return the error for a file name that Spark does not read as a data file."""
    return TxnLogEngineError(
        f"Spark cannot read the file {address!r} because of its name",
        engine="spark",
        help="Spark does not read files whose names begin with '_' or '.' or contain a ':'. "
        "Rewrite the file, or read the table with another engine.",
    )


def _index(session: Any, scan: IndexedScan) -> Any:
    """Create the index in the JVM."""
    listed = scan.files.listed.select(["path", "size", "modification_time"])
    partitions = scan.files.partitions
    if len(scan.numbers) < listed.num_rows:
        listed, partitions = listed.take(scan.numbers), partitions.take(scan.numbers)
    schema, values, partition_numbers = _partitions(scan, partitions)
    prefix, uris = _uris(session, scan.files.location, listed["path"])
    root = root_address(scan.files.location)
    index = _classes[session._sc._gateway].newInstance()
    _send(session, index, [values, *_packed_files(listed, partition_numbers, uris)])
    return index.open(
        f"DeltaSqlIndex({scan.files.location}, {uuid.uuid4().hex[:8]})",
        _as_uris(session, [root])[0],
        schema.json(),
        prefix,
        int(pc.sum(listed["size"]).as_py() or 0),
        _pruner(session, scan, listed["path"]),
    )


def _send(session: Any, index: Any, parts: Sequence[_Part]) -> None:
    """Send packed data to the JVM, which runs on this machine.

    Large data is sent as a file in Spark's folder for data from Python: the py4j gateway encodes
    bytes as text, which takes ten times as long. If the session requires encryption, no file is
    written.
    """
    context = session._sc
    size = sum(memoryview(part).nbytes for part in parts)
    if size <= _GATEWAY_BYTES or context._encryption_enabled:
        index.take(bytearray(b"".join(parts)))
        return
    if not _send_as_file(index, context._temp_dir, parts):
        index.take(bytearray(b"".join(parts)))


def _send_as_file(index: Any, folder: str, parts: Sequence[_Part]) -> bool:
    """Send data as a file, and return whether the JVM read the file.

    Return False if the folder is full, or if the JVM cannot read it.
    """
    name = None
    failed: tuple[type[Exception], ...] = (OSError, *spark_exceptions())
    try:
        number, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(number, "wb") as file:
            file.writelines(parts)
        index.takeFile(name)
    except failed as error:
        telemetry.log(
            _log,
            logging.WARNING,
            "the list of files is sent through the py4j gateway",
            reason=root_message(error),
        )
        return False
    finally:
        if name is not None:
            with suppress(OSError):
                os.unlink(name)
    return True


def _partitions(scan: IndexedScan, partitions: pa.Array) -> tuple[Any, bytes, pa.Array]:
    """Return the partition schema, the packed values, and the partition number of each file.

    With `numbered`, each file is its own partition.
    """
    distinct = partitions.dictionary_encode()
    partition_numbers, count = distinct.indices, len(distinct.dictionary)
    fields: list[StructField] = []
    columns: list[list[bytes | None]] = []
    for field, typed in scan.files.values_of(distinct.dictionary.to_pylist()):
        nullable = field.nullable or typed.null_count > 0
        fields.append(StructField(partition_name(len(fields)), field.type, nullable))
        columns.append(encoded_values(typed))
    if scan.numbered:
        columns = [
            [column[number] for number in partition_numbers.to_pylist()] for column in columns
        ]
        fields.append(StructField(FILE, "long"))
        columns.append(encoded_values(scan.numbers))
        partition_numbers, count = pa.array(range(len(partitions)), pa.int32()), len(partitions)
    schema = spark_schema(StructType(tuple(fields)), required=scan.required)
    return schema, _packed_values(columns, count), partition_numbers


def encoded_values(values: pa.Array) -> list[bytes | None]:
    """Return values as strings for the JVM class, with dates and timestamps as numbers."""
    kind = values.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        number = pa.int32() if pa.types.is_date(kind) else pa.int64()
        return encoded_values(values.cast(number))
    found: list[bytes | None] = []
    for value in values.to_pylist():
        if value is None or isinstance(value, bytes):
            found.append(value)
        elif isinstance(value, float):
            text = repr(value).replace("inf", "Infinity").replace("nan", "NaN")
            found.append(text.encode())
        else:
            found.append((str(value).lower() if isinstance(value, bool) else str(value)).encode())
    return found


def _packed_values(columns: Sequence[Sequence[bytes | None]], rows: int) -> bytes:
    parts = [struct.pack("<i", rows)]
    for row in zip(*columns, strict=True):
        for value in row:
            parts.append(struct.pack("<i", -1 if value is None else len(value)))
            parts.append(value or b"")
    return b"".join(parts)


def _packed_files(listed: pa.Table, partition_numbers: pa.Array, uris: pa.Array) -> list[_Part]:
    times = pc.fill_null(listed["modification_time"], 0)
    ends = pc.cumulative_sum(pc.binary_length(uris).cast(pa.int32()))
    return [
        struct.pack("<i", listed.num_rows),
        _content(listed["size"].cast(pa.int64())),
        _content(times.cast(pa.int64())),
        _content(partition_numbers.cast(pa.int32())),
        _content(ends),
        _characters(uris),
    ]


def _content(numbers: pa.Array | pa.ChunkedArray) -> _Part:
    """Return the bytes of an array of numbers without nulls, without copying the bytes."""
    whole = numbers.combine_chunks() if isinstance(numbers, pa.ChunkedArray) else numbers
    content, width = whole.buffers()[1], whole.type.bit_width // 8
    return memoryview(content)[whole.offset * width : (whole.offset + len(whole)) * width]


def _characters(texts: pa.Array) -> _Part:
    """Return the concatenated bytes of an array of strings without nulls, without copying."""
    _, offsets, characters = texts.buffers()
    if characters is None:
        return b""
    first, last = (
        struct.unpack_from("<i", offsets, 4 * index)[0]
        for index in (texts.offset, texts.offset + len(texts))
    )
    return memoryview(characters)[first:last]


def _uris(session: Any, location: str, paths: pa.ChunkedArray) -> tuple[str, pa.Array]:
    """Return a common prefix of the files' URIs, and the rest of each URI."""
    texts = paths.cast(pa.string()).combine_chunks()
    if _need_no_encoding(texts) or _are_uris(texts):
        return f"{_as_uris(session, [root_address(location).rstrip('/')])[0]}/", texts
    addresses = data_addresses(location, texts.to_pylist())
    for address in addresses:
        if address.startswith("/") and ":" in address.rpartition("/")[2]:
            raise unreadable(address)
    return "", pa.array(_as_uris(session, addresses), pa.string())


def _need_no_encoding(paths: pa.Array) -> bool:
    """Return whether paths are relative and contain no characters that have to be encoded.

    All paths are checked at once, as one concatenated string. The result may therefore be False
    although no path has to be encoded.
    """
    content = bytes(_characters(paths))
    if content.translate(None, _UNENCODED_BYTES) or _EMPTY_OR_DOT_PART.search(content):
        return False
    encoded = (
        pc.starts_with(paths, "."),
        pc.starts_with(paths, "/"),
        pc.ends_with(paths, "/"),
        pc.equal(paths, ""),
    )
    return not any(pc.any(each).as_py() for each in encoded)


def _are_uris(paths: pa.Array) -> bool:
    """Return whether each path is a valid URI, and no file name has a colon."""
    found = pc.match_substring_regex(paths, _PLAIN)
    colons = pc.match_substring_regex(paths, _COLON)
    return pc.all(found).as_py() is not False and pc.any(colons).as_py() is not True


def _as_uris(session: Any, addresses: Sequence[str]) -> list[str]:
    """Return decoded paths or URLs as URIs. Everything but the scheme and the host is encoded."""
    found = []
    for path in spark_paths(session, addresses):
        scheme, _, rest = path.partition("://")
        host, slash, name = rest.partition("/")
        start = "file:" if scheme == "file" else f"{scheme}://{host}"
        found.append(f"{start}{slash}{quote(name, safe='/=')}")
    return found


def has_index(session: Any) -> bool:
    """Return whether this JVM supports our index. The first call compiles the class.

    A vendor's Spark may have the compiler in another package, a different `FileIndex` interface or
    a different constructor of the relation that uses the index.
    """
    gateway = session._sc._gateway
    # For a class that does not exist, py4j returns a package; calling it raises a TypeError.
    failed: tuple[type[Exception], ...] = (*spark_exceptions(), TypeError)
    with _lock:
        if gateway not in _classes:
            try:
                _classes[gateway] = _compiled(session)
            except failed as error:
                _classes[gateway] = None
                telemetry.log(
                    _log,
                    logging.WARNING,
                    "Spark gets the files by name, so filters on the DataFrame skip no files",
                    reason=root_message(error),
                )
        return _classes[gateway] is not None


def _compiled(session: Any) -> Any:
    compiler = reduce(getattr, _COMPILER.split("."), session._sc._jvm)()
    compiler.setParentClassLoader(session._jsparkSession.getClass().getClassLoader())
    compiler.cook(resources(__package__).joinpath(_SOURCE).read_text("utf-8"))
    found = compiler.getClassLoader().loadClass(_CLASS)
    # Use the class once, for an index without files: the JVM resolves the classes that it refers to
    # only at their first use, so an incompatible Spark would fail later, at the first read.
    empty = StructType(()).to_json()
    index = found.newInstance()
    index.take(bytearray(struct.pack("<ii", 0, 0)))
    opened = index.open("check", "file:/", empty, "", 0, None)
    _relation_rows(session, opened, empty, {})
    return found


def _pruner(session: Any, scan: IndexedScan, paths: pa.ChunkedArray) -> _Pruner | None:
    if scan.prune is None:
        return None
    from pyspark.java_gateway import ensure_callback_server_started

    start: Any = ensure_callback_server_started
    start(session._sc._gateway)
    return _Pruner(scan, paths)


class _Pruner:
    """A callback that the JVM calls when it plans a query with filters."""

    class Java:
        implements = ("java.util.function.Function",)

    def __init__(self, scan: IndexedScan, paths: pa.ChunkedArray) -> None:
        self._scan, self._paths = scan, paths

    def apply(self, filters: Any) -> bytearray | None:
        """Return one byte per file, 1 if the file may match; None to read all files.

        An error here does not fail the query; Spark reads all files instead. For example, the
        catalog may have been closed, or its database may be unreachable.
        """
        try:
            return self._matching(filters)
        except Exception as error:
            telemetry.log(
                _log, logging.INFO, "data skipping failed, all files are read", reason=str(error)
            )
            return None

    def _matching(self, filters: Any) -> bytearray | None:
        prune, mode = self._scan.prune, self._scan.files.column_mapping_mode
        given = [filters.apply(number) for number in range(filters.size())]
        text = pruning_sql(given, self._scan.stored, mode)
        if text is None or prune is None:
            return None
        found = prune(text).cast(pa.string()).combine_chunks()
        kept = pc.is_in(self._paths.cast(pa.string()), value_set=found)
        return bytearray(_content(kept.cast(pa.uint8())))
