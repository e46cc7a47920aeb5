"""What a PySpark user imports; nothing but pyspark is needed, no jar.

import deltasql.spark

frame = deltasql.spark.read(spark, "deltasql://sqlite//lake/meta.db?table=sales")
deltasql.spark.write(frame, "deltasql://sqlite//lake/meta.db?table=copy")
deltasql.spark.register(spark, "deltasql://sqlite//lake/meta.db")
spark.sql("SELECT * FROM sales")
deltasql.spark.DeltaTable.forName(spark, "sales").delete("day < '2020-01-01'")
"""

from typing import TYPE_CHECKING, Any

from deltasql.engine.spark_session import require_pyspark
from deltasql.spark.mirror import mirror_spark
from deltasql.spark.read import read
from deltasql.spark.register import register
from deltasql.spark.streaming import stream_writer
from deltasql.spark.write import write

if TYPE_CHECKING:
    from deltasql.spark.delta_table import DeltaTable

__all__ = ["DeltaTable", "mirror_spark", "read", "register", "stream_writer", "write"]


def __getattr__(name: str) -> Any:
    """Load what needs pyspark when it is asked for."""
    if name != "DeltaTable":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_pyspark()
    from deltasql.spark.delta_table import DeltaTable

    globals()[name] = DeltaTable
    return DeltaTable
