"""delta-spark cannot write to a fenced table, but reads it, and writes again after a rollback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import deltasql.spark
from deltasql.model.protocol import FENCE
from tests.migrate.authority_support import NAME, open_catalog, ours, sql_ids, verify_all_versions
from tests.migrate.sources import rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

MORE = "statements of delta-spark on a fenced table, beyond the append"
STATEMENTS = (
    "DELETE FROM {} WHERE id = 1",
    "UPDATE {} SET id = 5 WHERE id = 1",
    "MERGE INTO {} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "INSERT OVERWRITE {} VALUES (7L, 'a')",
    "OPTIMIZE {} ZORDER BY (id)",
    "VACUUM {} RETAIN 1000 HOURS",
    "ALTER TABLE {} ADD COLUMNS (day DATE)",
    "ALTER TABLE {} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "RESTORE TABLE {} TO VERSION AS OF 0",
)


@pytest.fixture
def catalog(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(catalog_uri, table={"data_root": str(tmp_path / "lake")}) as opened:
        yield opened


@pytest.fixture
def table(catalog: Catalog) -> str:
    """A fenced table with two rows, as delta-spark names it."""
    for number in (1, 2):
        with catalog.begin() as tx:
            tx.write(NAME, rows(number))
    assert catalog.fence(NAME).is_published
    return f"delta.`{catalog.table(NAME).location}`"


def ids(spark: SparkSession, table: str) -> list[int]:
    return sorted(row.id for row in spark.sql(f"SELECT id FROM {table}").collect())


def is_refused(spark: SparkSession, statement: str) -> bool:
    # PySpark converts only some of Delta's exceptions.
    with pytest.raises((PySparkException, Py4JJavaError), match=FENCE):
        spark.sql(statement)
    return True


@pytest.mark.one_database
def test_delta_spark_reads_a_fenced_table_and_cannot_append(
    spark: SparkSession, catalog: Catalog, table: str
) -> None:
    catalog.mirror.checkpoint(NAME)
    assert is_refused(spark, f"INSERT INTO {table} VALUES (9, 'a')")
    assert ids(spark, table) == sql_ids(catalog) == [1, 2]
    assert verify_all_versions(catalog)


@pytest.mark.everything(MORE)
@pytest.mark.parametrize("checkpointed", [False, True])
def test_delta_spark_cannot_change_a_fenced_table(
    spark: SparkSession, catalog: Catalog, table: str, checkpointed: bool
) -> None:
    if checkpointed:
        catalog.mirror.checkpoint(NAME)
        ours(catalog, 3)
    for statement in STATEMENTS:
        assert is_refused(spark, statement.format(table)), statement
    assert ids(spark, table) == sql_ids(catalog) == [1, 2, 3][: 2 + checkpointed]
    assert verify_all_versions(catalog)


@pytest.mark.everything(MORE)
def test_delta_spark_writes_after_unfence_and_rollback(
    spark: SparkSession, catalog: Catalog, table: str
) -> None:
    catalog.unfence(NAME)
    spark.sql(f"INSERT INTO {table} VALUES (9, 'a')")
    catalog.mirror.adopt(NAME)
    catalog.fence(NAME)
    assert is_refused(spark, f"DELETE FROM {table}")
    assert catalog.rollback(NAME).fence_dropped
    spark.sql(f"DELETE FROM {table} WHERE id = 1")
    assert ids(spark, table) == [2, 9]


@pytest.mark.everything(MORE)
def test_log_store_options_warn_about_a_fence_and_fence_warns_about_the_log_store(
    spark: SparkSession, catalog: Catalog, table: str
) -> None:
    with pytest.warns(UserWarning, match=f"fenced: {NAME}.*deltasql table unfence"):
        deltasql.spark.log_store_options(catalog)
    catalog.unfence(NAME)
    (warning,) = catalog.fence(NAME).warnings
    assert "LogStore" in warning
