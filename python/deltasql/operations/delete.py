"""DELETE: rows for which a condition is true leave the table; only files with such rows change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.operations.changes.write import (
    change_type,
    keeps_change_data,
    tell_whole_files,
    write_change_data,
)
from deltasql.operations.commit_info import set_commit_info
from deltasql.operations.sql.expressions import Flavour, Scope, parse_condition
from deltasql.operations.sql.normal_form import normal
from deltasql.operations.sql.queries import select
from deltasql.operations.sql.types import column, is_not_true
from deltasql.operations.target import adds_table_to_errors
from deltasql.operations.touched import (
    Stopwatch,
    chosen,
    counted_rows,
    file_rows,
    in_partitions,
    rows_by_file,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot import exp

    from deltasql.engine.base import WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.operations.target import TableStage


@adds_table_to_errors
def stage_delete(
    target: TableStage,
    predicate: str | None = None,
    *,
    options: WriteOptions | None = None,
    flavour: Flavour = "datafusion",
) -> dict[str, int]:
    """Stage the deletion and return deltalake's metrics; a null condition keeps the row.

    Without a predicate, or with one on partition columns alone, no file is read.
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
    found = None if predicate is None else target.predicate(predicate)
    condition = None
    if predicate is not None:  # a slip is told before any file is looked at
        condition = parse_condition(predicate, Scope.of(target.schema, "t"), flavour=flavour)
    files = target.files(found)
    target.read(whole_table=found is None, predicate=found, files=files)
    if found is None or predicate is None or condition is None:
        _remove_whole(target, files, metrics)
    elif found.partition_only:
        _remove_whole(target, in_partitions(target, files, predicate, flavour), metrics)
    elif len(files):
        _remove_rows(target, files, condition, options, metrics, clock)
    metrics["execution_time_ms"] = clock.total_ms()
    if metrics["num_removed_files"]:
        parameters = {}
        if predicate is not None:
            shown = normal(predicate, target.schema, escapes=flavour == "spark")
            parameters = {"predicate": shown}
        set_commit_info(target, "DELETE", parameters, metrics)
    return metrics


def _remove_whole(target: TableStage, files: pa.Table, metrics: dict[str, int]) -> None:
    counts = file_rows(files)
    known = [count for count in counts if count is not None]
    metrics["num_removed_files"] = len(files)
    if len(known) == len(counts):
        metrics["num_deleted_rows"] = sum(known)
    else:  # the log does not tell, and the files are not opened for it
        del metrics["num_deleted_rows"]
    if len(files):
        tell_whole_files(target, files, "delete")
        target.remove(files)


def _remove_rows(
    target: TableStage,
    files: pa.Table,
    condition: exp.Expr,
    options: WriteOptions | None,
    metrics: dict[str, int],
    clock: Stopwatch,
) -> None:
    scan = target.engine.scan(target.live(files), positions=True)
    matched = rows_by_file(target.engine, scan, condition)
    touched = chosen(files, matched)
    deleted = [matched[place] for place in sorted(matched)]
    metrics["scan_time_ms"] = clock.lap_ms()
    if not matched:
        return
    rows = counted_rows(target, touched)
    partly = [place for place, count in enumerate(deleted) if count < rows[place]]
    if partly:
        added = _written_anew(target, chosen(touched, partly), condition, options)
        if keeps_change_data(target):
            _tell_changes(target, touched, condition, options)
        target.add(added)
        metrics["num_added_files"] = len(added)
    else:
        tell_whole_files(target, touched, "delete", options)
    target.remove(touched)
    metrics["num_removed_files"] = len(touched)
    metrics["num_deleted_rows"] = sum(deleted)
    metrics["num_copied_rows"] = sum(rows[place] - deleted[place] for place in partly)
    metrics["rewrite_time_ms"] = clock.lap_ms()


def _written_anew(
    target: TableStage, files: pa.Table, condition: exp.Expr, options: WriteOptions | None
) -> list[AddFile]:
    engine = target.engine
    columns = [column(name, "t") for name in target.schema.names]
    kept = select(*columns, source="t", where=is_not_true(condition))
    return engine.write(engine.query(kept, t=engine.scan(target.live(files))), target.plan(options))


def _tell_changes(
    target: TableStage, touched: pa.Table, condition: exp.Expr, options: WriteOptions | None
) -> None:
    columns = [column(name, "t") for name in target.schema.names]
    gone = select(*columns, change_type("delete"), source="t", where=condition.copy())
    scan = target.engine.scan(target.live(touched))
    write_change_data(target, target.engine.query(gone, t=scan), options)
