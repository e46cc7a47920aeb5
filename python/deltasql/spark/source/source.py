"""The Python data source `deltasql`: `format("deltasql")` to read, write and stream tables.

Spark creates these objects in separate processes on the driver's machine and pickles them from one
process to the next, so none of them holds a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource

from deltasql.api.catalog.connect import connect
from deltasql.config import Config
from deltasql.exceptions import TxnLogConfigError, TxnLogEngineError
from deltasql.operations.changes.log import ChangeLog
from deltasql.spark.source.options import SourceOptions
from deltasql.spark.source.read import (
    Reading,
    SnapshotReader,
    TableState,
    change_parts,
    check_columns,
    file_parts,
    source_schema,
)
from deltasql.spark.source.stream import UnlimitedStream
from deltasql.spark.source.write import Plan, TableWriter, WriteSpec

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, InputPartition
    from pyspark.sql.types import StructType as SparkStruct

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.spark.source.stream import TableStream

FORMAT = "deltasql"


class DeltaSqlSource(DataSource):
    """A table as a data source; `register` creates a subclass that knows the session's catalog."""

    catalog: ClassVar[str | None] = None
    config: ClassVar[Config | None] = None
    _version: int | None = None
    """The version of the schema that Spark got; this version is read, even after later commits."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> SparkStruct:
        """Return the schema, and remember its version."""
        options = self._options()
        with self._open() as catalog:
            snapshot = _selected(catalog, options)
            self._version = snapshot.version
            return source_schema(TableState.of(snapshot), with_feed=options.flag("readChangeFeed"))

    def reader(self, schema: SparkStruct) -> SnapshotReader:
        """Plan a read of a snapshot, or of the changes of versions."""
        options, config = self._options(), self._settings()
        with self._open() as catalog:
            snapshot = _selected(catalog, options, self._version)
            state, with_feed = TableState.of(snapshot), options.flag("readChangeFeed")
            check_columns(schema, state, with_feed=with_feed)
            if with_feed:
                parts = _changes(catalog, snapshot, options)
            else:
                parts = file_parts(snapshot.scan().arrow)
        self._forget()
        return SnapshotReader(Reading(state, config, schema), parts)

    def writer(self, schema: SparkStruct, overwrite: bool) -> TableWriter:
        """Plan a write."""
        spec = WriteSpec.of(self._options(), schema, overwrite=overwrite)
        with self._open() as catalog:
            return TableWriter(spec, Plan.make(catalog, spec), self._settings())

    def streamReader(self, schema: SparkStruct) -> TableStream:
        """Return the reader that plans the batches of a stream."""
        options = self._options()
        with self._open() as catalog:
            snapshot = _selected(catalog, options, self._version)
            state = TableState.of(snapshot)
        check_columns(schema, state, with_feed=options.flag("readChangeFeed"))
        reading = Reading(state, self._settings(), schema)
        self._forget()
        return _stream_of(options, reading, snapshot.version)

    def streamWriter(self, schema: SparkStruct, overwrite: bool) -> DataSourceStreamWriter:
        """Raise an error: `stream_writer` writes streams, to one or several tables."""
        raise TxnLogEngineError(
            "writeStream.format('deltasql') is not supported",
            engine="spark",
            help="Use writeStream.foreachBatch(deltasql.spark.stream_writer(uri, app_id=…)).",
        )

    def _forget(self) -> None:
        """Remove the URI of the database, because Spark will send this object to workers."""
        self.__class__ = DeltaSqlSource
        self.options = {}

    def _options(self) -> SourceOptions:
        options = SourceOptions(dict(self.options), catalog=self.catalog)
        options.check()
        return options

    def _settings(self) -> Config:
        """Return the configuration without `catalogs`, which may contain passwords."""
        config = Config.load() if self.config is None else self.config
        return config.model_copy(update={"catalogs": {}})

    def _open(self) -> Catalog:
        return connect(self._options().table(), self._settings())


def source_class(catalog: str, config: Config) -> type[DeltaSqlSource]:
    """Return a subclass with a catalog and a configuration, which Spark pickles with the class."""
    known: dict[str, Any] = {"catalog": catalog, "config": config}
    return type(DeltaSqlSource.__name__, (DeltaSqlSource,), known)


def _selected(catalog: Catalog, options: SourceOptions, pinned: int | None = None) -> Snapshot:
    """Return the snapshot that the options select; `pinned` is the version of the schema."""
    uri = options.table()
    table = catalog.table(str(uri.table_name))
    version, timestamp = options.number("versionAsOf"), options.timestamp("timestampAsOf")
    if version is not None and timestamp is not None:
        raise TxnLogConfigError(
            "versionAsOf and timestampAsOf cannot be used together",
            key="timestampAsOf",
            help="Leave out one of them.",
        )
    if pinned is not None:
        return table.snapshot(pinned)
    if version is None and timestamp is None:
        return table.snapshot(uri.version, timestamp=uri.timestamp)
    return table.snapshot(version, timestamp=timestamp)


def _changes(catalog: Catalog, snapshot: Snapshot, options: SourceOptions) -> list[InputPartition]:
    """Plan a read of the changes from `startingVersion` to `endingVersion`, both included."""
    first, last = options.number("startingVersion"), options.number("endingVersion")
    if first is None:
        raise TxnLogConfigError(
            "readChangeFeed needs a startingVersion",
            key="startingVersion",
            help="Give the first version whose changes are read.",
        )
    until = snapshot.version if last is None else min(last, snapshot.version)
    log = ChangeLog(catalog.store, snapshot.table, catalog.config.storage)
    versions = list(log.versions(max(first, log.bounds()[0]), until))
    log.require(versions, until)
    return change_parts(versions)


def _stream_of(options: SourceOptions, reading: Reading, version: int) -> TableStream:
    """Return the stream that this release of PySpark can run.

    `version` is the version that defines the columns of the stream.
    """
    try:
        # PySpark has this module since 4.2.
        from deltasql.spark.source.limited_stream import LimitedStream
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("pyspark."):
            raise
        return UnlimitedStream(options, reading, version)
    return LimitedStream(options, reading, version)
