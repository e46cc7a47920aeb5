"""delta-spark writes before, during and after a time with authority SQL; all readers agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pytest

from deltasql.exceptions import TableFollowsError
from tests.migrate.authority_support import (
    NAME,
    is_write_blocked,
    open_catalog,
    ours,
    sql_ids,
    verify_all_versions,
)
from tests.migrate.sources import read_ids, rows
from tests.mirror.support import commit_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(f"deltasql://sqlite/{tmp_path}/meta.db") as opened:
        yield opened


def spark_ids(spark: SparkSession, place: Path, version: int | None = None) -> list[int]:
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return sorted(row.id for row in reader.load(str(place)).select("id").collect())


def spark_append(spark: SparkSession, place: Path, *ids: int) -> None:
    frame = spark.createDataFrame(rows(*ids).to_pandas())
    frame.write.format("delta").mode("append").partitionBy("p").save(str(place))


@pytest.mark.everything("delta-spark as a second writer")
def test_delta_spark_table_can_be_followed_cut_over_and_rolled_back(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    place = tmp_path / NAME
    spark_append(spark, place, 1, 2, 3)
    catalog.follow(str(place))
    # Every operation of delta-spark is followed.
    for change in (
        f"UPDATE delta.`{place}` SET id = 30 WHERE id = 3",
        f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        f"INSERT INTO delta.`{place}` VALUES (4, 'b'), (6, 'b'), (8, 'b')",
        f"DELETE FROM delta.`{place}` WHERE id = 6",
    ):
        spark.sql(change)
        catalog.refresh(NAME)
        assert sql_ids(catalog) == spark_ids(spark, place), change
    assert verify_all_versions(catalog)
    with pytest.raises(TableFollowsError):
        ours(catalog, 5)

    assert catalog.cutover(NAME).state == "cut over"
    version = ours(catalog, 5)
    assert spark_ids(spark, place) == sql_ids(catalog) == [1, 2, 4, 5, 8, 30]
    assert verify_all_versions(catalog)

    # delta-spark supports in-commit timestamps: its foreign commits are adopted.
    spark_append(spark, place, 7)
    assert "inCommitTimestamp" in commit_lines(place, version + 1)[0]["commitInfo"]
    assert catalog.mirror.adopt(NAME).adopted == {version + 1: version + 1}
    assert sql_ids(catalog) == [1, 2, 4, 5, 7, 8, 30]

    report = catalog.rollback(NAME)
    assert report.timestamps_dropped
    spark_append(spark, place, 9)
    spark.sql(f"DELETE FROM delta.`{place}` WHERE id = 1")
    assert spark_ids(spark, place) == [2, 4, 5, 7, 8, 9, 30]
    assert spark_ids(spark, place, version) == [1, 2, 4, 5, 8, 30]
    history = spark.sql(f"DESCRIBE HISTORY delta.`{place}`").collect()
    operations = [row.operation for row in history]
    assert operations[:3] == ["DELETE", "WRITE", "DROP FEATURE"]
    assert [row.version for row in history] == list(range(len(history) - 1, -1, -1))
    times = [row.timestamp for row in history]
    assert times == sorted(times, reverse=True)
    properties = spark.sql(f"DESCRIBE DETAIL delta.`{place}`").collect()[0].tableFeatures
    assert "inCommitTimestamp" not in properties

    catalog.follow(str(place))
    assert sql_ids(catalog) == spark_ids(spark, place)
    assert verify_all_versions(catalog)


@pytest.mark.everything("delta-spark writes by path, beyond the smoke set")
def test_table_replaced_by_delta_spark_is_followed(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    """With another schema and other partitions; the versions continue."""
    place = tmp_path / NAME
    spark_append(spark, place, 1, 2)
    catalog.follow(str(place))
    frame = spark.sql("SELECT 5L AS id, DATE '2026-01-01' AS day")
    replacing = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    replacing.partitionBy("day").save(str(place))
    assert catalog.refresh(NAME).commits == 1
    assert sql_ids(catalog) == spark_ids(spark, place) == [5]
    assert verify_all_versions(catalog)
    catalog.cutover(NAME)
    assert spark_ids(spark, place) == [5]
    assert sql_ids(catalog, 0) == [1, 2]


@pytest.mark.everything("delta-spark writes by path, beyond the smoke set")
def test_deltalake_and_delta_spark_can_write_after_a_rollback(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    place = tmp_path / NAME
    deltalake.write_deltalake(str(place), rows(1), partition_by=["p"])
    spark_append(spark, place, 2)
    catalog.import_table(str(place))
    catalog.cutover(NAME)
    assert is_write_blocked(place)
    ours(catalog, 3)
    catalog.mirror.checkpoint(NAME)
    catalog.rollback(NAME)
    deltalake.write_deltalake(str(place), rows(4), mode="append")
    spark_append(spark, place, 5)
    deltalake.DeltaTable(str(place)).optimize.compact()
    spark.sql(f"OPTIMIZE delta.`{place}`")
    deltalake.DeltaTable(str(place)).create_checkpoint()
    spark.sql(f"UPDATE delta.`{place}` SET id = 50 WHERE id = 5")
    assert spark_ids(spark, place) == read_ids(place) == [1, 2, 3, 4, 50]


@pytest.mark.everything("delta-spark writes by path, beyond the smoke set")
def test_table_keeps_the_in_commit_timestamps_of_delta_spark(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    place = tmp_path / NAME
    spark.sql(
        f"CREATE TABLE delta.`{place}` (id BIGINT, p STRING) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')"
    )
    spark_append(spark, place, 1)
    catalog.follow(str(place))
    report = catalog.cutover(NAME)
    assert (report.state, report.version) == ("cut over", None)
    ours(catalog, 2)
    assert spark_ids(spark, place) == [1, 2]
    assert not catalog.rollback(NAME).timestamps_dropped
    spark_append(spark, place, 3)
    assert spark_ids(spark, place) == [1, 2, 3]
    stamps = [
        commit_lines(place, version)[0]["commitInfo"]["inCommitTimestamp"] for version in range(4)
    ]
    assert stamps == sorted(set(stamps))
