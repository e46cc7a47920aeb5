"""`deltasql.spark.register`: registers the format `deltasql` and a catalog in a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.api.catalog.catalog import Catalog
from deltasql.api.catalog.connect import shared
from deltasql.config import Config
from deltasql.engine.spark.session import require_pyspark
from deltasql.spark.mirror import mirror_spark
from deltasql.spark.session import set_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql.uri import DeltaSqlUri


def register(
    spark: SparkSession, catalog: str | DeltaSqlUri | Catalog | None = None, *, views: bool = True
) -> dict[str, str]:
    """Register the format `deltasql` in a session; returns table → view in Spark.

    With a catalog, `format("deltasql")`, `DeltaTable.forName` and streams find its tables by name.
    With `views`, each table also becomes a temporary view for `spark.sql`, at its current version:
    call again to see later commits. Views need an existing catalog; without views, the first
    write can create it.

        deltasql.spark.register(spark, catalog)
        spark.sql("SELECT max(id) FROM sales").show()
    """
    require_pyspark()
    from deltasql.spark.source.source import DeltaSqlSource, source_class

    if catalog is None:
        spark.dataSource.register(DeltaSqlSource)
        return {}
    opened = catalog if isinstance(catalog, Catalog) else shared(catalog, Config.load())
    if views:
        opened.store.check_exists()  # before the session is changed
    set_catalog(spark, opened)
    # Keep variables such as ${PASSWORD} in the URI, not their values.
    hides = isinstance(catalog, str) and "${" in catalog
    address = str(catalog) if hides else opened.uri.to_string()
    spark.dataSource.register(source_class(address, opened.config))
    if not views:
        return {}
    return mirror_spark(spark, opened, using_delta=False)
