"""The files of a snapshot as classic Spark's planner asks for them.

Spark plans a scan over a `FileIndex`. This one answers from the list that the database gave: no
listing, no status call, partition values typed as the log has them, and filters that come later
in the query still prune files. It is called back through py4j, so no jar is needed.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from deltasql.engine.addresses import root_address
from deltasql.engine.base import FILE
from deltasql.engine.java_stream import read_files, read_texts
from deltasql.engine.spark_filters import pruning_sql
from deltasql.engine.spark_schema import spark_path, spark_schema
from deltasql.exceptions import TxnLogError
from deltasql.model.schema import StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from deltasql.engine.live_files import LiveFile, LiveFiles

_SOURCES = "org.apache.spark.sql.execution.datasources"
_PARTITION = "__deltasql_p"
_ORDINAL = "__deltasql_partition"


@dataclass(frozen=True, slots=True)
class IndexedScan:
    """What an index has to know of the files it lists."""

    files: LiveFiles
    group: Sequence[tuple[int, LiveFile]]
    """Files with their places in `LiveFiles.files`."""
    stored: StructType
    """The columns that are in the files."""
    numbered: bool
    """Whether rows carry the place of their file as the column FILE."""
    prune: Callable[[str], Collection[str]] | None
    """Returns the paths of files that can match a condition."""


def indexed_frame(
    spark: SparkSession, scan: IndexedScan, schema: Any, options: dict[str, str]
) -> DataFrame:
    """Return the rows of files under physical names, partition columns as `partition_name`."""
    from pyspark.java_gateway import ensure_callback_server_started
    from pyspark.sql import DataFrame
    from pyspark.sql.utils import to_scala_map

    session: Any = spark
    context = session._sc
    start: Any = ensure_callback_server_started
    start(context._gateway)
    jvm = context._jvm
    index = SnapshotIndex(spark, scan)
    sources = jvm.org.apache.spark.sql.execution.datasources
    relation = sources.HadoopFsRelation(
        index,
        index.partitionSchema(),
        jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json()),
        jvm.scala.Option.empty(),
        sources.parquet.ParquetFileFormat(),
        to_scala_map(jvm, options),
        session._jsparkSession,
    )
    return DataFrame(session._jsparkSession.baseRelationToDataFrame(relation), spark)


def partition_name(place: int) -> str:
    """Return the name of a partition column, which no column of a file has."""
    return f"{_PARTITION}{place}"


class SnapshotIndex:
    """A `FileIndex` of the JVM over the files of one snapshot; its methods are Spark's."""

    class Java:
        implements = (f"{_SOURCES}.FileIndex",)

    def __init__(self, spark: SparkSession, scan: IndexedScan) -> None:
        self._spark: Any = spark
        self._scan = scan
        self._id = f"DeltaSqlIndex({scan.files.location}, {uuid.uuid4().hex[:8]})"
        self._jvm: Any = self._spark._sc._jvm
        self._partitions = self._grouped()
        self._frame, self._schema = self._values()
        self._rows: Any = None

    # What Spark calls

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        """Return the files that can have a row for which the filters are true."""
        kept = self._matching(partition_filters)
        paths = self._pruned(data_filters)
        groups, places = [], []
        for place in kept:
            files = [f for f in self._partitions[place] if paths is None or f.path in paths]
            if files:
                groups.append(
                    [(self._uri(f.address), f.size or 0, f.modified_ms or 0) for f in files]
                )
                places.append(place)
        found = self._jvm.java.util.ArrayList(len(groups))
        if groups:
            statuses = read_files(self._jvm, groups)
            rows = self._internal_rows()
            directory = getattr(self._jvm, f"{_SOURCES}.PartitionDirectory")
            for number, place in enumerate(places):
                found.add(directory.apply(rows[place], statuses[number]))
        return self._jvm.PythonUtils.toSeq(found)

    def rootPaths(self) -> Any:
        root = self._jvm.org.apache.hadoop.fs.Path(self._jvm.java.net.URI(self._uri(self._root())))
        return self._jvm.PythonUtils.toSeq([root])

    def inputFiles(self) -> Any:
        return read_texts(self._jvm, [self._uri(file.address) for _, file in self._scan.group])

    def refresh(self) -> None:
        """A snapshot never changes."""

    def sizeInBytes(self) -> int:
        return sum(file.size or 0 for _, file in self._scan.group)

    def partitionSchema(self) -> Any:
        return self._jvm.org.apache.spark.sql.types.DataType.fromJson(self._schema.json())

    def metadataOpsTimeNs(self) -> Any:
        return self._jvm.scala.Option.empty()

    def toString(self) -> str:
        return self._id

    def hashCode(self) -> int:
        return hash(self._id) & 0x7FFFFFFF

    def equals(self, other: Any) -> bool:
        return other is not None and str(other.toString()) == self._id

    # How it answers

    def _grouped(self) -> list[list[LiveFile]]:
        """Put files of a partition together; with numbers, each file is a partition."""
        if self._scan.numbered:
            return [[file] for _, file in self._scan.group]
        found: dict[str, list[LiveFile]] = {}
        for _, file in self._scan.group:
            found.setdefault(file.partition, []).append(file)
        return list(found.values())

    def _values(self) -> tuple[DataFrame, Any]:
        """Return a row of partition values for each partition, and their schema."""
        import pyarrow as pa

        firsts = [files[0] for files in self._partitions]
        fields: list[StructField] = []
        columns: list[pa.Array] = []
        for field, values in self._scan.files.partition_values(firsts):
            fields.append(StructField(partition_name(len(fields)), field.type))
            columns.append(values)
        if self._scan.numbered:
            fields.append(StructField(FILE, "long"))
            columns.append(pa.array([number for number, _ in self._scan.group], pa.int64()))
        schema = spark_schema(StructType(tuple(fields)))
        fields.append(StructField(_ORDINAL, "long"))
        columns.append(pa.array(range(len(firsts)), pa.int64()))
        table = pa.table(columns, names=[field.name for field in fields])
        whole = spark_schema(StructType(tuple(fields)))
        return self._spark.createDataFrame(table, whole), schema

    def _internal_rows(self) -> Any:
        if self._rows is None:
            plain = self._frame.drop(_ORDINAL)
            self._rows = plain._jdf.queryExecution().executedPlan().executeCollect()
        return self._rows

    def _matching(self, filters: Any) -> list[int]:
        """Return the partitions for which filters are true: Spark does not ask again."""
        if filters.isEmpty():
            return list(range(len(self._partitions)))
        jvm = self._jvm
        output = self._frame._jdf.queryExecution().analyzed().output()
        mine = {str(output.apply(n).name()): output.apply(n) for n in range(output.size())}
        condition = None
        for number in range(filters.size()):
            each = filters.apply(number)
            for attribute in _items(each.references().toSeq()):
                mine[str(attribute.name())] = attribute
            both = jvm.org.apache.spark.sql.catalyst.expressions.And
            condition = each if condition is None else both(condition, each)
        names = [str(output.apply(n).name()) for n in range(output.size())]
        plans = jvm.org.apache.spark.sql.catalyst.plans.logical
        rows = self._frame._jdf.queryExecution().executedPlan().executeCollect()
        local = plans.LocalRelation(
            jvm.PythonUtils.toSeq([mine[name] for name in names]),
            jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(rows),
            False,
            jvm.scala.Option.empty(),
        )
        plan = plans.Filter(condition, local)
        classic = getattr(jvm, "org.apache.spark.sql.classic.Dataset")
        found = classic.ofRows(self._spark._jsparkSession, plan)
        from pyspark.sql import DataFrame

        kept = DataFrame(found, self._spark).select(_ORDINAL).collect()
        return sorted(row[0] for row in kept)

    def _pruned(self, filters: Any) -> Collection[str] | None:
        """Return the paths that can match; None when filters tell nothing."""
        prune = self._scan.prune
        if prune is None or filters.isEmpty():
            return None
        files = self._scan.files
        text = pruning_sql(_items(filters), self._scan.stored, files.column_mapping_mode)
        if text is None:
            return None
        try:
            return prune(text)
        except TxnLogError:  # the catalog may be closed by now, and all files are right as well
            return None

    def _root(self) -> str:
        return root_address(self._scan.files.location)

    def _uri(self, address: str) -> str:
        if address.startswith("/"):
            return f"file:{quote(address)}"
        scheme, _, rest = spark_path(self._spark, address).partition("://")
        return f"{scheme}://{quote(rest)}"


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]
