"""Stage table definitions: of new tables, of clones, and of folders of Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.exceptions import TableExistsError, TxnLogTransactionError
from deltasql.operations.alter.cluster_by import cluster_by as set_clustering
from deltasql.operations.alter.cluster_by import clustering_columns
from deltasql.operations.clone.clone import cloned_properties, stage_clone
from deltasql.operations.convert import convert_files
from deltasql.operations.create import replace_table
from deltasql.snapshot.snapshot import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.model.progress import OnProgress
    from deltasql.operations.clone.clone import CloneReport


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
        target = tx.target_to_change(name)
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


def clone_table(
    tx: MultiTableTransaction,
    source: str,
    target: str,
    *,
    shallow: bool,
    version: int | None,
    timestamp: datetime | None,
    replaces: bool,
    location: str | None,
    properties: Mapping[str, str],
    on_progress: OnProgress | None,
) -> CloneReport:
    """Stage a clone of a table at a version, by default the version that the transaction sees."""
    now = tx.snapshot(source) if not tx.creates(source) else None
    is_current = version is None and timestamp is None
    if now is None or (is_current and source in tx.tables):
        raise TxnLogTransactionError(
            f"{source} cannot be cloned, because this transaction changes it",
            table=source,
            help="Commit the changes first, or clone a version that is committed.",
        )
    older = now
    if is_current:
        tx.target(source).read(whole_table=True)
    else:
        older = open_snapshot(now.store, now.table, now.cache, version=version, timestamp=timestamp)
    exists = tx.has_table(target)
    if exists and not replaces:
        raise TableExistsError(
            f"table {target} already exists",
            table=target,
            help="Choose another name, or replace the table: replace=True, --replace, or "
            "CREATE OR REPLACE TABLE.",
        )
    if exists and tx.target(target).location == now.table.location:
        raise TxnLogTransactionError(
            f"{target} cannot be replaced by a clone of itself",
            table=target,
            help="To go back to an older version, restore the table.",
        )
    create_or_replace(
        tx,
        target,
        older.metadata.schema_string,
        exists=exists,
        replaces=replaces,
        location=location,
        partition_by=older.metadata.partition_columns,
        cluster_by=clustering_columns(older),
        properties={**cloned_properties(older), **properties},
        description=older.metadata.description,
    )
    return stage_clone(
        tx.target(target),
        older,
        shallow=shallow,
        may_lack_files=older.version < now.version,
        on_progress=on_progress,
    )
