"""WRITE of files that another program wrote for the table: add them with their statistics.

The program gets a folder below the table's root, for which an intent is recorded. It writes Parquet
files there and reports their names and partition values. The statistics come from the footers.
"""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engine.parquet.file_shape import file_shape
from deltasql.engine.parquet.footer_stats import read_footer
from deltasql.engine.parquet.writer import add_action, has_tight_bounds, partition_folder
from deltasql.exceptions import TxnLogEngineError, TxnLogTransactionError, UnsupportedFeatureError
from deltasql.model.features.iceberg_compat import MATERIALIZED, enabled_compat
from deltasql.model.features.row_tracking import FEATURE
from deltasql.model.schema.column_mapping import has_nested_ids
from deltasql.model.schema.schema import column_mapping_mode
from deltasql.operations.delete import stage_delete
from deltasql.operations.rewrite import in_partitions, record_whole_files
from deltasql.operations.rules.row_checks import reject_append_only, rules_of
from deltasql.operations.sql.normal_form import normal
from deltasql.operations.table_stage import adds_table_to_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.model.actions import AddFile
    from deltasql.model.predicates.predicate import Predicate
    from deltasql.operations.table_stage import TableStage
    from deltasql.storage import FileInfo, Storage

_FOOTERS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file in the folder, and its partition values as strings for the log, by column name."""

    name: str
    partition: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Which rows new files replace: all rows, rows that meet a condition, or whole partitions."""

    predicate: str | None = None
    same_partitions: bool = False
    rows_match: bool = False
    """Whether the program has checked that all new rows match a condition on their values."""


def new_folder(stage: TableStage) -> str:
    """Return the name of a new folder for files of the table, and record an intent for it."""
    folder = uuid.uuid4().hex[:12]
    stage.plan().intend([f"{folder}/"])
    stage.storage.make_root()
    return folder


@adds_table_to_errors
def reject_unchecked_rules(stage: TableStage) -> None:
    """Raise if the table has rules for its rows that the writer of the files cannot check.

    NOT NULL is not one of them: the writer must check it.
    """
    rules = rules_of(stage)
    names = [*rules.conditions, *rules.generated]
    if names:
        raise UnsupportedFeatureError(
            f"{stage.name} has constraints or generated columns that this client does not "
            f"check: {', '.join(names)}",
            features=("checkConstraints" if rules.conditions else "generatedColumns",),
            help="Use the jar of this release, or deltasql.spark.write, which check them.",
        )


@adds_table_to_errors
def reject_materialized(stage: TableStage) -> None:
    """Raise if files must contain the partition columns: Spark does not write them to files."""
    if stage.partition_columns and stage.plan().materializes_partitions:
        raise UnsupportedFeatureError(
            f"the files of {stage.name} must contain the partition columns, which Spark does not "
            "write to files",
            features=(MATERIALIZED,),
            help="Write this table with the embedded engine.",
        )


@adds_table_to_errors
def reject_nested_ids(stage: TableStage) -> None:
    """Raise if files need field ids of array elements, because Spark does not write these ids."""
    if has_nested_ids(stage.schema):
        raise UnsupportedFeatureError(
            f"the files of {stage.name} must contain the field ids of array elements and map "
            "entries, which Spark does not write",
            features=tuple(enabled_compat(stage.configuration)),
            help="Write this table with the embedded engine.",
        )


@adds_table_to_errors
def reject_row_tracking(stage: TableStage) -> None:
    """Raise if rows have ids, because a program that rewrites rows does not preserve the ids."""
    if stage.row_columns:
        raise UnsupportedFeatureError(
            f"{stage.name} has row tracking, and this client does not keep the ids of rows",
            features=(FEATURE,),
            help="Use the jar of this release, or run the statement with deltasql.spark.sql.",
        )


@adds_table_to_errors
def stage_written(
    stage: TableStage,
    folder: str,
    files: Sequence[WrittenFile],
    overwrite: Overwrite | None = None,
    *,
    operation: str = "WRITE",
    reads: Sequence[str | None] = (),
) -> None:
    """Stage files in a folder, and the removal of the files that they replace.

    `reads` are the conditions of scans of the same table that computed the rows; None is a scan of
    the whole table.
    """
    adds = add_actions(stage, folder, files)
    removed, kept = (0, 0) if overwrite is None else _remove_replaced(stage, adds, overwrite)
    stage.add(adds)
    record_whole_files(stage, stage.listed(adds), "insert")
    for condition in reads:
        record_read(stage, condition)
    # The files have the current schema, so a concurrent change of the schema is a conflict.
    stage.record_read_version()
    rows = sum(json.loads(add.stats or "{}").get("numRecords", 0) for add in adds)
    partitions = json.dumps(list(stage.partition_columns), ensure_ascii=False)
    parameters = {"mode": "Append" if overwrite is None else "Overwrite", "partitionBy": partitions}
    if overwrite is not None and overwrite.predicate is not None:
        parameters["predicate"] = normal(overwrite.predicate, stage.schema, escapes=True)
    stage.set_commit_info(
        operation,
        parameters,
        {
            "num_added_files": len(adds) + kept,
            "num_removed_files": removed,
            "num_added_rows": rows,
        },
    )


def record_read(stage: TableStage, condition: str | None) -> pa.Table:
    """Add a scan to the read set, and return its files; without a condition, all files."""
    predicate = None if condition is None else stage.predicate(condition)
    files = stage.files(predicate)
    stage.read(whole_table=predicate is None, predicate=predicate, files=files)
    return files


