"""`deltasql.spark.register`: the format `deltasql` and the tables of a catalog in a session."""

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
    """Make the format `deltasql` known to a session; returns table → view in Spark.

    With a catalog, its tables are found by name in `format("deltasql")`, in `DeltaTable.forName`
    and in streams, and with `views` each of them becomes a temporary view for `spark.sql`, at the
    version of this moment: call again to see later commits. That needs a catalog that exists;
    without views it may be created later, by the first write.

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
        opened.store.check_exists()  # before anything of the session is changed
    set_catalog(spark, opened)
    # A password that stands in a variable stays there.
    hides = isinstance(catalog, str) and "${" in catalog
    address = str(catalog) if hides else opened.uri.to_string()
    spark.dataSource.register(source_class(address, opened.config))
    if not views:
        return {}
    return mirror_spark(spark, opened, using_delta=False)
