"""A table that delta-spark wrote, loaded into a catalog commit by commit."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from deltasql.commit.staged import actions_from
from deltasql.model.actions import CommitInfo, Metadata
from deltasql.model.schema.convert import schema_to_arrow
from deltasql.model.schema.schema import StructType
from tests.mirror.support import LOG, commit_path, copy_table, published_versions
from tests.oracles.readers import DeltaSpark, Place
from tests.oracles.writing import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql import Catalog

# Deletion vectors, column mapping with a rename, constraints, a generated partition column, change
# data and an added column, all in one table.
_STATEMENTS = (
    """CREATE TABLE delta.`{place}` (
         id BIGINT NOT NULL, `the name` STRING, at TIMESTAMP,
         day DATE GENERATED ALWAYS AS (CAST(at AS DATE)))
       USING delta PARTITIONED BY (day)
       TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name',
                      'delta.enableChangeDataFeed' = 'true')""",
    """INSERT INTO delta.`{place}` (id, `the name`, at)
       SELECT /*+ REPARTITION(1) */ id, concat('n ', id),
              timestamp'2024-02-28 22:00:00' + make_interval(0, 0, 0, 0, id) FROM range(1, 8)""",
    "ALTER TABLE delta.`{place}` ADD CONSTRAINT small CHECK (id < 1000)",
    "DELETE FROM delta.`{place}` WHERE id IN (2, 5)",
    "ALTER TABLE delta.`{place}` RENAME COLUMN `the name` TO `the, title`",
    "UPDATE delta.`{place}` SET `the, title` = 'é' WHERE id = 3",
    "ALTER TABLE delta.`{place}` ADD COLUMN (more STRUCT<a: INT, `b c`: ARRAY<STRING>>)",
    """INSERT INTO delta.`{place}` (id, at, more) VALUES
       (100, timestamp'2024-03-01 00:00:00', named_struct('a', 1, 'b c', array('x', NULL)))""",
    "OPTIMIZE delta.`{place}`",
)


def write_foreign(spark: SparkSession, place: Path) -> None:
    """Write a table with delta-spark, one commit per statement."""
    for statement in _STATEMENTS:
        spark.sql(statement.format(place=place))


def stage_all_commits(catalog: Catalog, spark: SparkSession, source: Path, root: Path) -> Written:
    """Stage every commit of a foreign table in a table of the catalog, with the same files."""
    copy_table(source, root)
    shutil.rmtree(root / LOG)
    reader = DeltaSpark(spark)
    table: Written | None = None
    for version in published_versions(source):
        actions = actions_from(commit_path(source, version).read_bytes())
        kept = [each for each in actions if not isinstance(each, CommitInfo)]
        metadata = next((each for each in kept if isinstance(each, Metadata)), None)
        if table is None:
            assert metadata is not None
            table = _create(catalog, root, metadata)
            continue
        if metadata is not None:
            ours = table.table.snapshot().metadata
            kept[kept.index(metadata)] = replace(metadata, id=ours.id, name=ours.name)
        table.stage(kept, [], operation="IMPORT")
    assert table is not None
    versions = published_versions(source)
    table.states = [reader.rows(Place(str(source)), version) for version in versions]
    return table


def _create(catalog: Catalog, root: Path, metadata: Metadata) -> Written:
    catalog.create_table(
        "foreign",
        metadata.schema_string,
        location=str(root),
        partition_by=list(metadata.partition_columns),
        properties=metadata.configuration,
    )
    schema = schema_to_arrow(StructType.from_json(metadata.schema_string))
    return Written(catalog, "foreign", schema, metadata.partition_columns)
