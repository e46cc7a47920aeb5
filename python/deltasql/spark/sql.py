"""`deltasql.spark.sql`: SQL statements about the tables of a catalog, run by a Spark session."""

from __future__ import annotations

import json
import re
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from deltasql.api.catalog.base import CatalogTable
from deltasql.api.sql.embedded import is_path, table_name
from deltasql.api.sql.session import StatementRunner
from deltasql.api.sql.statements import run_in_transaction
from deltasql.engine.spark.schema import quoted, spark_type
from deltasql.engine.spark.session import is_same_session, require_pyspark
from deltasql.exceptions import InvalidQueryError, TxnLogError
from deltasql.model.schema.convert import schema_from_any
from deltasql.model.statements import statement as s
from deltasql.model.statements.parameters import (
    named_parameters,
    parameter_value,
    spark_literal,
)
from deltasql.model.statements.parser import parse_statement
from deltasql.model.statements.tables_in_query import tables_in_query
from deltasql.model.statements.tokens import Reader
from deltasql.spark.read import read, read_snapshot
from deltasql.spark.session import (
    has_delta,
    known_name,
    plain_location,
    required_catalog,
    set_catalog,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.sql.engine import Arrange, Stored
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.model.statements.parameters import Parameters
    from deltasql.model.statements.tables_in_query import TableInQuery
    from deltasql.uri import DeltaSqlUri

    Handler = Callable[[SparkSession, str, Parameters], DataFrame | None]

_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_MAY_BYPASS = re.compile(r"\b(deltasql|drop)\b", re.IGNORECASE)
# Each session has one runner, which keeps the transaction between BEGIN and COMMIT.
_runners: weakref.WeakKeyDictionary[Any, SparkSql] = weakref.WeakKeyDictionary()


def sql(
    spark: SparkSession,
    statement: str,
    parameters: Parameters = None,
    *,
    catalog: str | DeltaSqlUri | Catalog | None = None,
    transaction: MultiTableTransaction | None = None,
) -> DataFrame:
    """Run one SQL statement on the tables of a catalog; returns a DataFrame.

    `catalog` is the catalog of the session from now on; without it, the session's catalog is used
    (see `register`). Tables are read at their current version. Names that the catalog does not have
    are tables and views of Spark, so that a temporary view can be the source of a MERGE.
    `parameters` are the values of `:name` (a dict) or of `?` (a list). Every statement is one
    commit, except between BEGIN and COMMIT. With `transaction`, a transaction of `deltasql.begin`,
    the statement is a part of it. See `deltasql docs sql`.

        deltasql.spark.sql(spark, "CREATE TABLE visits (id BIGINT, day DATE)", catalog=catalog)
        deltasql.spark.sql(spark, "INSERT INTO visits VALUES (1, DATE '2024-05-01')")
        deltasql.spark.sql(spark, "SELECT * FROM visits WHERE id = :id", {"id": 1}).show()
    """
    require_pyspark()
    from deltasql.spark.exceptions import as_spark_exceptions  # lazy import: needs pyspark

    if transaction is not None:
        with as_spark_exceptions():
            found: DataFrame = run_in_transaction(
                transaction, statement, parameters, SparkQueries(spark)
            )
            return found
    if catalog is not None:
        set_catalog(spark, catalog)
    with as_spark_exceptions():
        return runner_of(spark, required_catalog(spark, statement)).sql(statement, parameters)


class SparkSql(StatementRunner["DataFrame"]):
    """Runs statements on a Spark session; results are DataFrames."""

    def __init__(self, spark: SparkSession, catalog: Catalog) -> None:
        super().__init__(catalog, SparkQueries(spark))


def runner_of(spark: SparkSession, catalog: Catalog) -> SparkSql:
    """Return the runner of a session, with its open transaction."""
    for known, found in list(_runners.items()):
        if is_same_session(known, spark) and (found.catalog is catalog or found.in_transaction):
            return found
    made = _runners[spark] = SparkSql(spark, catalog)
    return made


class SparkQueries:
    """Runs the queries of statements with `spark.sql`; our tables become DataFrames in them."""

    name: str | None = "spark"

    def __init__(self, spark: SparkSession) -> None:
        # A strong reference would keep the session's entry in `_runners` alive.
        self._session = weakref.ref(spark)

    @property
    def spark(self) -> SparkSession:
        """The session."""
        found = self._session()
        if found is None:
            raise InvalidQueryError("the Spark session was stopped", help="Start another one.")
        return found

    def table(self, tx: MultiTableTransaction, table: s.TableRef) -> str:
        """Return the name of a table; Spark ignores the case of letters by default."""
        parts = table.parts
        if len(parts) == 3 and parts[0] == "spark_catalog":
            parts = parts[1:]
        return table_name(
            tx.catalog,
            parts,
            tx.creates,
            location=plain_location,
            spelling=partial(known_name, self.spark, tx.catalog),
        )

    def location(self, path: str) -> str:
        """Return a path of Spark as a location of the catalog."""
        return plain_location(path)

    def timestamp(self, text: str) -> datetime:
        """Parse a timestamp; without a zone, it is in the session's time zone."""
        from deltasql.spark.delta_table.restore import parse_timestamp  # lazy import: needs pyspark

        return parse_timestamp(self.spark, text)

    def start(self, tx: MultiTableTransaction, table: str) -> None:
        """Make the transaction run its operations in this session."""
        assert tx.target(table, self.spark.range(0), engine="spark").engine is not None

    def select(self, tx: MultiTableTransaction, query: str, values: Mapping[str, Any]) -> DataFrame:
        """Run a query; tables of the catalog are replaced by DataFrames."""
        found = tables_in_query(query, values)
        edits: list[tuple[int, int, str]] = []
        frames: dict[str, Any] = {}
        for each in found.tables:
            name = self.known_table(tx, each)
            if name is None:
                continue
            key = f"deltasql_{len(frames)}"
            frames[key] = self._frame(tx, name, each)
            alias = "" if each.alias else f" AS {quoted(each.parts[-1])}"
            edits.append((each.start, each.end, f"{{{key}}}{alias}"))
            edits += [(start, end, "") for start, end in each.qualified]
        # Spark's own parameters do not work in a session with the SQL extension of delta-spark 4.4.
        for start, end, parameter in found.parameters:
            value = spark_literal(parameter_value(parameter, values))
            edits.append((start, end, _with_double_braces(value)))
        frames.setdefault("deltasql", None)  # without an argument, braces would stay doubled
        # `spark.sql` of this session may be replaced by `register(spark, catalog, sql=True)`.
        return type(self.spark).sql(self.spark, _edited(found.text, edits), **frames)

    def known_table(self, tx: MultiTableTransaction, table: TableInQuery) -> str | None:
        """Return the name of a table in the catalog; None if it is a table or view of Spark."""
        if len(table.parts) > 3 or (len(table.parts) == 3 and table.parts[0] != "spark_catalog"):
            return None
        name = self.table(tx, s.TableRef(table.parts))
        return name if is_path(table.parts) or tx.has_table(name) else None

    def _frame(self, tx: MultiTableTransaction, name: str, table: TableInQuery) -> DataFrame:
        catalog, spark = tx.catalog, self.spark
        if table.version is not None or table.timestamp is not None:
            when = None if table.timestamp is None else self.timestamp(table.timestamp)
            row = catalog.resolve(name, fresh=True)
            snapshot = CatalogTable(catalog, row).snapshot(table.version, timestamp=when)
            return read_snapshot(spark, snapshot, catalog.config)
        if name in tx.tables:
            return read(spark, name, transaction=tx)
        tx.target(name).read(whole_table=True)
        return read_snapshot(spark, tx.snapshot(name), catalog.config)

    def rows(
        self,
        tx: MultiTableTransaction,
        query: str,
        values: Mapping[str, Any],
        arrange: Arrange | None = None,
    ) -> DataFrame:
        """Return the rows of a query, with the names and types of the columns to store."""
        frame = self.select(tx, query, values)
        if arrange is None:
            return frame
        stored = arrange(frame.columns)
        # Spark's errors, such as a failed cast, show the names of these columns.
        known = {each.column: each.name for each in stored}
        names = [known.get(number, f"c{number}") for number in range(len(frame.columns))]
        columns = [f"{_value(each, names)} AS {quoted(each.name)}" for each in stored]
        return frame.toDF(*names).selectExpr(*columns)

    def fetch(self, tx: MultiTableTransaction, query: str, values: Mapping[str, Any]) -> pa.Table:
        """Return the rows of a query as an Arrow table, as a part of the transaction."""
        return self.select(tx, query, values).toArrow()

    def vacuum_options(self) -> dict[str, Any]:
        """Return options that list files on executors, and the session's retention check."""
        check = str(self.spark.conf.get(_RETENTION_CHECK, "true")).lower() != "false"
        return {"engine": "spark", "session": self.spark, "enforce_retention_duration": check}

    def result(self, rows: pa.Table) -> DataFrame:
        """Return a small result as a DataFrame."""
        if rows.num_rows:
            return self.spark.createDataFrame(rows)
        from pyspark.sql.types import StructType  # lazy import: pyspark is optional

        # Connect cannot infer the schema of an empty Arrow table.
        schema = json.loads(schema_from_any(rows.schema).to_json())
        return self.spark.createDataFrame([], StructType.fromJson(schema))


def replace_sql(spark: SparkSession, handle: Handler) -> None:
    """Make `spark.sql` of this session object call `handle` first.

    `handle` gets the session, the statement and its parameters. If it returns None, Spark runs the
    statement.
    """
    session: Any = spark
    weak = weakref.ref(spark)
    original = type(spark).sql

    def run(sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:
        owner = weak()
        assert owner is not None
        # Spark itself runs statements that have DataFrames as arguments.
        if not kwargs and isinstance(sqlQuery, str):
            found = handle(owner, sqlQuery, args)
            if found is not None:
                return found
        return original(owner, sqlQuery, args, **kwargs)

    run.__doc__ = original.__doc__
    session.sql = run


def run_if_concerned(spark: SparkSession, text: str, parameters: Parameters) -> DataFrame | None:
    """Run a statement about tables of the session's catalog; return None for all others."""
    if concerns_catalog(spark, text, parameters):
        return sql(spark, text, parameters)
    return _run_elsewhere(spark, text, parameters)


def _run_elsewhere(spark: SparkSession, text: str, parameters: Parameters) -> DataFrame | None:
    """Run a statement that changes a table of Spark and reads tables of the catalog."""
    from deltasql.spark.exceptions import as_spark_exceptions  # lazy import: needs pyspark

    values = named_parameters(parameters)
    try:
        reader = Reader(text)
        first = reader.peek()
        # CREATE TABLE, REPLACE TABLE, CREATE OR REPLACE TABLE
        creates = first in ("CREATE", "REPLACE") and "TABLE" in (reader.peek(1), reader.peek(3))
        if not creates and first not in ("INSERT", "MERGE"):
            return None
        tables = tables_in_query(reader.text, values).tables
    except TxnLogError:
        return None  # Spark says what is wrong
    with as_spark_exceptions():
        runner = runner_of(spark, required_catalog(spark, text))
        engine = SparkQueries(spark)
        with runner.catalog.begin() as tx:
            if not any(engine.known_table(tx, each) for each in tables):
                return None
            if runner.in_transaction:
                raise InvalidQueryError(
                    f"{first} cannot change a table outside this catalog in a transaction",
                    help="Run it before BEGIN, or after COMMIT or ROLLBACK.",
                )
            return engine.select(tx, reader.text, values)


def reject_bypass(spark: SparkSession, text: str, is_view: Callable[[str], bool]) -> None:
    """Raise if a statement of Spark would only seem to change the session's catalog.

    `is_view` returns whether a name is a view of one of its tables. Spark accepts CREATE TABLE …
    USING deltasql with columns without a call of our data source, and DROP TABLE drops a view.
    """
    if _MAY_BYPASS.search(text) is None:
        return
    try:
        statement = parse_statement(text)
    except TxnLogError:
        return
    if isinstance(statement, s.CreateTable) and statement.using == "deltasql":
        if _catalog_of_name(spark, statement.table) != "spark_catalog":
            return  # such as the catalog of the jar
        raise InvalidQueryError(
            f"CREATE TABLE {statement.table} USING deltasql would create a table of Spark, not of "
            "the catalog",
            help="Run the statement with deltasql.spark.sql(spark, …), or call "
            "deltasql.spark.register(spark, catalog, sql=True).",
        )
    parts = statement.table.parts if isinstance(statement, s.DropTable) else ()
    if len(parts) == 1 and is_view(parts[0]):
        raise InvalidQueryError(
            f"DROP TABLE {parts[0]} would drop only a view: the table would stay in the catalog",
            help="Drop the table with deltasql.spark.sql(spark, 'DROP TABLE …'), or the view with "
            "DROP VIEW.",
        )


def _catalog_of_name(spark: SparkSession, table: s.TableRef) -> str:
    """Return the Spark catalog in which Spark looks up a table."""
    first = table.parts[0]
    if len(table.parts) > 1 and spark.conf.get(f"spark.sql.catalog.{first}", None) is not None:
        return first
    return spark.catalog.currentCatalog()


def concerns_catalog(spark: SparkSession, text: str, parameters: Parameters = None) -> bool:
    """Return whether a statement is about a table of the session's catalog, or a transaction."""
    runner = runner_of(spark, required_catalog(spark, text))
    engine, tx = SparkQueries(spark), runner.transaction or runner.catalog.begin()

    def is_known(table: s.TableRef) -> bool:
        try:
            return tx.has_table(engine.table(tx, table))
        except TxnLogError:
            return False

    try:
        statement = parse_statement(text)
        if isinstance(statement, s.Select):
            tables = tables_in_query(statement.query.text, named_parameters(parameters)).tables
            return any(is_known(s.TableRef(each.parts)) for each in tables)
    except TxnLogError:
        return _names_known_table(text, is_known)  # our error says what is wrong
    if isinstance(statement, s.Begin | s.Commit | s.Rollback | s.UndropTable):
        return True
    if isinstance(statement, s.CreateTable):
        ours = statement.using == "deltasql" or (
            statement.using == "delta" and not has_delta(spark)
        )
        source = None if statement.clone is None else statement.clone.source
        return (
            ours
            or (source is not None and is_known(source))
            or (statement.replaces and is_known(statement.table))
        )
    if isinstance(statement, s.Convert):
        return not has_delta(spark)
    table = getattr(statement, "table", None)
    return table is not None and is_known(table)


def _names_known_table(text: str, is_known: Callable[[s.TableRef], bool]) -> bool:
    """Return whether a statement that cannot be parsed is about a known table."""
    try:
        reader = Reader(text)
        while reader.peek() not in ("TABLE", "INTO", "FROM", "UPDATE", "OVERWRITE"):
            reader.place += 1
            if reader.at_end:
                return False
        reader.place += 1
        return is_known(reader.table())
    except TxnLogError:
        return False


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    """Replace parts of a text, and double all braces that are not part of a replacement."""
    done, parts = 0, []
    for start, end, new in sorted(edits):
        parts += [_with_double_braces(text[done:start]), new]
        done = end
    return "".join([*parts, _with_double_braces(text[done:])])


def _with_double_braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _value(stored: Stored, names: Sequence[str]) -> str:
    value = "NULL" if stored.value is None else f"({stored.value})"
    if stored.column is not None:
        value = quoted(names[stored.column])
    if stored.type is None:
        return value
    return f"CAST({value} AS {spark_type(stored.type).simpleString()})"
