"""UPDATE: set new values in rows for which a condition is true; only files with them change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.model.clock import Stopwatch
from deltasql.model.predicates.parser import Flavour, Scope
from deltasql.operations.rewrite import (
    ACTION,
    COPIED,
    UPDATED,
    action_of,
    checked_rows,
    count_rows_by_file,
    files_at,
    has_action,
    keeps_change_data,
    live_row_counts,
    write_changed_rows,
)
from deltasql.operations.rules.row_checks import rules_of
from deltasql.operations.sql.assignments import Computed, assignments, explained_casts, row_values
from deltasql.operations.sql.expressions import condition_of
from deltasql.operations.sql.normal_form import normal
from deltasql.operations.sql.queries import alias, case, column, is_true, select
from deltasql.operations.table_stage import adds_table_to_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from deltasql.engine.base import WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.operations.sql.assignments import Assignments
    from deltasql.operations.table_stage import TableStage


@adds_table_to_errors
def stage_update(
    stage: TableStage,
    updates: Mapping[str, str],
    predicate: str | None = None,
    *,
    safe_cast: bool = False,
    options: WriteOptions | None = None,
    flavour: Flavour = "datafusion",
) -> dict[str, int]:
    """Stage the update and return deltalake's metrics; `updates` maps columns to expressions.

    A value that does not fit its column is an error; with `safe_cast`, it becomes null.
    """
    clock = Stopwatch()
    metrics = {
        "num_added_files": 0,
        "num_removed_files": 0,
        "num_updated_rows": 0,
        "num_copied_rows": 0,
        "execution_time_ms": 0,
        "scan_time_ms": 0,
    }
    scope = Scope.of(stage.schema, "t")
    assigned = assignments(updates, scope, scope, safe=safe_cast, flavour=flavour)
    found = None if predicate is None else stage.predicate(predicate, flavour=flavour)
    files = stage.files(found)
    stage.read(whole_table=found is None, predicate=found, files=files)
    if not updates or not len(files):
        return metrics
    condition = None if found is None else condition_of(found, "t")
    affected, updated = files, None
    if condition is not None:
        matched = count_rows_by_file(
            stage.engine, stage.engine.scan(stage.live(files), positions=True), condition
        )
        affected, updated = files_at(files, matched), sum(matched.values())
    metrics["scan_time_ms"] = clock.lap_ms()
    if len(affected):
        rows = live_row_counts(stage, affected)
        metrics["num_updated_rows"] = sum(rows) if updated is None else updated
        metrics["num_copied_rows"] = sum(rows) - metrics["num_updated_rows"]
        added = _rewrite(stage, affected, condition, assigned, options)
        stage.add(added)
        stage.remove(affected)
        metrics["num_added_files"] = len(added)
        metrics["num_removed_files"] = len(affected)
        metrics["execution_time_ms"] = clock.total_ms()
        shown = "true"
        if predicate is not None:
            shown = normal(predicate, stage.schema, escapes=flavour == "spark")
        stage.set_commit_info("UPDATE", {"predicate": shown}, metrics)
    return metrics


def _new_values(stage: TableStage, assigned: Assignments) -> dict[str, exp.Expr]:
    return row_values(
        stage.schema,
        assigned,
        rules_of(stage).generated,
        lambda member: column(member.name, "t"),
    )


def _rewrite(
    stage: TableStage,
    affected: pa.Table,
    condition: exp.Expr | None,
    assigned: Assignments,
    options: WriteOptions | None,
) -> list[AddFile]:
    engine, schema = stage.engine, stage.schema
    scan = engine.scan(stage.live(affected))
    old = [column(name, "t") for name in schema.names]
    hit = exp.true() if condition is None else is_true(condition)
    action = case([(hit, action_of(UPDATED))], action_of(COPIED))
    marked = select(*old, alias(action, ACTION), source="t")
    before = engine.query(marked, t=scan)
    if keeps_change_data(stage):
        before = engine.keep(before)
    columns = []
    for name, value in _new_values(stage, assigned).items():
        present = column(name, "t")
        new = (
            value
            if value == present
            else case([(has_action(UPDATED, relation="t"), value)], present)
        )
        columns.append(alias(new, name))
    rewritten = select(*columns, column(ACTION, "t"), source="t")
    hit_rows = select(source="t", where=has_action(UPDATED, relation="t"))
    hits = Computed(assigned, hit_rows, {"t": before})
    with explained_casts(engine, hits):
        after = checked_rows(stage, engine.query(rewritten, t=before))
        change_data = before if keeps_change_data(stage) else None
        return write_changed_rows(stage, change_data, after, options)
