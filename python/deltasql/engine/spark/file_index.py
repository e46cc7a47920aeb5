"""The files of a snapshot as classic Spark's planner asks for them.

Spark plans a scan over a `FileIndex`. Ours answers from the list that the database gave: no
listing, no status call, partition values typed as the log has them, and filters that come later
in the query still prune files. It is a class of the JVM (SnapshotFiles.java), which Spark's own
compiler of queries makes from its text, so no jar is needed; the list is handed over at once, a
long one in a file.
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
from deltasql.engine.files.addresses import data_addresses, root_address
from deltasql.engine.spark.filters import pruning_sql
from deltasql.engine.spark.schema import spark_paths, spark_schema
from deltasql.engine.spark.session import failures, reason
from deltasql.exceptions import TxnLogEngineError
from deltasql.model.schema.schema import StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from deltasql.engine.files.live_files import LiveFiles

_Part: TypeAlias = bytes | memoryview
_log = logging.getLogger(__name__)
_COMPILER = "org.codehaus.janino.SimpleCompiler"
_SOURCE, _CLASS = "SnapshotFiles.java", "deltasql.SnapshotFiles"
_PARTITION = "__deltasql_p"
# Paths that are URIs as they are: plain or encoded letters, no scheme, no way up.
_ENCODED = "%(?:[13-9A-Fa-f][0-9A-Fa-f]|2[0-9A-Da-d])"
_NAME = f"(?:[A-Za-z0-9_=~+,-]|{_ENCODED})(?:[A-Za-z0-9_=~+,.-]|{_ENCODED})*"
_PLAIN = f"^(?:{_NAME}/)*{_NAME}$"
_COLON = "%3[Aa][^/]*$"
_LETTERS = f"{ascii_letters}{digits}_=~+,.-/".encode()
_ODD = re.compile(rb"/[/.]")
# Bytes that the gateway takes as well as a file.
_SHORT = 1 << 16
_guard = threading.Lock()
_classes: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class IndexedScan:
    """What an index has to know of the files it lists."""

    files: LiveFiles
    numbers: pa.Array
    """Which of them: their places in `LiveFiles.files`."""
    stored: StructType
    """The columns that are in the files."""
    numbered: bool
    """Whether rows carry the place of their file as the column FILE."""
    prune: Callable[[str], pa.ChunkedArray] | None
    """Returns the paths of files that can match a condition."""
    required: bool = False
    """Whether Spark is told which partition columns are never null."""


def indexed_frame(
    spark: SparkSession, scan: IndexedScan, schema: Any, options: Mapping[str, str]
) -> DataFrame:
    """Return the rows of files under physical names, partition columns as `partition_name`.

    The session is one that `has_index`.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.utils import to_scala_map

    session: Any = spark
    jvm = session._sc._jvm
    index = _index(session, scan)
    sources = jvm.org.apache.spark.sql.execution.datasources
    relation = sources.HadoopFsRelation(
        index,
        index.partitionSchema(),
        jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json()),
        jvm.scala.Option.empty(),
        sources.parquet.ParquetFileFormat(),
        to_scala_map(jvm, dict(options)),
        session._jsparkSession,
    )
    return DataFrame(session._jsparkSession.baseRelationToDataFrame(relation), spark)


def partition_name(place: int) -> str:
    """Return the name of a partition column, which no column of a file has."""
    return f"{_PARTITION}{place}"


def unreadable(address: str) -> TxnLogEngineError:
    """Say that Spark takes the name of a file for something else."""
    return TxnLogEngineError(
        f"Spark cannot read the file {address!r}: it takes its name for something else",
        engine="spark",
        help="Names that begin with '_' or '.', or hold a ':', are not for Spark; "
        "rewrite the file or read the table with another engine.",
    )


def _index(session: Any, scan: IndexedScan) -> Any:
    """Hand the files to the JVM."""
    listed = scan.files.listed.select(["path", "size", "modification_time"])
    partitions = scan.files.partitions
    if len(scan.numbers) < listed.num_rows:
        listed, partitions = listed.take(scan.numbers), partitions.take(scan.numbers)
    schema, values, places = _partitions(scan, partitions)
    prefix, uris = _uris(session, scan.files.location, listed["path"])
    root = root_address(scan.files.location)
    index = _classes[session._sc._gateway].newInstance()
    _hand_over(session, index, [values, *_packed_files(listed, places, uris)])
    return index.open(
        f"DeltaSqlIndex({scan.files.location}, {uuid.uuid4().hex[:8]})",
        _encoded(session, [root])[0],
        schema.json(),
        prefix,
        int(pc.sum(listed["size"]).as_py() or 0),
        _pruning(session, scan, listed["path"]),
    )


