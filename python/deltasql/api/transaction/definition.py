"""Stage the definition of a table: a new table, a new definition, or a folder of Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.operations.alter.cluster_by import cluster_by as set_clustering
from deltasql.operations.convert import convert_files
from deltasql.operations.create import replace_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.api.transaction.transaction import MultiTableTransaction


def create_or_replace(
    tx: MultiTableTransaction,
    name: str,
    schema: object,
    *,
    exists: bool,
    replaces: bool,
    location: str | None,
    partition_by: Sequence[str],
    cluster_by: Sequence[str],
    properties: Mapping[str, str],
    description: str | None,
) -> None:
    """Stage a new table, or a new definition of a table that exists.

    With `replaces`, the commit conflicts if another commit creates the table first.
    """
    if exists:
        target = tx.target(name)
        replace_table(target, schema, partition_by, properties, description=description)
        set_clustering(target, cluster_by)
        return
    create = tx.create_missing if replaces else tx.create_table
    create(
        name,
        schema,
        location=location,
        partition_by=partition_by,
        properties=properties,
        description=description,
        cluster_by=cluster_by,
    )


def convert_folder(
    tx: MultiTableTransaction, name: str, location: str, partitions: object = None
) -> None:
    """Stage a new table of the Parquet files in a folder; the files stay where they are.

    `partitions` is the schema of the partition columns, whose values are in the folders' names.
    """
    found = convert_files(
        location,
        tx.catalog.config.storage,
        partition_schema=partitions,
        strategy=None if partitions is None else "hive",
    )
    parameters = found.parameters(collect_stats=True)
    tx.create_table(name, found.schema, location=location, partition_by=found.partition_by)
    tx.stage_table(name, found.adds, operation="CONVERT", operation_parameters=parameters)
