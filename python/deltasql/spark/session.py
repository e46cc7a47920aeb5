"""The catalog of a Spark session, and the table that a path or a name refers to there."""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING, Any

from deltasql.api.catalog.base import spelling_of
from deltasql.api.catalog.catalog import Catalog
from deltasql.api.catalog.connect import existing_catalog, parse_table_uri, shared
from deltasql.config import Config
from deltasql.engine.spark.schema import name_parts
from deltasql.engine.spark.session import is_same_session
from deltasql.exceptions import TxnLogConfigError, TxnLogTableNotFoundError
from deltasql.storage import absolute_location
from deltasql.store.locations import tables_at
from deltasql.uri import (
    DEFAULT_NAMESPACE,
    DeltaSqlUri,
    is_deltasql_uri,
    join_table_name,
    parse_uri,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql.api.catalog.base import BaseCatalog

CATALOG = "spark.deltasql.catalog"
"""Session setting with the URI of the catalog, for jobs that do not call `register`."""
_EXTENSION, _CATALOG = "DeltaSparkSessionExtension", "DeltaCatalog"
_CASE_SENSITIVE = "spark.sql.caseSensitive"
_FORMAT = re.compile(r"(?:delta|deltasql|parquet)\.`(.+)`", re.DOTALL | re.IGNORECASE)
_catalogs: weakref.WeakKeyDictionary[Any, Catalog] = weakref.WeakKeyDictionary()


def has_delta(spark: SparkSession) -> bool:
    """Return whether delta-spark is configured in a session."""
    extensions = str(spark.conf.get("spark.sql.extensions", ""))
    catalog = str(spark.conf.get("spark.sql.catalog.spark_catalog", ""))
    return _EXTENSION in extensions and _CATALOG in catalog


def open_catalog(catalog: str | DeltaSqlUri | Catalog) -> Catalog:
    """Return an open catalog; calls with the same URI in this process share one catalog."""
    return catalog if isinstance(catalog, Catalog) else shared(catalog, Config.load())


def set_catalog(spark: SparkSession, catalog: str | DeltaSqlUri | Catalog) -> Catalog:
    """Set the catalog in which a session looks up names and locations."""
    opened = open_catalog(catalog)
    for known in [each for each in _catalogs if is_same_session(each, spark)]:
        del _catalogs[known]
    _catalogs[spark] = opened
    return opened


def catalog_of(spark: SparkSession) -> Catalog | None:
    """Return the catalog of a session, or None if it has none."""
    for known, catalog in list(_catalogs.items()):
        if is_same_session(known, spark):
            return catalog
    named = spark.conf.get(CATALOG, None)
    return None if named is None else set_catalog(spark, named)


def required_catalog(spark: SparkSession, wanted: str) -> Catalog:
    """Return the catalog of a session; if it has none, raise an error that says how to set it."""
    found = catalog_of(spark)
    if found is None:
        raise TxnLogConfigError(
            f"cannot look up {wanted!r}: no catalog is registered in this Spark session",
            key=CATALOG,
            help="Call deltasql.spark.register(spark, catalog_uri) first, or give the table's "
            "deltasql:// URI.",
        )
    return found


def resolve(spark: SparkSession, path_or_name: str | DeltaSqlUri) -> tuple[Catalog, str]:
    """Return the catalog and the name of the table that a user refers to.

    `path_or_name` is a `deltasql://` URI, the location of a table, or its name. Locations and
    names are looked up in the session's catalog.
    """
    if isinstance(path_or_name, DeltaSqlUri) or is_deltasql_uri(path_or_name):
        return resolve_uri(path_or_name)
    path = path_in(path_or_name)
    if path is None:
        return resolve_name(spark, path_or_name)
    return resolve_path(spark, path)


def resolve_uri(uri: str | DeltaSqlUri) -> tuple[Catalog, str]:
    """Return the catalog and the table name of a URI; the catalog must exist."""
    parsed = parse_table_uri(uri)
    return existing_catalog(parsed, Config.load()), str(parsed.table_name)


def target_of_uri(uri: str | DeltaSqlUri) -> tuple[Catalog, str]:
    """Return the catalog and the name of a table to write to; a missing catalog is created."""
    parsed = parse_table_uri(uri)
    catalog = shared(parsed, Config.load())
    catalog.store.create()
    return catalog, str(parsed.table_name)


def resolve_path(spark: SparkSession, path: str) -> tuple[Catalog, str]:
    """Return the catalog and the name of the table whose location is a path."""
    if is_deltasql_uri(path):
        return resolve_uri(path)
    catalog = required_catalog(spark, path)
    name = table_at(catalog, path)
    if name is None:
        raise TxnLogTableNotFoundError(
            f"{path} is not a Delta table: no table of {catalog.uri} has its files there",
            help="Give the deltasql:// URI, or import the table with catalog.import_table.",
        )
    return catalog, name


def resolve_name(spark: SparkSession, name: str) -> tuple[Catalog, str]:
    """Return the session's catalog, and the name of a table in the catalog's spelling."""
    catalog = required_catalog(spark, name)
    full_name = known_name(spark, catalog, table_name(name))
    catalog.resolve(full_name, fresh=True)
    return catalog, full_name


def known_name(spark: SparkSession, catalog: BaseCatalog, name: str) -> str:
    """Return a name in the catalog's spelling, because Spark ignores case by default.

    If several tables have the name in different spellings, the name is returned unchanged.
    """
    if str(spark.conf.get(_CASE_SENSITIVE)).lower() == "true":
        return name
    return spelling_of(catalog, name)


def table_at(catalog: Catalog, path: str) -> str | None:
    """Return the name of the table with a location, or None; dropped tables do not count."""
    for table in tables_at(catalog.store.query, plain_location(path)):
        if table.dropped_at_ms is None:
            return join_table_name(table.namespace, table.name)
    return None


def plain_location(path: str) -> str:
    """Return a Spark location in the form that the catalog uses.

    >>> plain_location("file:/lake/sales/"), plain_location("s3a://lake/sales")
    ('/lake/sales', 's3://lake/sales')
    """
    plain = path
    if path.startswith("file:"):
        plain = "/" + path.removeprefix("file:").lstrip("/")
    elif path.startswith("s3a://"):
        plain = "s3" + path.removeprefix("s3a")
    return absolute_location(plain)


def path_in(text: str) -> str | None:
    """Return the path in a string, alone or as delta.`path`; None if the string is a name.

    >>> path_in("delta.`/lake/sales`"), path_in("/lake/sales"), path_in("crm.sales")
    ('/lake/sales', '/lake/sales', None)
    """
    found = _FORMAT.fullmatch(text.strip())
    if found is not None:
        return found[1]
    return text if "/" in text or text.startswith("file:") else None


def table_name(name: str) -> str:
    """Return a Spark table name in the catalog's form: without quotes and `spark_catalog`.

    >>> table_name("spark_catalog.default.`sales`"), table_name("crm.sales")
    ('sales', 'crm.sales')
    """
    parts = name_parts(name)
    short = parts[1:] if len(parts) == 3 and parts[0] == "spark_catalog" else parts
    return ".".join(short) if len(short) != 2 else join_table_name(short[0], short[1])


def new_table_target(spark: SparkSession, wanted: str) -> tuple[Catalog, str, str | None]:
    """Return the catalog, the name and the location of a table that is about to be created.

    A missing catalog is created. A table at a new path gets the name of the path's last folder.
    """
    if is_deltasql_uri(wanted):
        catalog, name = target_of_uri(wanted)
        return catalog, name, parse_uri(wanted).location
    catalog = required_catalog(spark, wanted)
    catalog.store.create()
    path = path_in(wanted)
    if path is None:
        return catalog, known_name(spark, catalog, table_name(wanted)), None
    location = plain_location(path)
    folder = join_table_name(DEFAULT_NAMESPACE, location.rpartition("/")[2])
    return catalog, table_at(catalog, path) or folder, location


def spark_location(address: str) -> str:
    """Return a location as Spark shows it.

    >>> spark_location("/lake/sales")
    'file:/lake/sales'
    """
    return f"file:{address}" if address.startswith("/") else address
