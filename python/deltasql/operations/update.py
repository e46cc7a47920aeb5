"""UPDATE: set new values in rows for which a condition is true; only files with them change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.engine.base import FILE, ROW
from deltasql.model.clock import Stopwatch
from deltasql.model.predicates.parser import Flavour, Scope
from deltasql.operations.deletion_vectors import files_to_mark, mark_deleted
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
from deltasql.operations.row_ids import scan_to_rewrite
from deltasql.operations.rules.identity import reject_identity_update
from deltasql.operations.rules.row_checks import rules_of
from deltasql.operations.sql.assignments import Computed, assignments, explained_casts, row_values
from deltasql.operations.sql.expressions import condition_of
from deltasql.operations.sql.normal_form import normal
from deltasql.operations.sql.queries import alias, case, column, is_true, select, union
from deltasql.operations.table_stage import adds_table_to_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from deltasql._core import RowSet
    from deltasql.engine.base import Relation, WriteOptions
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
    reject_identity_update(stage.schema, assigned)
    found = None if predicate is None else stage.predicate(predicate, flavour=flavour)
    files = stage.files(found)
    stage.read(whole_table=found is None, predicate=found, files=files)
    if not updates or not len(files):
        return metrics
    condition = None if found is None else condition_of(found, "t")
    affected, updated, marked = files, None, list[int]()
    if condition is not None:
        matched = count_rows_by_file(
            stage.engine, stage.engine.scan(stage.live(files), positions=True), condition
        )
        affected = files_at(files, matched)
        updated = [matched[index] for index in sorted(matched)]
        marked = files_to_mark(stage, affected, updated)
    metrics["scan_time_ms"] = clock.lap_ms()
    if len(affected):
        rows = live_row_counts(stage, affected)
        replaced = [index for index in range(len(affected)) if index not in set(marked)]
        copied = 0 if updated is None else sum(rows[each] - updated[each] for each in replaced)
        metrics["num_updated_rows"] = sum(rows if updated is None else updated)
        metrics["num_copied_rows"] = copied
        work = _Update(stage, condition, assigned, options)
        replaced_files, marked_files = files_at(affected, replaced), files_at(affected, marked)
        added, deleted = work.write(replaced_files, marked_files)
        stage.remove(replaced_files)
        stage.add(added)
        if deleted:
            metrics |= mark_deleted(stage, marked_files, deleted)
        metrics["num_added_files"] = len(added)
        metrics["num_removed_files"] = len(replaced)
        metrics["execution_time_ms"] = clock.total_ms()
        shown = "true"
        if predicate is not None:
            shown = normal(predicate, stage.schema, escapes=flavour == "spark")
        stage.set_commit_info("UPDATE", {"predicate": shown}, metrics)
    return metrics


def _new_values(stage: TableStage, assigned: Assignments) -> dict[str, exp.Expr]:
    return row_values(
        stage.stored_schema,
        assigned,
        rules_of(stage).generated,
        lambda member: column(member.name, "t"),
    )


@dataclass(frozen=True, slots=True)
class _Update:
    """Writes the rows of an update to new files."""

    stage: TableStage
    condition: exp.Expr | None
    assigned: Assignments
    options: WriteOptions | None

    def write(
        self, replaced: pa.Table, marked: pa.Table
    ) -> tuple[list[AddFile], dict[int, RowSet]]:
        """Write all rows of replaced files, and the updated rows of marked files.

        Return the new files, and the positions of the updated rows by the index of the marked file.
        """
        engine = self.stage.engine
        updated = self._updated(marked) if len(marked) else None
        before = self._before(replaced, updated)
        keeps_changes = keeps_change_data(self.stage)
        if keeps_changes:
            before = engine.keep(before)
        columns = []
        for name, value in _new_values(self.stage, self.assigned).items():
            present = column(name, "t")
            new = (
                value
                if value == present
                else case([(has_action(UPDATED, relation="t"), value)], present)
            )
            columns.append(alias(new, name))
        rewritten = select(*columns, column(ACTION, "t"), source="t")
        hit_rows = select(source="t", where=has_action(UPDATED, relation="t"))
        hits = Computed(self.assigned, hit_rows, {"t": before})
        with explained_casts(engine, hits):
            after = checked_rows(self.stage, engine.query(rewritten, t=before))
            change_data = before if keeps_changes else None
            added = write_changed_rows(self.stage, change_data, after, self.options)
        return added, {} if updated is None else engine.positions(updated)

    def _updated(self, files: pa.Table) -> Relation:
        """Return the rows to update, with their positions.

        They are computed once and stored. If a random condition made two computations differ, the
        rows that are marked as deleted would not be the rows that are written.
        """
        engine = self.stage.engine
        found = select(
            *self._columns(),
            column(FILE, "t"),
            column(ROW, "t"),
            source="t",
            where=None if self.condition is None else is_true(self.condition),
        )
        scan = scan_to_rewrite(self.stage, files, positions=True)
        return engine.keep(engine.query(found, t=scan))

    def _before(self, replaced: pa.Table, updated: Relation | None) -> Relation:
        """Return the rows to write, with their old values and the column ACTION."""
        engine = self.stage.engine
        hit = exp.true() if self.condition is None else is_true(self.condition)
        action = case([(hit, action_of(UPDATED))], action_of(COPIED))
        whole = select(*self._columns(), alias(action, ACTION), source="t")
        if updated is None:
            return engine.query(whole, t=scan_to_rewrite(self.stage, replaced))
        always = alias(action_of(UPDATED), ACTION)
        columns = [column(name, "u") for name in self.stage.stored_schema.names]
        some = select(*columns, always, source="u")
        if not len(replaced):
            return engine.query(some, u=updated)
        scan = scan_to_rewrite(self.stage, replaced)
        return engine.query(union(whole, some), t=scan, u=updated)

    def _columns(self) -> list[exp.Column]:
        return [column(name, "t") for name in self.stage.stored_schema.names]
