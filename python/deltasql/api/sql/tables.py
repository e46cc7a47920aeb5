"""CREATE TABLE, REPLACE TABLE and CONVERT TO DELTA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltasql.api.transaction import definition
from deltasql.exceptions import TableExistsError, TxnLogTableNotFoundError
from deltasql.operations.create import record_create
from deltasql.operations.write import schema_to_create
from deltasql.store.locations import tables_at
from deltasql.uri import DEFAULT_NAMESPACE, join_table_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.api.sql.engine import StatementEngine
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.model.statements.statement import Clone, CreateTable


def create_table(
    tx: MultiTableTransaction,
    engine: StatementEngine,
    statement: CreateTable,
    name: str,
    values: Mapping[str, Any],
) -> pa.Table:
    """Stage a new table or a new definition of a table; only a clone returns a row."""
    exists = tx.has_table(name)
    if exists and not statement.replaces:
        if statement.if_not_exists:
            return pa.table({})
        raise TableExistsError(
            f"table {name} already exists",
            table=name,
            help="Write CREATE TABLE IF NOT EXISTS or CREATE OR REPLACE TABLE.",
        )
    if not exists and not statement.creates:
        raise TxnLogTableNotFoundError(
            f"table {name} cannot be replaced, because it does not exist",
            table=name,
            help="Write CREATE OR REPLACE TABLE.",
        )
    if statement.clone is not None:
        return _clone(tx, engine, statement, statement.clone, name)
    rows = None
    if statement.query is not None:
        rows = engine.rows(tx, statement.query.text, values)
    definition.create_or_replace(
        tx,
        name,
        statement.columns if rows is None else schema_to_create(rows),
        exists=exists,
        replaces=statement.replaces,
        location=None if statement.location is None else engine.location(statement.location),
        partition_by=statement.partition_by,
        cluster_by=statement.cluster_by,
        properties=statement.properties,
        description=statement.comment,
    )
    if statement.constraints:
        engine.start(tx, name)
        tx.add_constraint(name, dict(statement.constraints), engine=engine.name)
    if rows is not None:
        tx.write(name, rows, engine=engine.name)
    _record(tx, statement, name, exists=exists)
    return pa.table({})


def _clone(
    tx: MultiTableTransaction,
    engine: StatementEngine,
    statement: CreateTable,
    clone: Clone,
    name: str,
) -> pa.Table:
    """Stage a copy of a table at a version; returns the row that delta-spark returns."""
    location, at = statement.location, clone.at
    report = tx.clone(
        engine.table(tx, clone.source),
        name,
        shallow=clone.is_shallow,
        version=at if isinstance(at, int) else None,
        timestamp=engine.timestamp(at) if isinstance(at, str) else None,
        replace=statement.replaces,
        location=None if location is None else engine.location(location),
        properties=statement.properties,
    )
    row = {
        "source_table_size": report.bytes,
        "source_num_of_files": report.files,
        "num_removed_files": report.removed_files,
        "num_copied_files": report.copied_files,
        "removed_files_size": report.removed_bytes,
        "copied_files_size": report.copied_bytes,
    }
    return pa.table({key: pa.array([value], pa.int64()) for key, value in row.items()})


def _record(tx: MultiTableTransaction, statement: CreateTable, name: str, *, exists: bool) -> None:
    """Set the commitInfo of a table's definition, with the operation names of delta-spark."""
    target = tx.target(name)
    metrics = target.staged.info.operation_metrics
    record_create(target, "Overwrite" if exists else "ErrorIfExists", replaces=exists)
    words = ["CREATE OR REPLACE" if statement.replaces else "CREATE", "TABLE"]
    if not statement.creates:
        words[0] = "REPLACE"
    if statement.query is not None:
        words.append("AS SELECT")
    info = target.staged.info
    target.set_commit_info(" ".join(words), info.operation_parameters, metrics)


def convert_folder(
    tx: MultiTableTransaction, location: str, partitions: object, name: str | None = None
) -> None:
    """Stage a table of the files in a folder, unless the folder belongs to a table already.

    By default, the table has the name of the folder.
    """
    tx.catalog.store.create()
    if any(row.dropped_at_ms is None for row in tables_at(tx.catalog.store.query, location)):
        return
    folder = location.rstrip("/").rpartition("/")[2]
    definition.convert_folder(
        tx, name or join_table_name(DEFAULT_NAMESPACE, folder), location, partitions
    )