def add_actions(stage: TableStage, folder: str, files: Sequence[WrittenFile]) -> list[AddFile]:
    """Return the add actions of files in a folder, with statistics from the footers.

    The files are flushed to disk, and an intent is recorded for each.
    """
    if not files:
        return []
    plan, storage = stage.plan(), stage.storage
    shape, tight = file_shape(plan), has_tight_bounds(plan)
    placed = place_files(stage, folder, files)
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        footers = list(pool.map(lambda each: read_footer(storage, each.name, shape, tight), placed))
    return [
        add_action(
            plan,
            each.name,
            each.partition,
            size=each.info.size,
            modified_ms=each.info.modified_ms,
            stats=footer.stats,
        )
        for each, footer in zip(placed, footers, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file in the folder of its partition, and its partition values by physical name."""

    name: str
    partition: Mapping[str, str | None]
    info: FileInfo


def place_files(stage: TableStage, folder: str, files: Sequence[WrittenFile]) -> list[PlacedFile]:
    """Move files to the folders of their partitions, and flush them to disk.

    An intent is recorded for each file.
    """
    storage = stage.storage
    present = {info.name: info for info in storage.list(folder)}
    missing = [file.name for file in files if f"{folder}/{file.name}" not in present]
    if missing:
        raise TxnLogEngineError(
            f"this process does not see the file {folder}/{missing[0]} in {stage.location}",
            engine="spark",
            help="The service, the driver and the executors must access the same storage: "
            "use a shared file system or an object store for the table's location.",
        )
    mode = column_mapping_mode(stage.configuration)
    physical = {
        name: field.physical_name(mode)
        for name in stage.partition_columns
        if (field := stage.schema.find(name)) is not None
    }
    placed = []
    for file in files:
        partition = {physical[name]: value for name, value in file.partition.items()}
        name = _in_partition_folder(storage, folder, file.name, partition)
        placed.append(PlacedFile(name, partition, present[f"{folder}/{file.name}"]))
    names = [each.name for each in placed]
    stage.plan().intend(names)
    # Spark does not sync files to disk, so do it here, before the commit.
    storage.flush(names)
    return placed


def _in_partition_folder(
    storage: Storage, folder: str, name: str, partition: Mapping[str, str | None]
) -> str:
    """Return the name of a file in the folder of its partition; move it there if necessary.

    Some readers take partition values from folder names.
    """
    wanted = f"{folder}/{partition_folder(partition)}{name.rpartition('/')[2]}"
    if wanted != f"{folder}/{name}":
        storage.rename(f"{folder}/{name}", wanted, flush_folder=False)
    return wanted


def _remove_replaced(
    stage: TableStage, adds: Sequence[AddFile], overwrite: Overwrite
) -> tuple[int, int]:
    """Remove the rows that the overwrite replaces.

    Return the number of removed files, and the number of new files for rows that are not replaced.
    """
    if overwrite.predicate is not None:
        predicate = stage.predicate(overwrite.predicate, flavour="spark")
        if not predicate.partition_only:
            return _delete_matching(stage, overwrite)
        _check_partitions(stage, adds, predicate)
        replaced = _in_partitions(stage, predicate)
    else:
        replaced = _replaced(stage, adds, overwrite)
    if len(replaced):
        reject_append_only(stage)
    record_whole_files(stage, replaced, "delete")
    stage.remove(replaced)
    return len(replaced), 0


def _delete_matching(stage: TableStage, overwrite: Overwrite) -> tuple[int, int]:
    """Delete the rows for which the condition is true, with the engine of this process."""
    if not overwrite.rows_match:
        raise UnsupportedFeatureError(
            "this client does not check the new rows of an overwrite, which is necessary for a "
            f"condition on columns that are not partition columns: {overwrite.predicate}",
            features=("replaceWhere",),
            help="Use the jar of this release, or "
            "deltasql.spark.write(df, uri, mode='overwrite', replace_where=…).",
        )
    metrics = stage_delete(stage, overwrite.predicate, flavour="spark")
    if metrics["num_removed_files"]:
        reject_append_only(stage)
    return metrics["num_removed_files"], metrics["num_added_files"]


def _check_partitions(stage: TableStage, adds: Sequence[AddFile], predicate: Predicate) -> None:
    if adds and len(in_partitions(stage, stage.listed(adds), predicate)) < len(adds):
        raise TxnLogTransactionError(
            f"some of the new rows do not match the condition of the overwrite: {predicate.sql}",
            help="Filter the rows, or append them.",
        )


def _in_partitions(stage: TableStage, predicate: Predicate) -> pa.Table:
    """Return the files of partitions that meet a condition, and add them to the read set."""
    found = stage.files(predicate)
    files = in_partitions(stage, found, predicate) if len(found) else found
    stage.read(predicate=predicate, files=files)
    return files


def _replaced(stage: TableStage, adds: Sequence[AddFile], overwrite: Overwrite) -> pa.Table:
    """Return all files, or the files in the partitions of the new files.

    The whole table is added to the read set.
    """
    files = stage.files()
    stage.read(whole_table=True, files=files)
    if not overwrite.same_partitions or not stage.partition_columns:
        return files
    new = pa.array(set(stage.live(stage.listed(adds)).partitions.to_pylist()), pa.string())
    return files.filter(pc.is_in(stage.live(files).partitions, value_set=new))
