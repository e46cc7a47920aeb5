"""Tables of delta-spark with every kind of log: commits, checkpoints, deletion vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql import DeletionVector
from tests.migrate.spark_tables import clean_up, configured, forget, run
from tests.mirror.published import change_commit
from tests.mirror.support import LOG
from tests.oracles.deletion_vectors import deleted_rows, inline_vector

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def plain(spark: SparkSession, place: Path) -> None:
    """A log without checkpoints, with comments, a VARCHAR column and application transactions."""
    run(
        spark,
        place,
        """CREATE TABLE {t} (id BIGINT NOT NULL COMMENT 'the "key"', code VARCHAR(5),
           nothing VOID, bytes BINARY, price DECIMAL(38, 10), ok BOOLEAN, small TINYINT, real FLOAT)
           USING delta COMMENT 'a table of délta-spark'
           TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 30 days', 'any' = 'a=b')""",
        """INSERT INTO {t} SELECT id, 'c' || id, NULL, CAST('ab' AS BINARY), id / 3, true,
           CAST(-id AS TINYINT), CAST(id AS FLOAT) / 7 FROM range(6)""",
        "ALTER TABLE {t} ADD CONSTRAINT small CHECK (id < 1000)",
        "DELETE FROM {t} WHERE id = 1",
        "INSERT OVERWRITE {t} SELECT * FROM {t} WHERE id <> 4",
    )
    for number in (1, 2):
        rows = spark.range(50, 51).selectExpr("id", f"'t{number}' AS code")
        writer = rows.write.format("delta").mode("append").option("userMetadata", '{"a": "é"}')
        writer.option("txnAppId", "etl, été").option("txnVersion", number).save(str(place))


def every_operation(spark: SparkSession, place: Path) -> None:
    """Updates, merges, OPTIMIZE, RESTORE and VACUUM of delta-spark."""
    run(
        spark,
        place,
        "CREATE TABLE {t} USING delta AS SELECT id, 'c' || id AS code FROM range(6)",
        "UPDATE {t} SET code = NULL WHERE id = 2",
        """MERGE INTO {t} t USING (SELECT explode(array(3, 7)) AS id) s ON t.id = s.id
           WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, code) VALUES (s.id, 'new')""",
        "OPTIMIZE {t}",
        "RESTORE TABLE {t} TO VERSION AS OF 1",
        "VACUUM {t}",
    )


def classic_checkpoints(spark: SparkSession, place: Path) -> None:
    """A checkpoint every third version, and commits between and after them."""
    _fill(spark, place, "'delta.checkpointInterval' = '3'", commits=5)


def many_part_checkpoint(spark: SparkSession, place: Path) -> None:
    """A multipart checkpoint; the older commits are deleted."""
    with configured(spark, {"spark.databricks.delta.checkpoint.partSize": "3"}):
        _fill(spark, place, "'delta.checkpointInterval' = '100'", commits=3)
        clean_up(spark, place)
    run(spark, place, "INSERT INTO {t} VALUES (100, 'é')")


def v2_parquet_checkpoint(spark: SparkSession, place: Path) -> None:
    """A V2 checkpoint in Parquet with several sidecars; the older commits are deleted."""
    _v2(spark, place, "parquet")


def v2_json_checkpoint(spark: SparkSession, place: Path) -> None:
    """A V2 checkpoint in JSON with several sidecars; the older commits are deleted."""
    _v2(spark, place, "json")


def typed_statistics(spark: SparkSession, place: Path) -> None:
    """A checkpoint that has statistics only as columns; the older commits are deleted."""
    run(
        spark,
        place,
        """CREATE TABLE {t} (id BIGINT, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, name STRING,
           price DECIMAL(12, 3), real DOUBLE, single FLOAT, ok BOOLEAN, s STRUCT<a: INT, b: STRING>,
           p TIMESTAMP) USING delta PARTITIONED BY (p)
           TBLPROPERTIES ('delta.checkpoint.writeStatsAsStruct' = 'true',
                          'delta.checkpoint.writeStatsAsJson' = 'false')""",
        """INSERT INTO {t} SELECT id, timestamp'2024-05-01 10:11:12.123456', NULL,
           date'1969-12-31', 'é"' || id, CAST(id AS DECIMAL(12, 3)) / 8, -1.5e300, 0.1, id = 1,
           struct(CAST(id AS INT), NULL), timestamp'2024-05-01 10:11:12.5' FROM range(3)""",
        """INSERT INTO {t} (id, local, real, p)
           VALUES (9, timestamp_ntz'2024-05-01 23:59:59.999999', double('NaN'), NULL)""",
        "DELETE FROM {t} WHERE id = 1",
    )
    clean_up(spark, place)
    run(spark, place, "INSERT INTO {t} (id) VALUES (10)")


