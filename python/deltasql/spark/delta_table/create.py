"""Creates tables from Parquet files, or as a clone of another table.

A shallow clone shares the files of its source; a deep clone has its own copies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType, StructType

from deltasql.api.transaction.definition import convert_folder, create_or_replace
from deltasql.exceptions import UnsupportedFeatureError
from deltasql.operations.alter.cluster_by import clustering_columns
from deltasql.operations.restore import add_file
from deltasql.spark.exceptions import analysis_error
from deltasql.spark.read import read_snapshot
from deltasql.spark.session import new_table_target, path_in, table_at
from deltasql.storage.location import address_url, data_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.model.actions import AddFile
    from deltasql.snapshot.snapshot import Snapshot

# Part of the names of in-commit timestamp properties, which belong to the log of the source.
_IN_COMMIT_TIMESTAMPS = "nCommitTimestamp"


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
    """Create a table with the rows, the schema and the properties of a snapshot, in one commit.

    A shallow clone reads the files of the source, and cannot be read after they are deleted.
    """
    catalog, name, location = new_table_target(spark, target)
    exists = catalog.exists(name)
    if exists and not replaces:
        raise analysis_error(
            f"Cannot create table {name} because it already exists.",
            "TABLE_OR_VIEW_ALREADY_EXISTS",
            help="Pass replace=True, or choose another name.",
        )
    metadata = source.metadata
    kept = {k: v for k, v in metadata.configuration.items() if _IN_COMMIT_TIMESTAMPS not in k}
    with catalog.begin() as tx:
        create_or_replace(
            tx,
            name,
            metadata.schema_string,
            exists=exists,
            replaces=replaces,
            location=location,
            partition_by=metadata.partition_columns,
            cluster_by=clustering_columns(source),
            properties={**kept, **properties},
            description=metadata.description,
        )
        if shallow:
            tx.stage_table(name, [_shared(source, row) for row in source.scan().arrow.to_pylist()])
        else:
            rows = read_snapshot(spark, source, catalog.config)
            tx.write(name, rows)
        parameters = {
            "source": source.table.location,
            "sourceVersion": str(source.version),
            "isShallow": str(shallow).lower(),
        }
        tx.target(name).set_commit_info("CLONE", parameters)
    return catalog, name


def _shared(source: Snapshot, row: Any) -> AddFile:
    added = add_file(row)
    if added.deletion_vector is not None:
        raise UnsupportedFeatureError(
            "a table with deletion vectors cannot be cloned without its files",
            table=source.table.full_name,
            features=("deletionVectors",),
            help="Call optimize().executeCompaction() first, or clone with isShallow=False.",
        )
    return replace(added, path=address_url(data_address(source.table.location, added.path)))