def _hand_over(session: Any, index: Any, parts: Sequence[_Part]) -> None:
    """Give the JVM, which is on this machine, what is packed.

    The gateway spells bytes as text, which takes ten times as long as a file. Spark's own folder
    for what Python hands over is not encrypted where a session wants its data to be.
    """
    context = session._sc
    size = sum(memoryview(part).nbytes for part in parts)
    if size <= _SHORT or context._encryption_enabled:
        index.take(bytearray(b"".join(parts)))
        return
    if not _handed_in_a_file(index, context._temp_dir, parts):
        index.take(bytearray(b"".join(parts)))


def _handed_in_a_file(index: Any, folder: str, parts: Sequence[_Part]) -> bool:
    """Tell whether the JVM took a file; the folder may be full, or not the JVM's."""
    name = None
    failed: tuple[type[Exception], ...] = (OSError, *failures())
    try:
        number, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(number, "wb") as file:
            file.writelines(parts)
        index.takeFile(name)
    except failed as error:
        telemetry.log(
            _log, logging.WARNING, "the list of files goes by the gateway", reason=reason(error)
        )
        return False
    finally:
        if name is not None:
            with suppress(OSError):
                os.unlink(name)
    return True


def _partitions(scan: IndexedScan, partitions: pa.Array) -> tuple[Any, bytes, pa.Array]:
    """Return the schema of partitions, their packed values, and the partition of each file.

    With numbers, each file is a partition of its own.
    """
    distinct = partitions.dictionary_encode()
    places, count = distinct.indices, len(distinct.dictionary)
    fields: list[StructField] = []
    columns: list[list[bytes | None]] = []
    for field, typed in scan.files.values_of(distinct.dictionary.to_pylist()):
        nullable = field.nullable or typed.null_count > 0
        fields.append(StructField(partition_name(len(fields)), field.type, nullable))
        columns.append(_spelled(typed))
    if scan.numbered:
        columns = [[column[place] for place in places.to_pylist()] for column in columns]
        fields.append(StructField(FILE, "long"))
        columns.append(_spelled(scan.numbers))
        places, count = pa.array(range(len(partitions)), pa.int32()), len(partitions)
    schema = spark_schema(StructType(tuple(fields)), required=scan.required)
    return schema, _packed_values(columns, count), places


def _spelled(values: pa.Array) -> list[bytes | None]:
    """Return values as the JVM reads them: days and microseconds are numbers."""
    kind = values.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        number = pa.int32() if pa.types.is_date(kind) else pa.int64()
        return _spelled(values.cast(number))
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


def _packed_files(listed: pa.Table, places: pa.Array, uris: pa.Array) -> list[_Part]:
    times = pc.fill_null(listed["modification_time"], 0)
    ends = pc.cumulative_sum(pc.binary_length(uris).cast(pa.int32()))
    return [
        struct.pack("<i", listed.num_rows),
        _content(listed["size"].cast(pa.int64())),
        _content(times.cast(pa.int64())),
        _content(places.cast(pa.int32())),
        _content(ends),
        _letters(uris),
    ]


def _content(numbers: pa.Array | pa.ChunkedArray) -> _Part:
    """Return numbers as they lie in memory; none is null."""
    whole = numbers.combine_chunks() if isinstance(numbers, pa.ChunkedArray) else numbers
    content, width = whole.buffers()[1], whole.type.bit_width // 8
    return memoryview(content)[whole.offset * width : (whole.offset + len(whole)) * width]


def _letters(texts: pa.Array) -> _Part:
    """Return texts as they lie in memory, one after the other; none is null."""
    _, offsets, letters = texts.buffers()
    if letters is None:
        return b""
    first, last = (
        struct.unpack_from("<i", offsets, 4 * place)[0]
        for place in (texts.offset, texts.offset + len(texts))
    )
    return memoryview(letters)[first:last]


