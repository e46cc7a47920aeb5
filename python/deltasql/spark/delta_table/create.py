"""Creates tables from Parquet files, or as a clone of another table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, StructType

from deltasql.api.transaction.definition import convert_folder
from deltasql.spark.exceptions import analysis_error
from deltasql.spark.session import new_table_target, path_in, table_at
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.snapshot.snapshot import Snapshot


def convert_table(
    spark: SparkSession, identifier: str, partition_schema: str | StructType | None
) -> tuple[Catalog, str]:
    """Create a table in the session's catalog from the Parquet files of parquet.`path`.

    The files stay at their location.
    """
    path = path_in(identifier)
    if path is None:
        raise analysis_error(
            f"{identifier} is not a folder of Parquet files",
            "DELTA_MISSING_PROVIDER_FOR_CONVERT",
            help="Write parquet.`/path/to/folder`.",
        )
    catalog, name, location = new_table_target(spark, path)
    if table_at(catalog, path) is not None:
        return catalog, name
    partitions: DataType | None = (
        StructType.fromDDL(partition_schema)
        if isinstance(partition_schema, str)
        else partition_schema
    )
    with catalog.begin() as tx:
        convert_folder(tx, name, str(location), partitions)
    return catalog, name


def clone_table(
    spark: SparkSession,
    source: Snapshot,
    target: str,
    *,
    shallow: bool,
    replaces: bool,
    properties: Mapping[str, str],
) -> tuple[Catalog, str]:
    """Create a table with the rows, the schema and the properties of a snapshot, in one commit."""
    catalog, name, location = new_table_target(spark, target)
    if catalog.exists(name) and not replaces:
        raise analysis_error(
            f"Cannot create table {name} because it already exists.",
            "TABLE_OR_VIEW_ALREADY_EXISTS",
            help="Pass replace=True, or choose another name.",
        )
    catalog.clone(
        join_table_name(source.table.namespace, source.table.name),
        name,
        shallow=shallow,
        version=source.version,
        replace=replaces,
        location=location,
        properties=properties,
    )
    return catalog, name
