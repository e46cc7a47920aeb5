"""Write and read a table in Google Cloud Storage with Spark, through Google's own connector.

`python -m tests.matrix.spark_gcs --catalog URI --location URI --storage-options JSON --server URL
--jar FILE` ends with code 0 if Spark, deltasql and stock deltalake agree.
"""

from __future__ import annotations

import argparse
import json

import deltalake
from pyspark.sql import SparkSession

import deltasql
from deltasql.spark import DeltaTable
from deltasql.spark.session import set_catalog
from tests.matrix.behaviours import check


def session(jar: str, server: str) -> SparkSession:
    """Return a session whose `gs://` files are on this server."""
    settings = {
        "spark.jars": jar,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.hadoop.fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "spark.hadoop.fs.gs.storage.root.url": server,
        "spark.hadoop.fs.gs.project.id": "test",
        "spark.hadoop.fs.gs.auth.service.account.enable": "false",
        "spark.hadoop.fs.gs.auth.null.enable": "true",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    """Write, merge, delete, read and vacuum one table."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.spark_gcs", description=__doc__)
    for name in ("--catalog", "--location", "--server", "--jar"):
        parser.add_argument(name, required=True)
    parser.add_argument("--storage-options", type=json.loads, required=True)
    given = parser.parse_args()
    spark = session(given.jar, given.server)
    with deltasql.connect(
        given.catalog,
        storage={"options": given.storage_options},
        table={"data_root": given.location},
    ) as catalog:
        set_catalog(spark, catalog)
        with catalog.begin() as tx:
            rows = [(1, "a b"), (2, "a/b=%41"), (3, None)]
            tx.write("spark", spark.createDataFrame(rows, "id long, p string"), partition_by=["p"])
        table = DeltaTable.forName(spark, "spark")
        news = spark.createDataFrame([(1, "a b"), (4, "c")], "id long, p string")
        merger = table.alias("t").merge(news.alias("s"), "t.id = s.id")
        merger.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        table.delete("id = 2")
        found = sorted((row.id, row.p) for row in table.toDF().collect())
        check(found == [(1, "a b"), (3, None), (4, "c")], f"Spark reads {found}")
        catalog.vacuum("spark", retention_hours=0, enforce_retention_duration=False, dry_run=False)
        stock = deltalake.DeltaTable(
            catalog.table("spark").location, storage_options=given.storage_options
        )
        read = sorted((row["id"], row["p"]) for row in stock.to_pyarrow_table().to_pylist())
        check(read == found, f"deltalake reads {read}")
    spark.stop()


if __name__ == "__main__":
    main()
