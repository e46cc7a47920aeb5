"""Converts Parquet files to a table; the files stay at their location."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, StructType

from deltasql.operations.convert import convert_files
from deltasql.spark.errors import analysis_error
from deltasql.spark.session import path_in, place_of, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql.api.catalog.catalog import Catalog


def convert_table(
    spark: SparkSession, identifier: str, partition_schema: str | StructType | None
) -> tuple[Catalog, str]:
    """Create a table in the session's catalog from the Parquet files of parquet.`path`."""
    path = path_in(identifier)
    if path is None:
        raise analysis_error(
            f"{identifier} names no folder of Parquet files",
            "DELTA_MISSING_PROVIDER_FOR_CONVERT",
            help="Write parquet.`/path/to/folder`.",
        )
    catalog, name, location = place_of(spark, path)
    if table_at(catalog, path) is not None:
        return catalog, name
    partitions: DataType | None = None
    if isinstance(partition_schema, str):
        partitions = StructType.fromDDL(partition_schema)
    else:
        partitions = partition_schema
    found = convert_files(
        str(location),
        catalog.config.storage,
        partition_schema=partitions,
        strategy=None if partitions is None else "hive",
    )
    with catalog.begin() as tx:
        tx.create_table(name, found.schema, location=location, partition_by=found.partition_by)
        tx.stage_table(
            name,
            found.adds,
            operation="CONVERT",
            operation_parameters=found.parameters(collect_stats=True),
        )
    return catalog, name
