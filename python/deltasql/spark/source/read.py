"""Reading with `format("deltasql")`: the driver plans, and Python workers on the executors read.

A worker gets the files of its input partition, with what the log records about them, and reads them
with DuckDB into Arrow. It does not connect to the database. `deltasql.spark.read` is faster,
because a worker here cannot skip columns that the query does not use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, MapType, StructField
from pyspark.sql.types import StructType as SparkStruct

from deltasql.engine.duckdb.engine import DuckDbEngine
from deltasql.engine.files.live_files import LiveFiles
from deltasql.engine.parquet.arrow_casts import cast_rows
from deltasql.engine.spark.schema import spark_schema
from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.schema.schema import StructType, nearest
from deltasql.operations.changes.feed import FEED_FIELDS, ChangeFeed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from deltasql.config import Config
    from deltasql.model.actions import Metadata
    from deltasql.operations.changes.log import ChangedFile, VersionChanges
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.store.records import TableRow

_LISTED = ["path", "partition", "deletion_vector", "size", "num_records"]
_PART_BYTES = 128 * 1024 * 1024
_LEAST_BYTES = 4 * 1024 * 1024
_PARTS = 16
# Since PySpark 4.2 the time zone is an argument; before, it is always UTC.
_HAS_ZONE = "timezone" in signature(to_arrow_schema).parameters
_ZONE: dict[str, Any] = {"timezone": "UTC"} if _HAS_ZONE else {}


@dataclass(frozen=True)
class TableState:
    """The parts of a snapshot that a worker needs, without the database."""

    table: TableRow
    metadata: Metadata

    @classmethod
    def of(cls, snapshot: Snapshot) -> TableState:
        # A worker needs only the location, and a property of the row may be a secret.
        return cls(replace(snapshot.table, properties={}), snapshot.metadata)

    @property
    def schema(self) -> StructType:
        return StructType.from_json(self.metadata.schema_string)


@dataclass
class Files(InputPartition):
    """Files of a snapshot that one task reads."""

    listed: pa.Table


@dataclass
class Changes(InputPartition):
    """Files that versions added or removed, for one task to read."""

    versions: list[VersionChanges]


class Reading:
    """Reads input partitions in a worker; it has no connection, because it is pickled."""

    def __init__(self, state: TableState, config: Config, schema: SparkStruct) -> None:
        self.state, self.config, self.schema = state, config, schema

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an input partition with the columns and types of the schema."""
        wanted = to_arrow_schema(self.schema, **_ZONE)
        with DuckDbEngine(self.config) as engine:
            for batch in self._batches(engine, part):
                table = pa.Table.from_batches([batch]).select(wanted.names)
                yield from cast_rows(table, wanted).to_batches()

    def _batches(self, engine: DuckDbEngine, part: InputPartition) -> Iterable[pa.RecordBatch]:
        state = self.state
        if isinstance(part, Changes):
            # A change feed queries the database only while it plans, which the driver has done.
            feed = ChangeFeed(
                cast("Snapshot", state), self.config, columns=self.schema.fieldNames()
            )
            return feed.read(engine, part.versions)
        if not isinstance(part, Files):
            return ()  # Spark passes an empty partition if there is nothing to read
        live = LiveFiles(state.table.location, state.metadata, part.listed, self.config.storage)
        rows: Iterable[pa.RecordBatch] = engine.stream(engine.scan(live))
        return rows


class SnapshotReader(DataSourceReader):
    """Reads a version, or the changes of versions, with one task per input partition."""

    def __init__(self, reading: Reading, parts: Sequence[InputPartition]) -> None:
        self.reading, self.parts = reading, list(parts)

    def partitions(self) -> Sequence[InputPartition]:
        return self.parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.reading.read(partition)


def source_schema(state: TableState, *, with_feed: bool) -> SparkStruct:
    """Return the columns of a table as Spark's schema, followed by those of a change feed."""
    fields = (*state.schema.fields, *(FEED_FIELDS if with_feed else ()))
    found: SparkStruct = spark_schema(StructType(fields))
    return found


def check_columns(schema: SparkStruct, state: TableState, *, with_feed: bool) -> None:
    """Raise if the schema that a user set with `.schema(…)` does not match the table."""
    fields = source_schema(state, with_feed=with_feed).fields
    known = {field.name: field.dataType for field in fields}
    for field in schema.fields:
        if field.name not in known or _loose(field.dataType) != _loose(known[field.name]):
            has = known.get(field.name)
            raise TxnLogSchemaError(
                f"{state.table.full_name} has no column {field.name!r} of type "
                f"{field.dataType.simpleString()}",
                table=state.table.full_name,
                column=field.name,
                help=f"It is {has.simpleString()}; cast it after reading."
                if has is not None
                else f"{nearest(field.name, list(known))}Leave out .schema(…) to get all columns.",
            )


def file_parts(listed: pa.Table) -> list[InputPartition]:
    """Split the files of a scan into input partitions of about the same size."""
    columns = listed.select([name for name in _LISTED if name in listed.column_names])
    sizes = [size or 0 for size in columns["size"].to_pylist()]
    return [Files(columns.take(pa.array(group))) for group in _packed(sizes)]


def change_parts(versions: Iterable[VersionChanges]) -> list[InputPartition]:
    """Split the files of versions into input partitions.

    The added and removed files of a version without change data stay in the same input partition,
    because rows that are in both an added and a removed file cancel out.
    """
    pieces: list[VersionChanges] = []
    for each in versions:
        if each.added and each.removed and not each.change_data:
            pieces.append(each)
            continue
        for kind in ("change_data",) if each.change_data else ("added", "removed"):
            files: list[ChangedFile] = getattr(each, kind)
            pieces += [_only(each, kind, [file]) for file in files]
    groups = _packed([piece.size for piece in pieces])
    return [Changes(_joined([pieces[number] for number in group])) for group in groups]


def _only(changes: VersionChanges, kind: str, files: list[ChangedFile]) -> VersionChanges:
    nothing: dict[str, Any] = {"added": [], "removed": [], "change_data": []}
    return replace(changes, **{**nothing, kind: files})


def _joined(pieces: Sequence[VersionChanges]) -> list[VersionChanges]:
    """Combine the pieces of the same version and kind."""
    found: dict[tuple[object, ...], VersionChanges] = {}
    for piece in pieces:
        key = (piece.version, bool(piece.added), bool(piece.removed))
        held = found.get(key)
        if held is None:
            found[key] = piece
        else:
            held.added += piece.added
            held.removed += piece.removed
            held.change_data += piece.change_data
    return list(found.values())


def _packed(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Yield groups of positions for one task each, in order."""
    wanted = min(_PART_BYTES, max(_LEAST_BYTES, sum(sizes) // _PARTS))
    group: list[int] = []
    size = 0
    for number, each in enumerate(sizes):
        if group and size + each > wanted:
            yield group
            group, size = [], 0
        group.append(number)
        size += each
    if group:
        yield group


def _loose(kind: Any) -> Any:
    """Return a type with all fields nullable, so that types are compared without nullability."""
    if isinstance(kind, SparkStruct):
        return SparkStruct([StructField(f.name, _loose(f.dataType)) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_loose(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_loose(kind.keyType), _loose(kind.valueType))
    return kind
