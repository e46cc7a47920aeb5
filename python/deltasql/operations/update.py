"""UPDATE: rows for which a condition is true get new values; only files with such rows change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

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
from deltasql.operations.checks import rules_of
from deltasql.operations.expressions import Flavour, Scope, normal, scalar
from deltasql.operations.info import tell
from deltasql.operations.sql_types import column, identifier, is_true
from deltasql.operations.target import names_table
from deltasql.operations.touched import Stopwatch, chosen, counted_rows, rows_by_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from deltasql.engine.base import WriteOptions
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
    condition = None if predicate is None else scalar(predicate, scope, flavour=flavour)
    touched, counts = _touched(target, files, condition)
    metrics["scan_time_ms"] = clock.lap_ms()
    if len(touched):
        rows = counted_rows(target, touched)
        metrics["num_updated_rows"] = sum(rows if counts is None else counts)
        metrics["num_copied_rows"] = sum(rows) - metrics["num_updated_rows"]
        metrics["num_added_files"] = _rewrite(target, touched, condition, assigned, options)
        metrics["num_removed_files"] = len(touched)
        metrics["execution_time_ms"] = clock.total_ms()
        shown = "true" if predicate is None else normal(predicate)
        tell(target, "UPDATE", {"predicate": shown}, metrics)
    return metrics


def _touched(
    target: Target, files: pa.Table, condition: exp.Expr | None
) -> tuple[pa.Table, list[int] | None]:
    """Return the files with rows to update, and how many each has; None when all of them are."""
    if condition is None:
        return files, None
    scan = target.engine.scan(target.live(files), positions=True)
    matched = rows_by_file(target, scan, condition)
    return chosen(files, matched), [matched[place] for place in sorted(matched)]


def _rewrite(
    target: Target,
    touched: pa.Table,
    condition: exp.Expr | None,
    assigned: Assignments,
    options: WriteOptions | None,
) -> int:
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
    values = row_values(
        schema, assigned, rules_of(target).generated, lambda member: column(member.name, "t")
    )
    columns = []
    for name, value in values.items():
        present = column(name, "t")
        new = value if value == present else exp.case().when(changed.copy(), value).else_(present)
        columns.append(exp.alias_(new, identifier(name)))
    rewritten = exp.select(*columns, column(ACTION, "t")).from_(exp.to_table("t"))
    hits = Computed(assigned, exp.select().from_(exp.to_table("t")).where(changed), {"t": before})
    with explained_casts(engine, hits):
        after = checked_rows(target, engine.query(rewritten, t=before))
        added = write_changed_rows(target, before, after, options)
    target.add(added)
    target.remove(touched)
    return len(added)
