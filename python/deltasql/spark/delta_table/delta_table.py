"""`deltasql.spark.DeltaTable`: delta-spark's class, for tables whose log is in the database."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, overload

from pyspark.sql import DataFrame

from deltasql.engine.spark.session import active_session
from deltasql.exceptions import TxnLogError, TxnLogTableNotFoundError
from deltasql.model.predicates.rewrite import without_alias
from deltasql.model.protocol import reader_features, writer_features
from deltasql.model.schema.convert import schema_from_any
from deltasql.operations.alter.features import raise_versions
from deltasql.operations.delete import stage_delete
from deltasql.operations.update import stage_update
from deltasql.spark.columns.columns import column_writer, frame_alias, frame_keys
from deltasql.spark.delta_table.arguments import (
    assignment_texts,
    check_droppable,
    check_feature,
    check_protocol_versions,
    condition_text,
    require,
)
from deltasql.spark.delta_table.builder import DeltaTableBuilder
from deltasql.spark.delta_table.create import clone_table, convert_table
from deltasql.spark.delta_table.describe import detail, history
from deltasql.spark.delta_table.merge import DeltaMergeBuilder, MergeInto
from deltasql.spark.delta_table.optimize import DeltaOptimizeBuilder
from deltasql.spark.delta_table.restore import (
    RESTORED,
    check_version,
    parse_timestamp,
    restored_files,
    version_at,
)
from deltasql.spark.exceptions import argument_error, as_spark_exceptions
from deltasql.spark.read import read_snapshot
from deltasql.spark.session import resolve, resolve_path
from deltasql.uri import split_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.model.progress import OnProgress
    from deltasql.operations.table_stage import TableStage
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.spark.delta_table.arguments import ColumnOrText

_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_MANIFEST = "symlink_format_manifest"


class DeltaTable:
    """A table with the API of delta-spark; `forPath` also takes a `deltasql://` URI.

    Every call uses the latest version. Rows are processed on the session's executors, and each
    operation is one commit in the database.

        table = deltasql.spark.DeltaTable.forPath(spark, f"{catalog}?table=sales")
        table.update("id = 1", {"day": "DATE '2024-05-02'"})
        (
            table.alias("t")
            .merge(sales.alias("s"), "t.id = s.id")
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll()
            .execute()
        )
        table.history(1).show()
    """

    def __init__(
        self, spark: SparkSession, catalog: Catalog, name: str, alias: str | None = None
    ) -> None:
        self._spark, self._catalog, self._name, self._alias = spark, catalog, name, alias
        # Identifies the DataFrames that `toDF` returned. Columns of these DataFrames are columns of
        # this table.
        self._keys: set[object] = set()

    def __repr__(self) -> str:
        return f"DeltaTable({self._name!r}, {self._catalog.uri})"

    # Open

    @classmethod
    @as_spark_exceptions()
    def forPath(
        cls, sparkSession: SparkSession, path: str, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """Open a table by its URI, or by its location in the session's catalog.

        `hadoopConf` is ignored, because storage options come from deltasql's configuration.
        """
        if not isinstance(path, str):
            raise TypeError(f"path must be a string, found to be of type {type(path)}")
        catalog, name = resolve_path(sparkSession, path)
        catalog.resolve(name, fresh=True)
        return cls(sparkSession, catalog, name)

    @classmethod
    @as_spark_exceptions()
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> DeltaTable:
        """Open a table of the session's catalog by its name, or by delta.`path`."""
        if not isinstance(tableOrViewName, str):
            raise TypeError(
                f"tableOrViewName must be a string, found to be of type {type(tableOrViewName)}"
            )
        with _no_table(tableOrViewName):
            catalog, name = resolve(sparkSession, tableOrViewName)
            catalog.resolve(name, fresh=True)
        return cls(sparkSession, catalog, name)

    @classmethod
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:
        """Return whether a table with this name, location or URI exists."""
        try:
            catalog, name = resolve(sparkSession, identifier)
        except TxnLogError:
            return False
        return catalog.exists(name)

    # Create

    @classmethod
    def create(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder[DeltaTable]:
        """Return a builder that creates a table; the table must not exist."""
        return cls._builder(sparkSession, creates=True, replaces=False)

    @classmethod
    def createIfNotExists(
        cls, sparkSession: SparkSession | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Return a builder that creates a table unless it exists."""
        return cls._builder(sparkSession, creates=True, replaces=False, ignores=True)

    @classmethod
    def replace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder[DeltaTable]:
        """Return a builder that replaces an existing table; the table keeps its history."""
        return cls._builder(sparkSession, creates=False, replaces=True)

    @classmethod
    def createOrReplace(
        cls, sparkSession: SparkSession | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Return a builder that creates a table, or replaces it if it exists."""
        return cls._builder(sparkSession, creates=True, replaces=True)

    @classmethod
    def _builder(
        cls,
        spark: SparkSession | None,
        *,
        creates: bool,
        replaces: bool,
        ignores: bool = False,
    ) -> DeltaTableBuilder[DeltaTable]:
        session = active_session() if spark is None else spark
        return DeltaTableBuilder(session, cls, creates=creates, replaces=replaces, ignores=ignores)

    @classmethod
    @as_spark_exceptions()
    def convertToDelta(
        cls,
        sparkSession: SparkSession,
        identifier: str,
        partitionSchema: str | StructType | None = None,
    ) -> DeltaTable:
        """Create a table in the session's catalog from the Parquet files of parquet.`path`."""
        catalog, name = convert_table(sparkSession, identifier, partitionSchema)
        return cls(sparkSession, catalog, name)

    # Read

    @as_spark_exceptions()
    def toDF(self) -> DataFrame:
        """Return the rows of the latest version.

        On classic Spark, filters on the result are used for data skipping.
        """
        frame = read_snapshot(self._spark, self._snapshot(), self._catalog.config, described=True)
        self._keys.update(frame_keys(frame))
        return frame if self._alias is None else frame.alias(self._alias)

    def alias(self, aliasName: str) -> DeltaTable:
        """Return the same table with an alias for expressions, such as those of a merge."""
        other = DeltaTable(self._spark, self._catalog, self._name, aliasName)
        other._keys = self._keys
        return other

    # Methods that describe the table

    @as_spark_exceptions()
    def history(self, limit: int | None = None) -> DataFrame:
        """Return the commits, newest first."""
        if limit is not None and not isinstance(limit, int):
            raise TypeError(f"limit must be an int, found to be of type {type(limit)}")
        return history(self._spark, self._snapshot(), limit)

    @as_spark_exceptions()
    def detail(self) -> DataFrame:
        """Return one row with the format, location, size, properties and protocol of the table."""
        return detail(self._spark, self._snapshot())

    # Change rows

    @as_spark_exceptions()
    def delete(self, condition: ColumnOrText | None = None) -> None:
        """Delete the rows for which a condition is true; without a condition, all rows."""
        predicate = self._unqualified(condition_text(condition, column_writer(self._spark)))
        self._operate(lambda target: stage_delete(target, predicate, flavour="spark"))

    @as_spark_exceptions()
    def update(
        self,
        condition: ColumnOrText | None = None,
        set: Mapping[str, ColumnOrText] | None = None,
    ) -> None:
        """Set columns of the rows for which a condition is true: `{column: expression}`."""
        write = column_writer(self._spark)
        given = assignment_texts(set, write, "'set'")
        values = {self._unqualified(k): self._unqualified(v) for k, v in given.items()}
        predicate = self._unqualified(condition_text(condition, write))
        self._operate(lambda target: stage_update(target, values, predicate, flavour="spark"))

    @as_spark_exceptions()
    def merge(self, source: DataFrame, condition: ColumnOrText) -> DeltaMergeBuilder:
        """Return a builder that merges a DataFrame: add clauses to it, then call `execute`."""
        if source is None:
            raise ValueError("'source' in merge cannot be None")
        if not isinstance(source, DataFrame):
            raise TypeError("Type of 'source' in merge must be DataFrame.")
        if condition is None:
            raise ValueError("'condition' in merge cannot be None")
        alias = frame_alias(source) or "source"
        target = self._qualifier
        if self._alias is None and target.casefold() == alias.casefold():
            target = "target"  # source and target need different names
        write = column_writer(self._spark, [(frame_keys(source), alias), (self._keys, target)])
        on = condition_text(condition, write)
        assert on is not None
        schema = schema_from_any(source.schema)
        into = MergeInto(self._spark, source, schema, on, alias, target)
        return DeltaMergeBuilder(into, write, self._operate)

    # Maintain files

    def optimize(self, *, on_progress: OnProgress | None = None) -> DeltaOptimizeBuilder:
        """Return a builder that compacts or sorts the files of the table.

        `on_progress` is called with a `Progress` that counts bins.
        """
        return DeltaOptimizeBuilder(self._spark, self._operate, on_progress)

    @as_spark_exceptions()
    def vacuum(
        self, retentionHours: float | None = None, *, on_progress: OnProgress | None = None
    ) -> DataFrame:
        """Delete files that no version in the retention period needs, and files not in the log.

        A period that is shorter than the table's retention raises an error, unless the session
        setting `spark.databricks.delta.retentionDurationCheck.enabled` is false. A table with many
        folders is listed on executors. `on_progress` is called with the progress of listing and
        deleting files.
        """
        check = str(self._spark.conf.get(_RETENTION_CHECK, "true")).lower() != "false"
        try:
            self._catalog.vacuum(
                self._name,
                retention_hours=None if retentionHours is None else float(retentionHours),
                dry_run=False,
                enforce_retention_duration=check,
                full=True,
                engine="spark",
                session=self._spark,
                on_progress=on_progress,
            )
        except TxnLogError as error:
            if type(error) is not TxnLogError or not check:
                raise
            raise argument_error(
                "The specified VACUUM retention period is too low: " + error.message,
                "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT",
                help=f"If nobody reads or writes older versions, set {_RETENTION_CHECK} to false.",
            ) from error
        return self._spark.createDataFrame([], "")

    @as_spark_exceptions()
    def generate(self, mode: str) -> None:
        """Write symlink manifests of the latest version, for Presto and Athena."""
        if not isinstance(mode, str) or mode.lower() != _MANIFEST:
            raise argument_error(
                f"Specified mode '{mode}' is not supported. Supported modes are: {_MANIFEST}",
                "DELTA_MODE_NOT_SUPPORTED",
                help=f"Call generate('{_MANIFEST}').",
            )
        self._catalog.mirror.write_manifests(self._snapshot())

    # Restore and clone

    @as_spark_exceptions()
    def restoreToVersion(self, version: int) -> DataFrame:
        """Restore the table to a version; returns the numbers of restored and removed files."""
        require(version, int, "version", "an int")
        latest = self._snapshot()
        check_version(latest, version)
        return self._restore(latest, version, version)

    @as_spark_exceptions()
    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """Restore the table to a timestamp; without a zone, it is in the session's time zone."""
        require(timestamp, str, "timestamp", "a string")
        parsed, latest = parse_timestamp(self._spark, timestamp), self._snapshot()
        version = version_at(self._catalog.table(self._name), latest, timestamp, parsed)
        return self._restore(latest, version, parsed)

    def _restore(self, latest: Snapshot, version: int, to: int | datetime) -> DataFrame:
        if version != latest.version:
            with self._catalog.begin() as tx:
                tx.restore(self._name, to)
        row = restored_files(latest, self._snapshot())
        return self._spark.createDataFrame([row], RESTORED)

    @as_spark_exceptions()
    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Clone the latest version to another table; a shallow clone shares the files."""
        return self._clone(self._snapshot(), target, isShallow, replace, properties)

    @as_spark_exceptions()
    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Clone the table at a version."""
        require(version, int, "version", "an int")
        return self._clone(self._snapshot(version), target, isShallow, replace, properties)

    @as_spark_exceptions()
    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Clone the table as of a timestamp."""
        require(timestamp, str, "timestamp", "a string")
        older = self._snapshot(timestamp=parse_timestamp(self._spark, timestamp))
        return self._clone(older, target, isShallow, replace, properties)

    def _clone(
        self,
        snapshot: Snapshot,
        target: str,
        shallow: bool,
        replaces: bool,
        properties: Mapping[str, str] | None,
    ) -> DeltaTable:
        require(target, str, "target", "a string")
        require(shallow, bool, "isShallow", "a boolean")
        require(replaces, bool, "replace", "a boolean")
        given = {} if properties is None else properties
        require(given, dict, "properties", "a dict")
        catalog, name = clone_table(
            self._spark, snapshot, target, shallow=shallow, replaces=replaces, properties=given
        )
        return type(self)(self._spark, catalog, name)

    # Change the protocol

    @as_spark_exceptions()
    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Raise the protocol versions; they are never lowered."""
        require(readerVersion, int, "The readerVersion", "an integer")
        require(writerVersion, int, "The writerVersion", "an integer")
        check_protocol_versions(readerVersion, writerVersion)
        properties = {
            "delta.minReaderVersion": str(readerVersion),
            "delta.minWriterVersion": str(writerVersion),
        }
        with self._catalog.begin() as tx:
            raise_versions(tx.target(self._name), properties)

    @as_spark_exceptions()
    def addFeatureSupport(self, featureName: str) -> None:
        """Add a feature to the table's protocol, and raise the protocol versions if needed.

        If the protocol versions already include the feature, the protocol does not change.
        """
        require(featureName, str, "featureName", "a string")
        check_feature(featureName)
        protocol = self._snapshot().protocol
        if featureName in reader_features(protocol) | writer_features(protocol):
            return
        with self._catalog.begin() as tx:
            tx.add_feature(self._name, featureName, allow_protocol_versions_increase=True)

    @as_spark_exceptions()
    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Remove a feature that the table does not use any more from the table's protocol.

        The history is kept, so it cannot be truncated.
        """
        require(featureName, str, "featureName", "a string")
        if truncateHistory is not None:
            require(truncateHistory, bool, "truncateHistory", "a boolean")
        check_droppable(featureName, self._name, self._snapshot().protocol)
        with self._catalog.begin() as tx:
            tx.drop_feature(self._name, featureName, truncate_history=bool(truncateHistory))

    # Run operations

    def _snapshot(
        self, version: int | None = None, *, timestamp: datetime | None = None
    ) -> Snapshot:
        return self._catalog.table(self._name).snapshot(version, timestamp=timestamp)

    @property
    def _qualifier(self) -> str:
        """The name that qualifies columns: the alias, or else the name of the table."""
        return self._alias or split_table_name(self._name)[1]

    @overload
    def _unqualified(self, text: str) -> str: ...

    @overload
    def _unqualified(self, text: None) -> None: ...

    def _unqualified(self, text: str | None) -> str | None:
        if text is None:
            return None
        return without_alias(text, self._qualifier, self._snapshot().schema.names)

    def _operate(self, stage: Callable[[TableStage], Any]) -> Any:
        """Run an operation on this session's executors and commit it."""
        with self._catalog.begin() as tx:
            # The empty DataFrame makes the operation run in this session.
            return stage(tx.target_to_change(self._name, self._spark.range(0)))


@contextmanager
def _no_table(named: str) -> Iterator[None]:
    """Give the error for a missing table a message like that of delta-spark."""
    try:
        yield
    except TxnLogTableNotFoundError as error:
        if error.table is None:  # looked up by path, so it already has delta-spark's message
            raise
        raise TxnLogTableNotFoundError(
            f"`{named}` is not a Delta table: {error.message}", table=error.table, help=error.help
        ) from error