def deletion_vectors(spark: SparkSession, place: Path) -> None:
    """Deletion vectors in separate files; one data file has two vectors, one after the other."""
    run(
        spark,
        place,
        """CREATE TABLE {t} (id BIGINT, v STRING) USING delta
           TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')""",
        "INSERT INTO {t} SELECT /*+ REPARTITION(1) */ id, 'a' || id FROM range(20)",
        "DELETE FROM {t} WHERE id % 5 = 0",
        "DELETE FROM {t} WHERE id = 4",
    )


def vectors_of_every_operation(spark: SparkSession, place: Path) -> None:
    """Deletion vectors of updates and merges, removed by a purge."""
    deletion_vectors(spark, place)
    run(
        spark,
        place,
        "UPDATE {t} SET v = 'changed' WHERE id IN (1, 2)",
        """MERGE INTO {t} t USING (SELECT explode(array(3, 33)) AS id) s ON t.id = s.id
           WHEN MATCHED THEN UPDATE SET v = 'm' WHEN NOT MATCHED THEN INSERT (id) VALUES (id)""",
        "RESTORE TABLE {t} TO VERSION AS OF 2",
        "REORG TABLE {t} APPLY (PURGE)",
    )


def inline_vectors(spark: SparkSession, place: Path) -> None:
    """Inline deletion vectors, as other engines write them."""
    deletion_vectors(spark, place)
    for version in (2, 3):
        change_commit(place, version, lambda action: _inline(action, place))
    for file in (place / LOG).glob("*crc"):
        file.unlink()  # they contain what was changed, or its checksum
    forget(spark)


def shallow_clone(spark: SparkSession, place: Path) -> None:
    """Data files and vectors of another table, which the log names by absolute URL."""
    source = place.with_name(f"{place.name} of é")
    run(
        spark,
        source,
        """CREATE TABLE {t} (id BIGINT, p STRING) USING delta PARTITIONED BY (p)
           TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')""",
        "INSERT INTO {t} SELECT /*+ REPARTITION(1) */ id, IF(id < 4, 'a b', 'ü%') FROM range(9)",
        "DELETE FROM {t} WHERE id IN (2, 7)",
    )
    spark.sql(f"CREATE TABLE delta.`{place}` SHALLOW CLONE delta.`{source}`")
    run(
        spark,
        place,
        "DELETE FROM {t} WHERE id = 3",
        "INSERT INTO {t} VALUES (10, 'a b')",
    )


def _fill(spark: SparkSession, place: Path, properties: str, *, commits: int) -> None:
    run(
        spark,
        place,
        f"""CREATE TABLE {{t}} (id BIGINT, p STRING) USING delta PARTITIONED BY (p)
            TBLPROPERTIES ({properties})""",
        *(
            f"INSERT INTO {{t}} VALUES ({number}, 'x{number % 2}'), ({-number}, NULL)"
            for number in range(1, commits)
        ),
        "DELETE FROM {t} WHERE id = 1",
    )


def _v2(spark: SparkSession, place: Path, top: str) -> None:
    wanted = {
        "spark.databricks.delta.checkpointV2.topLevelFileFormat": top,
        "spark.databricks.delta.checkpoint.partSize": "3",
    }
    with configured(spark, wanted):
        _fill(spark, place, "'delta.checkpointPolicy' = 'v2'", commits=3)
        rows = spark.range(50, 51).selectExpr("id", "'x1' AS p").write.format("delta")
        options = rows.mode("append").option("txnAppId", "etl").option("txnVersion", 3)
        options.save(str(place))
        clean_up(spark, place)
    run(spark, place, "INSERT INTO {t} VALUES (100, 'é')")


def _inline(action: dict[str, Any], place: Path) -> None:
    for file in (action.get("add"), action.get("remove")):
        if file and file.get("deletionVector"):
            vector = DeletionVector.from_body(file["deletionVector"])
            rows = deleted_rows(vector, lambda name: (place / name).read_bytes())
            file["deletionVector"] = inline_vector(rows).body()
