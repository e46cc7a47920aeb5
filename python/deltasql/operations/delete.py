"""DELETE: remove the rows for which a condition is true; only files with such rows change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.engine.base import FILE, ROW
from deltasql.model.clock import Stopwatch
from deltasql.operations.deletion_vectors import (
    files_to_mark,
    mark_deleted,
    uses_vectors,
)
from deltasql.operations.rewrite import (
    change_type,
    count_rows_by_file,
    files_at,
    in_partitions,
    keeps_change_data,
    live_row_counts,
    logged_row_counts,
    record_whole_files,
    write_change_data,
)
from deltasql.operations.row_ids import scan_to_rewrite
from deltasql.operations.sql.expressions import condition_of
from deltasql.operations.sql.normal_form import normal
from deltasql.operations.sql.queries import column, is_not_true, select
from deltasql.operations.table_stage import adds_table_to_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot import exp

    from deltasql.engine.base import WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.model.predicates.parser import Flavour
    from deltasql.operations.table_stage import TableStage


@adds_table_to_errors
def stage_delete(
    stage: TableStage,
    predicate: str | None = None,
    *,
    options: WriteOptions | None = None,
    flavour: Flavour = "datafusion",
) -> dict[str, int]:
    """Stage the deletion and return deltalake's metrics.

    Rows for which the condition is null are not deleted. No file is read if there is no predicate,
    or if the predicate uses only partition columns.
    """
    clock = Stopwatch()
    metrics = {
        "num_added_files": 0,
        "num_removed_files": 0,
        "num_deleted_rows": 0,
        "num_copied_rows": 0,
        "execution_time_ms": 0,
        "scan_time_ms": 0,
        "rewrite_time_ms": 0,
    }
    found = None if predicate is None else stage.predicate(predicate, flavour=flavour)
    # Convert the predicate now, so that an invalid one is reported before any file is read.
    condition = None if found is None else condition_of(found, "t")
    files = stage.files(found)
    stage.read(whole_table=found is None, predicate=found, files=files)
    if found is None or condition is None:
        _remove_whole(stage, files, metrics)
    elif found.partition_only:
        _remove_whole(stage, in_partitions(stage, files, found), metrics)
    elif len(files):
        _remove_rows(stage, files, condition, options, metrics, clock)
    metrics["execution_time_ms"] = clock.total_ms()
    if metrics["num_removed_files"] or metrics.get("num_deletion_vectors_added"):
        parameters = {}
        if predicate is not None:
            shown = normal(predicate, stage.schema, escapes=flavour == "spark")
            parameters = {"predicate": shown}
        stage.set_commit_info("DELETE", parameters, metrics)
    return metrics


def _remove_whole(stage: TableStage, files: pa.Table, metrics: dict[str, int]) -> None:
    counts = logged_row_counts(files)
    known = [count for count in counts if count is not None]
    metrics["num_removed_files"] = len(files)
    if len(known) == len(counts):
        metrics["num_deleted_rows"] = sum(known)
    else:  # do not read files without statistics only to count their rows
        del metrics["num_deleted_rows"]
    if len(files):
        record_whole_files(stage, files, "delete")
        stage.remove(files)


def _remove_rows(
    stage: TableStage,
    files: pa.Table,
    condition: exp.Expr,
    options: WriteOptions | None,
    metrics: dict[str, int],
    clock: Stopwatch,
) -> None:
    engine = stage.engine
    scan = engine.scan(stage.live(files), positions=True)
    positions = None
    if uses_vectors(stage):
        matching = select(column(FILE), column(ROW), source="t", where=condition.copy())
        positions = engine.positions(engine.query(matching, t=scan))
        matched = {index: len(found) for index, found in positions.items()}
    else:
        matched = count_rows_by_file(engine, scan, condition)
    affected = files_at(files, matched)
    deleted = [matched[index] for index in sorted(matched)]
    metrics["scan_time_ms"] = clock.lap_ms()
    if not matched:
        return
    rows = live_row_counts(stage, affected)
    marked = files_to_mark(stage, affected, deleted)
    replaced = [index for index in range(len(affected)) if index not in set(marked)]
    partly = [index for index in replaced if deleted[index] < rows[index]]
    added = []
    if partly:
        added = _rewrite_files(stage, files_at(affected, partly), condition, options)
    if not (partly or marked):
        record_whole_files(stage, affected, "delete", options)
    elif keeps_change_data(stage):
        _write_deleted_rows(stage, affected, condition, options)
    stage.remove(files_at(affected, replaced))
    stage.add(added)
    if positions is not None and marked:
        sets = [positions[index] for index in sorted(positions)]
        metrics |= mark_deleted(stage, affected, {index: sets[index] for index in marked})
    metrics["num_added_files"] = len(added)
    metrics["num_removed_files"] = len(replaced)
    metrics["num_deleted_rows"] = sum(deleted)
    metrics["num_copied_rows"] = sum(rows[index] - deleted[index] for index in partly)
    metrics["rewrite_time_ms"] = clock.lap_ms()


def _rewrite_files(
    stage: TableStage, files: pa.Table, condition: exp.Expr, options: WriteOptions | None
) -> list[AddFile]:
    engine = stage.engine
    columns = [column(name, "t") for name in stage.stored_schema.names]
    kept = select(*columns, source="t", where=is_not_true(condition))
    rows = engine.query(kept, t=scan_to_rewrite(stage, files))
    return engine.write(rows, stage.plan(options, rewrites=True))


def _write_deleted_rows(
    stage: TableStage, affected: pa.Table, condition: exp.Expr, options: WriteOptions | None
) -> None:
    columns = [column(name, "t") for name in stage.schema.names]
    deleted = select(*columns, change_type("delete"), source="t", where=condition.copy())
    scan = stage.engine.scan(stage.live(affected))
    write_change_data(stage, stage.engine.query(deleted, t=scan), options)
