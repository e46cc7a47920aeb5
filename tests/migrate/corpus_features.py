"""Tables of delta-spark with every table feature that it can enable."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.migrate.spark_tables import run, set_domain
from tests.mirror.support import commit_path

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def change_data(spark: SparkSession, place: Path) -> None:
    """Change data files."""
    run(
        spark,
        place,
        """CREATE TABLE {t} (id BIGINT, p STRING) USING delta PARTITIONED BY (p)
           TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')""",
        "INSERT INTO {t} SELECT id, IF(id < 3, 'a', 'b c') FROM range(6)",
        "UPDATE {t} SET id = 60 WHERE id = 0",
        "DELETE FROM {t} WHERE id IN (1, 4)",
        """MERGE INTO {t} t USING (SELECT explode(array(5, 70)) AS id) s ON t.id = s.id
           WHEN MATCHED THEN UPDATE SET p = 'a' WHEN NOT MATCHED THEN INSERT (id) VALUES (id)""",
        "DELETE FROM {t} WHERE p = 'b c'",
    )


def row_tracking(spark: SparkSession, place: Path) -> None:
    """Row ids from the start, kept by updates and by OPTIMIZE."""
    run(
        spark,
        place,
        """CREATE TABLE {t} (id BIGINT) USING delta
           TBLPROPERTIES ('delta.enableRowTracking' = 'true',
                          'delta.enableDeletionVectors' = 'true')""",
        "INSERT INTO {t} SELECT id FROM range(4)",
        "UPDATE {t} SET id = 10 WHERE id = 1",
        "OPTIMIZE {t}",
        "INSERT INTO {t} VALUES (20)",
    )


def row_tracking_later(spark: SparkSession, place: Path) -> None:
    """Row tracking that was enabled later: existing files are added again with row ids."""
    run(
        spark,
        place,
        "CREATE TABLE {t} USING delta AS SELECT id FROM range(4)",
        "INSERT INTO {t} VALUES (7)",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        "INSERT INTO {t} VALUES (8)",
    )


def clustered(spark: SparkSession, place: Path) -> None:
    """Clustering columns in a metadata domain, changed and removed; a domain of a user."""
    run(
        spark,
        place,
        "CREATE TABLE {t} (a INT, b STRING) USING delta CLUSTER BY (a)",
        "INSERT INTO {t} VALUES (1, 'x'), (2, 'y')",
        "OPTIMIZE {t}",
        "ALTER TABLE {t} CLUSTER BY (b)",
        "ALTER TABLE {t} CLUSTER BY NONE",
    )
    set_domain(spark, place, '{"a": "é"}', removed=False)
    set_domain(spark, place, "", removed=True)


def in_commit_timestamps(spark: SparkSession, place: Path) -> None:
    """In-commit timestamps from the third version on."""
    run(
        spark,
        place,
        "CREATE TABLE {t} (id INT) USING delta",
        "INSERT INTO {t} VALUES (1)",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        "INSERT INTO {t} VALUES (2)",
    )
    for version in (2, 3):  # a copy changes the modification times
        os.utime(commit_path(place, version), (1, 1))


def many_features(spark: SparkSession, place: Path) -> None:
    """Features with few requirements, and Iceberg compatibility."""
    features = ("vacuumProtocolCheck", "checkpointProtection", "materializePartitionColumns")
    supported = ", ".join(f"'delta.feature.{each}' = 'supported'" for each in features)
    run(
        spark,
        place,
        f"""CREATE TABLE {{t}} (id INT, at TIMESTAMP_NTZ) USING delta TBLPROPERTIES ({supported},
            'delta.columnMapping.mode' = 'name', 'delta.enableIcebergCompatV2' = 'true',
            'delta.appendOnly' = 'true')""",
        "INSERT INTO {t} VALUES (1, timestamp_ntz'2024-05-01 00:00:00')",
    )


def dropped_feature(spark: SparkSession, place: Path) -> None:
    """Deletion vectors, and the feature dropped again."""
    run(
        spark,
        place,
        """CREATE TABLE {t} (id BIGINT) USING delta
           TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')""",
        "INSERT INTO {t} SELECT /*+ REPARTITION(1) */ id FROM range(9)",
        "DELETE FROM {t} WHERE id IN (2, 7)",
        "ALTER TABLE {t} DROP FEATURE deletionVectors",
        "INSERT INTO {t} VALUES (20)",
    )


def converted(spark: SparkSession, place: Path) -> None:
    """Converted Parquet files: foreign file names, and partition values from folders."""
    rows = spark.range(4).selectExpr("id", "IF(id < 2, 'a b', NULL) AS p")
    rows.write.partitionBy("p").parquet(str(place))
    spark.sql(f"CONVERT TO DELTA parquet.`{place}` PARTITIONED BY (p STRING)")
    run(spark, place, "INSERT INTO {t} VALUES (9, 'a b')")


def streamed(spark: SparkSession, place: Path) -> None:
    """The sink of a stream, with application transactions."""
    source = place.with_name(f"{place.name}_source")
    for number in range(2):
        spark.range(number, number + 1).write.format("delta").mode("append").save(str(source))
        stream = spark.readStream.format("delta").load(str(source)).writeStream.format("delta")
        stream = stream.option("checkpointLocation", str(place.with_name(f"{place.name}_at")))
        stream.trigger(availableNow=True).start(str(place)).awaitTermination()