def _uris(session: Any, location: str, paths: pa.ChunkedArray) -> tuple[str, pa.Array]:
    """Return what all URIs of files begin with, and the rest of each."""
    texts = paths.cast(pa.string()).combine_chunks()
    if _are_plain(texts) or _are_uris(texts):
        return f"{_encoded(session, [root_address(location).rstrip('/')])[0]}/", texts
    addresses = data_addresses(location, texts.to_pylist())
    for address in addresses:
        if address.startswith("/") and ":" in address.rpartition("/")[2]:
            raise unreadable(address)
    return "", pa.array(_encoded(session, addresses), pa.string())


def _are_plain(paths: pa.Array) -> bool:
    """Tell whether paths have plain letters only, at a look at all of them at once.

    It says no too often: what ends one path and what begins the next stand side by side.
    """
    letters = bytes(_letters(paths))
    if letters.translate(None, _LETTERS) or _ODD.search(letters):
        return False
    odd = (
        pc.starts_with(paths, "."),
        pc.starts_with(paths, "/"),
        pc.ends_with(paths, "/"),
        pc.equal(paths, ""),
    )
    return not any(pc.any(each).as_py() for each in odd)


def _are_uris(paths: pa.Array) -> bool:
    """Tell whether each path is a URI as it is, and its file has no colon in its name."""
    found = pc.match_substring_regex(paths, _PLAIN)
    colons = pc.match_substring_regex(paths, _COLON)
    return pc.all(found).as_py() is not False and pc.any(colons).as_py() is not True


def _encoded(session: Any, addresses: Sequence[str]) -> list[str]:
    """Return addresses as URIs; who serves a bucket, and as whom, stays as it is."""
    found = []
    for path in spark_paths(session, addresses):
        scheme, _, rest = path.partition("://")
        server, slash, name = rest.partition("/")
        start = "file:" if scheme == "file" else f"{scheme}://{server}"
        found.append(f"{start}{slash}{quote(name, safe='/=')}")
    return found


def has_index(session: Any) -> bool:
    """Tell whether this JVM can have an index of ours; its class is compiled once.

    A distribution of Spark may keep the compiler elsewhere, or have another form of an index.
    """
    gateway = session._sc._gateway
    # What is no class cannot be called.
    failed: tuple[type[Exception], ...] = (*failures(), TypeError)
    with _guard:
        if gateway not in _classes:
            try:
                _classes[gateway] = _compiled(session)
            except failed as error:
                _classes[gateway] = None
                telemetry.log(
                    _log,
                    logging.WARNING,
                    "files are listed by name, filters on rows prune none",
                    reason=reason(error),
                )
        return _classes[gateway] is not None


def _compiled(session: Any) -> Any:
    compiler = reduce(getattr, _COMPILER.split("."), session._sc._jvm)()
    compiler.setParentClassLoader(session._jsparkSession.getClass().getClassLoader())
    compiler.cook(resources(__package__).joinpath(_SOURCE).read_text("utf-8"))
    found = compiler.getClassLoader().loadClass(_CLASS)
    found.newInstance()  # what it refers to is looked for only now
    return found


def _pruning(session: Any, scan: IndexedScan, paths: pa.ChunkedArray) -> _Pruning | None:
    if scan.prune is None:
        return None
    from pyspark.java_gateway import ensure_callback_server_started

    start: Any = ensure_callback_server_started
    start(session._sc._gateway)
    return _Pruning(scan, paths)


class _Pruning:
    """Called by the JVM when a query that has filters is planned."""

    class Java:
        implements = ("java.util.function.Function",)

    def __init__(self, scan: IndexedScan, paths: pa.ChunkedArray) -> None:
        self._scan, self._paths = scan, paths

    def apply(self, filters: Any) -> bytearray | None:
        """Return a byte for each file: 1 where it can match; None when filters tell nothing.

        A query goes on whatever happens here, since all files are right as well: the catalog may
        be closed by now, or its database away.
        """
        try:
            return self._matching(filters)
        except Exception as error:
            telemetry.log(_log, logging.INFO, "filters prune no files", reason=str(error))
            return None

    def _matching(self, filters: Any) -> bytearray | None:
        prune, mode = self._scan.prune, self._scan.files.column_mapping_mode
        given = [filters.apply(place) for place in range(filters.size())]
        text = pruning_sql(given, self._scan.stored, mode)
        if text is None or prune is None:
            return None
        found = prune(text).cast(pa.string()).combine_chunks()
        kept = pc.is_in(self._paths.cast(pa.string()), value_set=found)
        return bytearray(_content(kept.cast(pa.uint8())))
