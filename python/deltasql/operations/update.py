"""UPDATE: rows for which a condition is true get new values; only files with such rows change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.engine.base import FILE, ROW
from deltasql.engine.changes import rows_by_file
from deltasql.operations.assignments import Computed, assignments, explained_casts, row_values
from deltasql.operations.change_data import keeps_change_data
from deltasql.operations.changed_rows import (
    ACTION,
    COPIED,
    UPDATED,
    action_of,
    checked_rows,
    write_changed_rows,
)
from deltasql.operations.checks import checked, rules_of
from deltasql.operations.expressions import Flavour, Scope, parse_condition
from deltasql.operations.info import tell
from deltasql.operations.normal_form import normal
from deltasql.operations.revision import new_rows, revised_files
from deltasql.operations.sql_types import column, identifier, is_true
from deltasql.operations.target import names_table
from deltasql.operations.touched import Stopwatch, chosen, counted_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from deltasql.engine.base import Relation, WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.operations.assignments import Assignments
    from deltasql.operations.target import Target


@names_table
def stage_update(
    target: Target,
    updates: Mapping[str, str],
    predicate: str | None = None,
    *,
    safe_cast: bool = False,
    options: WriteOptions | None = None,
    flavour: Flavour = "datafusion",
) -> dict[str, int]:
    """Stage new values by column and return deltalake's metrics.

    A value that does not fit its column is an error, or null with `safe_cast`.
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
    scope = Scope.of(target.schema, "t")
    assigned = assignments(updates, scope, scope, safe=safe_cast, flavour=flavour)
    found = None if predicate is None else target.predicate(predicate)
    files = target.files(found)
    target.read(whole_table=found is None, predicate=found, files=files)
    if not updates or not len(files):
        return metrics
    condition = None if predicate is None else parse_condition(predicate, scope, flavour=flavour)
    found_rows = _find(target, files, condition, assigned, options)
    touched, counts = chosen(files, found_rows.places), found_rows.counts
    metrics["scan_time_ms"] = clock.lap_ms()
    if len(touched):
        rows = counted_rows(target, touched)
        metrics["num_updated_rows"] = sum(rows if counts is None else counts)
        metrics["num_copied_rows"] = sum(rows) - metrics["num_updated_rows"]
        added = _write(target, touched, found_rows, condition, assigned, options)
        target.add(added)
        target.remove(touched)
        metrics["num_added_files"] = len(added)
        metrics["num_removed_files"] = len(touched)
        metrics["execution_time_ms"] = clock.total_ms()
        shown = "true"
        if predicate is not None:
            shown = normal(predicate, target.schema, escapes=flavour == "spark")
        tell(target, "UPDATE", {"predicate": shown}, metrics)
    return metrics


@dataclass(frozen=True, slots=True)
class _Found:
    """The rows to update."""

    places: list[int]
    """Of the files that have such rows."""
    counts: list[int] | None
    """How many each of them has; None when all are."""
    changes: Relation | None = None
    """The new values, where files can be revised with them."""


def _find(
    target: Target,
    files: pa.Table,
    condition: exp.Expr | None,
    assigned: Assignments,
    options: WriteOptions | None,
) -> _Found:
    if condition is None:
        return _Found(list(range(len(files))), None)
    engine, live = target.engine, target.live(files)
    scan = engine.scan(live, positions=True)
    new = _new_values(target, assigned)
    present = {name: value for name, value in new.items() if value != column(name, "t")}
    changes: Relation | None = None
    if (
        engine.revises(live, target.plan(options))
        and present.keys().isdisjoint(target.partition_columns)
        and not keeps_change_data(target)
    ):
        hits = exp.select().from_(exp.to_table("t")).where(condition.copy())
        with explained_casts(engine, Computed(assigned, hits, {"t": scan})):
            if rules_of(target):
                # Computed once: a random value that is checked has to be the one that is written.
                whole = checked(target, new_rows(target, scan, condition, new))
                columns = [column(name) for name in (FILE, ROW, *present)]
                changes = engine.query(exp.select(*columns).from_(exp.to_table("r")), r=whole)
                matched = rows_by_file(engine, changes)
            else:
                found = new_rows(target, scan, condition, present)
                changes, matched = engine.keep_changes(found)
    else:
        matched = rows_by_file(engine, scan, condition)
    places = sorted(matched)
    return _Found(places, [matched[place] for place in places], changes)


def _new_values(target: Target, assigned: Assignments) -> dict[str, exp.Expr]:
    return row_values(
        target.schema,
        assigned,
        rules_of(target).generated,
        lambda member: column(member.name, "t"),
    )


def _write(
    target: Target,
    touched: pa.Table,
    found: _Found,
    condition: exp.Expr | None,
    assigned: Assignments,
    options: WriteOptions | None,
) -> list[AddFile]:
    if found.changes is None:
        return _rewrite(target, touched, condition, assigned, options)
    plan = target.plan(options)
    added, left = revised_files(target, touched, found.places, found.changes, plan)
    if left:
        added += _rewrite(target, chosen(touched, left), condition, assigned, options)
    return added


def _rewrite(
    target: Target,
    touched: pa.Table,
    condition: exp.Expr | None,
    assigned: Assignments,
    options: WriteOptions | None,
) -> list[AddFile]:
    engine, schema = target.engine, target.schema
    scan = engine.scan(target.live(touched))
    old = [column(name, "t") for name in schema.names]
    hit = exp.true() if condition is None else is_true(condition)
    action = exp.case().when(hit, action_of(UPDATED)).else_(action_of(COPIED))
    marked = exp.select(*old, exp.alias_(action, identifier(ACTION))).from_(exp.to_table("t"))
    before = engine.query(marked, t=scan)
    if keeps_change_data(target):
        before = engine.keep(before)
    changed = exp.EQ(this=column(ACTION, "t"), expression=action_of(UPDATED))
    columns = []
    for name, value in _new_values(target, assigned).items():
        present = column(name, "t")
        new = value if value == present else exp.case().when(changed.copy(), value).else_(present)
        columns.append(exp.alias_(new, identifier(name)))
    rewritten = exp.select(*columns, column(ACTION, "t")).from_(exp.to_table("t"))
    hits = Computed(assigned, exp.select().from_(exp.to_table("t")).where(changed), {"t": before})
    with explained_casts(engine, hits):
        after = checked_rows(target, engine.query(rewritten, t=before))
        return write_changed_rows(target, before, after, options)
