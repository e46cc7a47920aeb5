"""`register` and `mirror_spark`: make the tables of a catalog available in a Spark session."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import weakref
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltasql import telemetry
from deltasql.engine.spark.s3 import bucket_options
from deltasql.engine.spark.schema import quoted, spark_path
from deltasql.engine.spark.session import is_connect, require_pyspark
from deltasql.engine.spark.workers import has_chosen_python, has_local_workers, with_this_python
from deltasql.exceptions import TxnLogConfigError, TxnLogEngineError
from deltasql.spark.read import read_snapshot
from deltasql.spark.session import has_delta, open_catalog, set_catalog
from deltasql.spark.sql import reject_bypass, replace_sql, run_if_concerned
from deltasql.storage.location import root_address
from deltasql.uri import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

    from deltasql.api.catalog.base import CatalogTable
    from deltasql.api.catalog.catalog import Catalog
    from deltasql.model.statements.parameters import Parameters
    from deltasql.uri import DeltaSqlUri

_log = logging.getLogger(__name__)
_UNQUOTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HIVE_NAME = re.compile(r"[A-Za-z0-9_]+")
# The views that `mirror_spark` created in each session; it drops views of tables that no longer
# exist.
_views: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def register(
    spark: SparkSession,
    catalog: str | DeltaSqlUri | Catalog | None = None,
    *,
    views: bool = True,
    sql: bool = False,
) -> dict[str, str]:
    """Register the format `deltasql` in a session; returns a dict: table name → view in Spark.

    With a catalog, `format("deltasql")`, `DeltaTable.forName` and streams find its tables by name.
    With `views`, each table also becomes a temporary view for `spark.sql`, at its current version.
    Call `register` again to see later commits. Views need an existing catalog; without views, the
    catalog may be created by the first write.

    With `sql`, `spark.sql` of this session object runs statements about tables of the catalog as
    `deltasql.spark.sql` does, at their current version, and BEGIN and COMMIT. It passes all other
    statements to Spark unchanged. No views are created then. Without `sql`, it only rejects two
    statements: CREATE TABLE … USING deltasql, and DROP TABLE of a view that `register` created.
    Spark would run them without a change of the catalog.

        deltasql.spark.register(spark, catalog)
        spark.sql("SELECT max(id) FROM sales").show()
    """
    require_pyspark()
    from deltasql.spark.source.source import DeltaSqlSource, source_class

    if catalog is None:
        _register_format(spark, DeltaSqlSource)
        if "sql" not in vars(spark):  # it may be replaced for a catalog
            replace_sql(spark, _rejecting)
        return {}
    opened = open_catalog(catalog)
    if views and not sql:
        opened.store.check_exists()  # before the session is changed
    set_catalog(spark, opened)
    # Keep variables such as ${PASSWORD} in the URI instead of replacing them by their values.
    hides = isinstance(catalog, str) and "${" in catalog
    address = str(catalog) if hides else opened.uri.to_string()
    _register_format(spark, source_class(address, opened.config))
    replace_sql(spark, run_if_concerned if sql else _rejecting)
    if sql or not views:
        return {}
    return mirror_spark(spark, opened, using_delta=False)


def _rejecting(spark: SparkSession, text: str, parameters: Parameters) -> None:
    """Raise if a statement would bypass the catalog."""
    from deltasql.spark.exceptions import as_spark_exceptions  # lazy import: needs pyspark

    with as_spark_exceptions():
        reject_bypass(spark, text, lambda name: _is_view(spark, name))


def _is_view(spark: SparkSession, name: str) -> bool:
    """Return whether a name is a temporary view that `mirror_spark` created."""
    from pyspark.errors import AnalysisException

    if name.casefold() not in {each.casefold() for each in _views.get(spark, ())}:
        return False
    try:
        return spark.catalog.getTable(quoted(name)).isTemporary
    except AnalysisException:  # the user dropped it
        return False


def _register_format(spark: Any, source: type[DataSource]) -> None:
    """Register the data source; local workers run it with this Python, which has deltasql."""
    if is_connect(spark):
        spark.dataSource.register(source)
        return
    from pyspark.sql.udf import _wrap_function

    context = spark.sparkContext
    function = _wrap_function(context, source)
    if not has_chosen_python(spark):
        if has_local_workers(spark):
            function = with_this_python(context, function)
        else:
            _warn_of_other_python(context.pythonExec)
    sources = context._jvm.org.apache.spark.sql.execution.datasources.v2.python
    made = sources.UserDefinedPythonDataSource(function)
    # `spark.dataSource.register` fails if another session is active and has this format.
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    manager.registerDataSource(source.name(), made)


def _warn_of_other_python(command: str) -> None:
    """Log a warning if Spark starts workers with another Python than the driver's."""
    found = shutil.which(command)
    if found is None or os.path.dirname(found) != os.path.dirname(sys.executable):
        telemetry.log(
            _log,
            logging.WARNING,
            f"Spark starts its Python workers with {command!r}, which may not have deltasql: set "
            "PYSPARK_PYTHON to a Python that has deltasql before the session starts",
            found=found,
            driver=sys.executable,
        )


