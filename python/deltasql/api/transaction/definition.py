"""Stage the definition of a table: new, replaced, a clone, or of a folder of Parquet files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import UnsupportedFeatureError
from deltasql.operations.alter.cluster_by import cluster_by as set_clustering
from deltasql.operations.alter.cluster_by import clustering_columns
from deltasql.operations.convert import convert_files
from deltasql.operations.create import replace_table
from deltasql.operations.table_stage import add_file
from deltasql.storage.location import address_url, data_address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.model.actions import AddFile
    from deltasql.snapshot.snapshot import Snapshot

# Part of the names of in-commit timestamp properties, which belong to the log of the source.
_IN_COMMIT_TIMESTAMPS = "nCommitTimestamp"


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


def clone_snapshot(
    tx: MultiTableTransaction,
    name: str,
    source: Snapshot,
    rows: Any = None,
    *,
    exists: bool,
    replaces: bool,
    location: str | None,
    properties: Mapping[str, str],
    engine: str | None = None,
) -> None:
    """Stage a table with the definition of a snapshot, and its rows.

    Without `rows`, it is a shallow clone: it reads the files of the source, and cannot be read
    after they are deleted.
    """
    metadata = source.metadata
    kept = {k: v for k, v in metadata.configuration.items() if _IN_COMMIT_TIMESTAMPS not in k}
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
    if rows is None:
        tx.stage_table(name, [_shared(source, row) for row in source.scan().arrow.to_pylist()])
    else:
        tx.write(name, rows, engine=engine)
    parameters = {
        "source": source.table.location,
        "sourceVersion": str(source.version),
        "isShallow": str(rows is None).lower(),
    }
    tx.target(name).set_commit_info("CLONE", parameters)


def _shared(source: Snapshot, row: Any) -> AddFile:
    added = add_file(row)
    if added.deletion_vector is not None:
        raise UnsupportedFeatureError(
            "a table with deletion vectors cannot be cloned without its files",
            table=source.table.full_name,
            features=("deletionVectors",),
            help="Optimize the table first, or make a deep clone.",
        )
    return replace(added, path=address_url(data_address(source.table.location, added.path)))


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
