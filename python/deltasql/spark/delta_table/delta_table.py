"""`deltasql.spark.DeltaTable`: delta-spark's class, for tables whose log is in SQL."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, overload

from pyspark.sql import DataFrame

from deltasql.engine.spark.session import active_session
from deltasql.exceptions import TxnLogError, TxnLogTableNotFoundError
from deltasql.model.schema.convert import schema_from_any
from deltasql.operations.delete import stage_delete
from deltasql.operations.update import stage_update
from deltasql.spark.delta_table.aliases import without_alias
from deltasql.spark.delta_table.arguments import assignment_texts, condition_text
from deltasql.spark.delta_table.builder import DeltaTableBuilder
from deltasql.spark.delta_table.convert import convert_table
from deltasql.spark.delta_table.frames import alias_of, keys_of, writer
from deltasql.spark.delta_table.maintenance import TableCare
from deltasql.spark.delta_table.merge import DeltaMergeBuilder, MergeInto
from deltasql.spark.errors import spark_kinds
from deltasql.spark.read import read_snapshot
from deltasql.spark.session import resolve, resolve_path
from deltasql.uri import split_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.operations.table_stage import TableStage
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.spark.delta_table.arguments import ColumnOrText


class DeltaTable(TableCare):
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
        # The keys of all DataFrames that `toDF` returned: their columns are columns of this table.
        self._keys: set[object] = set()

    def __repr__(self) -> str:
        return f"DeltaTable({self._name!r}, {self._catalog.uri})"

    # Open

    @classmethod
    def forPath(
        cls, sparkSession: SparkSession, path: str, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """Open a table by its URI, or by its location in the session's catalog.

        `hadoopConf` is ignored: storage options come from the configuration of deltasql.
        """
        if not isinstance(path, str):
            raise TypeError(f"path must be a string, found to be of type {type(path)}")
        with spark_kinds():
            catalog, name = resolve_path(sparkSession, path)
            catalog.resolve(name, fresh=True)
        return cls(sparkSession, catalog, name)

    @classmethod
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> DeltaTable:
        """Open a table of the session's catalog by its name, or by delta.`path`."""
        if not isinstance(tableOrViewName, str):
            raise TypeError(
                f"tableOrViewName must be a string, found to be of type {type(tableOrViewName)}"
            )
        with spark_kinds(), _no_table(tableOrViewName):
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
    def create(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """Return a builder that creates a table, which must not exist."""
        return cls._builder(sparkSession, creates=True, replaces=False)

    @classmethod
    def createIfNotExists(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """Return a builder that creates a table unless it exists."""
        return cls._builder(sparkSession, creates=True, replaces=False, ignores=True)

    @classmethod
    def replace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
        """Return a builder that replaces an existing table; the table keeps its history."""
        return cls._builder(sparkSession, creates=False, replaces=True)

    @classmethod
    def createOrReplace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder:
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
    ) -> DeltaTableBuilder:
        session = active_session() if spark is None else spark
        return DeltaTableBuilder(session, cls, creates=creates, replaces=replaces, ignores=ignores)

    @classmethod
    def convertToDelta(
        cls,
        sparkSession: SparkSession,
        identifier: str,
        partitionSchema: str | StructType | None = None,
    ) -> DeltaTable:
        """Create a table in the session's catalog from the Parquet files of parquet.`path`."""
        with spark_kinds():
            return cls(sparkSession, *convert_table(sparkSession, identifier, partitionSchema))

    # Read

    def toDF(self) -> DataFrame:
        """Return the rows of the latest version.

        On classic Spark, filters on the result are used for data skipping.
        """
        with spark_kinds():
            frame = read_snapshot(
                self._spark, self._snapshot(), self._catalog.config, described=True
            )
        named = frame if self._alias is None else frame.alias(self._alias)
        self._keys.update(keys_of(frame))
        return named

    def alias(self, aliasName: str) -> DeltaTable:
        """Return the same table with an alias for expressions, such as those of a merge."""
        other = DeltaTable(self._spark, self._catalog, self._name, aliasName)
        other._keys = self._keys
        return other

    # Change rows

    def delete(self, condition: ColumnOrText | None = None) -> None:
        """Delete the rows for which a condition is true; without a condition, all rows."""
        predicate = self._unqualified(condition_text(condition, self._writer()))
        self._operate(lambda target: stage_delete(target, predicate, flavour="spark"))

    def update(
        self,
        condition: ColumnOrText | None = None,
        set: Mapping[str, ColumnOrText] | None = None,
    ) -> None:
        """Set columns of the rows for which a condition is true: `{column: expression}`."""
        given = assignment_texts(set, self._writer(), "'set'")
        values = {self._unqualified(k): self._unqualified(v) for k, v in given.items()}
        predicate = self._unqualified(condition_text(condition, self._writer()))
        self._operate(lambda target: stage_update(target, values, predicate, flavour="spark"))

    def merge(self, source: DataFrame, condition: ColumnOrText) -> DeltaMergeBuilder:
        """Return a builder that merges a DataFrame: add clauses to it, then call `execute`."""
        if source is None:
            raise ValueError("'source' in merge cannot be None")
        if not isinstance(source, DataFrame):
            raise TypeError("Type of 'source' in merge must be DataFrame.")
        if condition is None:
            raise ValueError("'condition' in merge cannot be None")
        with spark_kinds():
            alias = alias_of(source) or "source"
            target = self._called
            if self._alias is None and target.casefold() == alias.casefold():
                target = "target"  # both sides need different names
            write = writer(self._spark, [(keys_of(source), alias), (self._keys, target)])
            on = condition_text(condition, write)
            assert on is not None
            into = MergeInto(
                self._spark,
                source,
                schema_from_any(source.schema),
                self._snapshot().schema,
                on,
                alias,
                target,
            )
        return DeltaMergeBuilder(into, write, self._operate)

    # Run operations

    def _snapshot(self, version: int | None = None) -> Snapshot:
        return self._catalog.table(self._name).snapshot(version)

    @property
    def _called(self) -> str:
        """The name that qualifies columns: the alias, or else the name of the table."""
        return self._alias or split_table_name(self._name)[1]

    @overload
    def _unqualified(self, text: str) -> str: ...

    @overload
    def _unqualified(self, text: None) -> None: ...

    def _unqualified(self, text: str | None) -> str | None:
        if text is None:
            return None
        with spark_kinds():
            return without_alias(text, self._called, self._snapshot().schema.names)

    def _writer(self) -> Callable[[Column], str]:
        return writer(self._spark, [])

    def _commit(self, operate: Callable[[MultiTableTransaction], Any]) -> Any:
        with spark_kinds(), self._catalog.begin() as tx:
            return operate(tx)

    def _operate(self, stage: Callable[[TableStage], Any]) -> Any:
        """Run an operation on this session's executors and commit it."""
        # The empty DataFrame selects the session.
        return self._commit(lambda tx: stage(tx.target(self._name, self._spark.range(0))))


@contextmanager
def _no_table(named: str) -> Iterator[None]:
    """Raise the error for a missing table with a message like that of delta-spark."""
    try:
        yield
    except TxnLogTableNotFoundError as error:
        if error.table is None:  # looked up by path: the message already has delta-spark's form
            raise
        raise TxnLogTableNotFoundError(
            f"`{named}` is not a Delta table: {error.message}", table=error.table, help=error.help
        ) from error
