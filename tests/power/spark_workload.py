"""Spark writes, in a process whose file system calls, and those of its JVM, are recorded.

`python -m tests.power.spark_workload FOLDER` works below FOLDER/lake. A mark among the recorded
calls shows where SQL begins to reference the files.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from deltasql.phases import hooked
from tests.power.workload import Lake, mark_ratified


def main(folder: Path) -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    lake = Lake(folder)
    lake.root.mkdir()
    # Repartitioned rows are written by executors. The names of partition folders are encoded, so
    # the commit has to rename the folders that Spark makes for these values.
    rows = spark.range(6).selectExpr("id", "concat('é/%', id % 2) AS day").repartition(2)
    with lake.open("spark") as catalog, hooked(mark_ratified):
        with catalog.begin() as tx:
            tx.write("plain", rows, engine="spark")
        with catalog.begin() as tx:
            tx.write("t", rows, partition_by=["day"], engine="spark")
        with catalog.begin() as tx:
            tx.set_table_properties("t", {"delta.enableChangeDataFeed": "true"})
        with catalog.begin() as tx:
            tx.update("t", {"id": "id + 10"}, predicate="id < 3", engine="spark")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