def mirror_spark(
    spark: SparkSession,
    catalog: str | DeltaSqlUri | Catalog,
    *,
    database: str | None = None,
    tables: Sequence[str] | None = None,
    using_delta: bool | None = None,
) -> dict[str, str]:
    """Make the tables of a catalog available in a session; returns a dict: table → name in Spark.

    The tables become temporary views over Spark's own Parquet scan, at their current version. Call
    `mirror_spark` again to see later commits. A view has the name of its table. Outside the default
    namespace it is called `crm__sales`, because temporary views have no database.

    If delta-spark is configured in the session, or with `using_delta=True`, they become views of
    the published logs in Spark's catalog instead, named `crm.sales` or placed in `database`. Such a
    view always shows the latest published version, and Spark refuses to write to it. Only in this
    case, settings of the session are changed: for tables in S3, missing options of their buckets
    (`fs.s3a.bucket.…`) are set.
    """
    require_pyspark()
    opened = open_catalog(catalog)
    chosen = opened.tables() if tables is None else [opened.table(name) for name in tables]
    if has_delta(spark) if using_delta is None else using_delta:
        for each in chosen:
            # delta-spark reads the tables later, with the bucket options of the session.
            options = bucket_options(spark, each.location, opened.config.storage)
            for name, value in options.items():
                spark.conf.set(name, value)
        return {each.full_name: _define(spark, each, database) for each in chosen}
    if database is not None:
        raise TxnLogConfigError(
            f"a temporary view cannot be in the database {database!r}",
            help="Leave out database=, or configure delta-spark in the session.",
        )
    names = _view_names(chosen)
    if "sql" not in vars(spark):
        replace_sql(spark, _rejecting)
    for each in chosen:
        frame = read_snapshot(spark, each.snapshot(), opened.config)
        frame.createOrReplaceTempView(quoted(names[each.full_name]))
    if tables is None:
        for gone in _views.get(spark, set()) - set(names.values()):
            spark.catalog.dropTempView(gone)
        _views[spark] = set(names.values())
    return {full_name: _sql_name(name) for full_name, name in names.items()}


def _view_names(tables: Sequence[CatalogTable]) -> dict[str, str]:
    names: dict[str, str] = {}
    taken: dict[str, str] = {}
    for table in tables:
        outside = table.namespace != DEFAULT_NAMESPACE
        name = f"{table.namespace}__{table.name}" if outside else table.name
        other = taken.setdefault(name.casefold(), table.full_name)
        if other != table.full_name:
            raise TxnLogEngineError(
                f"{other} and {table.full_name} would be the same view {name!r} in Spark",
                engine="spark",
                help="Choose one of them with tables=[…], or rename one.",
            )
        names[table.full_name] = name
    return names


def _define(spark: SparkSession, table: CatalogTable, database: str | None) -> str:
    place = database or table.namespace
    if not (_HIVE_NAME.fullmatch(place) and _HIVE_NAME.fullmatch(table.name)):
        raise TxnLogEngineError(
            f"{place}.{table.name} cannot be a view in Spark's catalog",
            engine="spark",
            help="Names in Spark's catalog have only letters, digits and _. Use temporary views "
            "(using_delta=False), or leave this table out with tables=[…].",
        )
    name = _sql_name(place, table.name)
    location = spark_path(spark, root_address(table.location))
    query = f"SELECT * FROM delta.{quoted(location)}"  # noqa: S608 - quoted
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {_sql_name(place)}")
    if spark.catalog.tableExists(name):
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
        known = {row["col_name"]: row["data_type"] for row in rows}
        is_table = known.get("Type") == "EXTERNAL" and known.get("Provider") == "delta"
        if is_table and _plain(unquote(known.get("Location", ""))) == _plain(location):
            # delta-spark could write to such a table without the database. Its files are kept.
            spark.sql(f"DROP TABLE {name}")
        elif known.get("View Text") != query:
            raise TxnLogEngineError(
                f"{name} is already a different table in this session's catalog",
                engine="spark",
                help="Drop that table with Spark, or choose another database=.",
            )
    # With schema evolution, the view also shows columns that are added later.
    spark.sql(f"CREATE OR REPLACE VIEW {name} WITH SCHEMA EVOLUTION AS {query}")
    return name


def _plain(location: str) -> str:
    return location.replace("file:///", "file:/").rstrip("/")


def _sql_name(*parts: str) -> str:
    return ".".join(part if _UNQUOTED.fullmatch(part) else quoted(part) for part in parts)
