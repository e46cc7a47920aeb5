"""The API for PySpark. It needs pyspark, but no jar.

    import deltasql.spark
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    catalog = "deltasql://sqlite//tmp/docstrings/catalog.db"

    sales = spark.sql("SELECT 1L AS id, DATE '2024-05-01' AS day")
    deltasql.spark.write(sales, f"{catalog}?table=sales", partition_by="day")
    deltasql.spark.read(spark, f"{catalog}?table=sales", predicate="day > '2024-01-01'").show()

    deltasql.spark.register(spark, catalog)  # all tables by name
    spark.sql("SELECT count(*) FROM sales").show()
    deltasql.spark.DeltaTable.forName(spark, "sales").delete("day < '2020-01-01'")

`deltasql.begin(catalog)` commits DataFrames to several tables at once. See `deltasql docs spark`.
"""

from typing import TYPE_CHECKING, Any

from deltasql.engine.spark.session import require_pyspark
from deltasql.spark.catalog import catalog_options, jar, log_store_options
from deltasql.spark.read import read
from deltasql.spark.register import mirror_spark, register
from deltasql.spark.sql import sql
from deltasql.spark.streaming import stream_writer
from deltasql.spark.write import write

if TYPE_CHECKING:
    from deltasql.spark.delta_table.delta_table import DeltaTable

__all__ = [
    "DeltaTable",
    "catalog_options",
    "jar",
    "log_store_options",
    "mirror_spark",
    "read",
    "register",
    "sql",
    "stream_writer",
    "write",
]


def __getattr__(name: str) -> Any:
    """Import `DeltaTable` on first access, because it needs pyspark."""
    if name != "DeltaTable":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_pyspark()
    from deltasql.spark.delta_table.delta_table import DeltaTable

    globals()[name] = DeltaTable
    return DeltaTable
