"""What a PySpark user imports; nothing but pyspark is needed, no jar.

import deltasql.spark

frame = deltasql.spark.read(spark, "deltasql://sqlite//lake/meta.db?table=sales")
deltasql.spark.write(frame, "deltasql://sqlite//lake/meta.db?table=copy")
deltasql.spark.mirror_spark(spark, "deltasql://sqlite//lake/meta.db")
spark.sql("SELECT * FROM sales")
"""

from deltasql.spark.mirror import mirror_spark
from deltasql.spark.read import read
from deltasql.spark.write import write

__all__ = ["mirror_spark", "read", "write"]
