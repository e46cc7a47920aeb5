"""The queries of a MERGE: match rows, decide the clause of each, and compute the new rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.engine.base import FILE, ROW
from deltasql.operations.merge.plan import SOURCE, TARGET, Branch, MergePlan
from deltasql.operations.rewrite import (
    ACTION,
    COPIED,
    DELETED,
    INSERTED,
    UPDATED,
    action_of,
)
from deltasql.operations.sql.assignments import row_values
from deltasql.operations.sql.queries import (
    alias,
    all_of,
    any_of,
    case,
    column,
    count_rows,
    equal,
    is_not_null,
    is_null,
    join,
    number,
    same,
    select,
    subquery,
    table,
)
from deltasql.operations.sql.types import typed_null

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from deltasql.model.schema.schema import StructField, StructType

NUMBER = "__deltasql_source"
"""Column: the number of a source row."""
BRANCH = "__deltasql_branch"
"""Column: the number of the clause that applies to a row; null if no clause applies."""
MATCHES = "__deltasql_matches"
"""Column: the number of source rows that would change the target row."""
NEW_FILE = "__deltasql_new_file"
"""Column: the index of a file in the scan of the affected files."""
_ACTIONS = {"update": UPDATED, "delete": DELETED, "insert": INSERTED}


def matches(plan: MergePlan, *, only_changes: bool) -> exp.Select:
    """Return the query for the pairs of rows that match, with the clause that applies to each.

    `only_changes` omits pairs to which no clause applies.
    """
    where = None
    if only_changes and all(each.condition is not None for each in plan.matched):
        conditions = [each.condition for each in plan.matched if each.condition is not None]
        where = any_of(*(exp.Paren(this=each.copy()) for each in conditions))
    return select(
        column(FILE, TARGET),
        column(ROW, TARGET),
        column(NUMBER, SOURCE),
        alias(_branch(plan.matched), BRANCH),
        source=TARGET,
        joins=[join(SOURCE, plan.on.copy())],
        where=where,
    )


def matched_sources(plan: MergePlan) -> exp.Select:
    """Return the query for the source rows that match a target row.

    It replaces `matches` for a merge that only inserts rows.
    """
    return select(
        column(NUMBER, SOURCE),
        source=TARGET,
        joins=[join(SOURCE, plan.on.copy())],
        distinct=True,
    )


def decisions() -> exp.Select:
    """Return the query for the clause and the source row of every target row that matches.

    `m` has the pairs. The number of matches does not include pairs to which no clause applies.
    """
    wanting = case([(is_not_null(column(BRANCH)), column(NUMBER))])
    return select(
        column(FILE),
        column(ROW),
        alias(exp.Min(this=column(BRANCH)), BRANCH),
        alias(exp.Min(this=wanting), NUMBER),
        alias(exp.Count(this=wanting.copy()), MATCHES),
        source="m",
        group_by=[column(FILE), column(ROW)],
    )


def not_in_decisions(branches: Sequence[Branch]) -> exp.Select:
    """Return the query for the file and the clause of every target row that is not in `d`."""
    return select(
        column(FILE, TARGET),
        alias(_branch(branches), BRANCH),
        source=TARGET,
        joins=[join("d", _same_row(TARGET, "d"), left=True)],
        where=is_null(column(FILE, "d")),
    )


def by_file(rows: exp.Select) -> exp.Select:
    """Return the query that counts rows by file and clause.

    Its columns are the file, the clause, the number of rows, and the maximum number of source rows
    for one of these rows.
    """
    counts_matches = MATCHES in rows.named_selects
    most = exp.Max(this=column(MATCHES)) if counts_matches else number(1)
    return select(
        column(FILE),
        column(BRANCH),
        alias(count_rows(), "n"),
        alias(most, "most"),
        source=subquery(rows, "r"),
        where=is_not_null(column(BRANCH)),
        group_by=[column(FILE), column(BRANCH)],
    )


def joined_by_key(plan: MergePlan, *columns: exp.Expr) -> exp.Select:
    """Return the query that joins the rows to rewrite and the source by the merge condition.

    It selects `columns`. `t` has the rows of the files to rewrite, `s` the source. If the merge
    inserts rows, source rows without a target row are included.
    """
    side = "FULL" if plan.not_matched else "LEFT"
    source = exp.Join(this=table(SOURCE), on=plan.on.copy(), side=side)
    found = select(*columns, source=TARGET, joins=[source])
    conditions = [each.condition for each in plan.not_matched if each.condition is not None]
    if conditions and len(conditions) == len(plan.not_matched):
        is_inserted = (each.copy() for each in conditions)
        where = any_of(is_not_null(column(FILE, TARGET)), *is_inserted)
        found.set("where", exp.Where(this=where))
    return found


def merged_by_key(
    plan: MergePlan, schema: StructType, generated: Mapping[str, exp.Expr]
) -> exp.Select:
    """Return the query for the rows of `joined_by_key` after the merge.

    Its columns are the table's columns and the column ACTION.
    """
    branches = (*plan.matched, *plan.not_matched, *plan.not_matched_by_source)
    rows = {
        each.number: row_values(
            schema, each.assigned, generated, _target_column, is_new=each.kind == "insert"
        )
        for each in branches
    }

    def merged(member: StructField) -> exp.Expr:
        value = _by_clause(
            plan, lambda branch: rows[branch.number][member.name], lambda: _target_column(member)
        )
        return alias(value, member.name)

    values = map(merged, schema.fields)
    return joined_by_key(plan, *values, _action_by_clause(plan))


def unchanged_by_key(plan: MergePlan, schema: StructType) -> exp.Select:
    """Return the query for the rows of `joined_by_key` before the merge, with column ACTION."""
    columns = (column(name, TARGET) for name in schema.names)
    return joined_by_key(plan, *columns, _action_by_clause(plan))


def joined(source_columns: Sequence[str], *, moved: bool) -> exp.Select:
    """Return the query for the rows of the files to rewrite, each with its source row, if any.

    `t` has the rows of the files, `d` the result of `decisions`, `x` the source. Set `moved` if the
    files have different indexes in `t` than in `d`; then `f` maps the indexes of `d` to those of
    `t`.
    """
    joins = [join("x", same(NUMBER, "d", "x"), left=True)]
    if moved:
        joins.insert(0, join("f", same(FILE, "d", "f")))
    right = select(
        alias(column(NEW_FILE, "f"), FILE) if moved else column(FILE, "d"),
        column(ROW, "d"),
        column(BRANCH, "d"),
        *(column(name, "x") for name in source_columns),
        source="d",
        joins=joins,
    )
    return select(
        source=TARGET,
        joins=[join(subquery(right, SOURCE), _same_row(TARGET, SOURCE), left=True)],
    )


def decided_branch(plan: MergePlan) -> exp.Expr:
    """Return the clause that applies to a joined row; null if the row is only copied."""
    matched = column(BRANCH, SOURCE)
    if not plan.not_matched_by_source:
        return matched
    by_source = _branch(plan.not_matched_by_source)
    return case([(is_null(column(FILE, SOURCE)), by_source)], matched)


def rewritten(
    joined_rows: exp.Select,
    schema: StructType,
    plan: MergePlan,
    generated: Mapping[str, exp.Expr],
) -> exp.Select:
    """Return the query for the joined rows after the merge, with column ACTION."""
    branches = (*plan.matched, *plan.not_matched_by_source)
    values = _values(
        schema,
        [each for each in branches if each.kind == "update"],
        lambda: decided_branch(plan),
        generated,
        _target_column,
    )
    return _with_columns(joined_rows, *values, _action(branches, lambda: decided_branch(plan)))


def changed(
    joined_rows: exp.Select,
    schema: StructType,
    plan: MergePlan,
    generated: Mapping[str, exp.Expr],
) -> exp.Select:
    """Return the query for the joined rows that the merge changes, like `rewritten`.

    It also has the positions of the rows: FILE and ROW.
    """
    found = rewritten(joined_rows, schema, plan, generated)
    found = found.select(column(FILE, TARGET), column(ROW, TARGET))
    found.set("where", exp.Where(this=is_not_null(decided_branch(plan))))
    return found


def unchanged(joined_rows: exp.Select, schema: StructType, plan: MergePlan) -> exp.Select:
    """Return the query for the joined rows before the merge, with column ACTION."""
    branches = (*plan.matched, *plan.not_matched_by_source)
    return _with_columns(
        joined_rows,
        *(column(name, TARGET) for name in schema.names),
        _action(branches, lambda: decided_branch(plan)),
    )


def inserted(
    schema: StructType,
    plan: MergePlan,
    generated: Mapping[str, exp.Expr],
    source_columns: Sequence[str],
    *,
    all_new: bool,
) -> exp.Select:
    """Return the query for the inserted rows: source rows `n` that are not in the pairs `m`.

    With `all_new`, there are no pairs, and the query does not use `m`.
    """
    new = select(
        *(column(name, SOURCE) for name in source_columns),
        alias(_branch(plan.not_matched), BRANCH),
        source=table("n", SOURCE),
    )
    if not all_new:
        new.set("joins", [join("m", same(NUMBER, SOURCE, "m"), left=True)])
        new.set("where", exp.Where(this=is_null(column(NUMBER, "m"))))
    values = _values(
        schema,
        plan.not_matched,
        lambda: column(BRANCH, SOURCE),
        generated,
        lambda member: typed_null(member.type),
        is_new=True,
    )
    return select(
        *values,
        alias(action_of(INSERTED), ACTION),
        source=subquery(new, SOURCE),
        where=is_not_null(column(BRANCH, SOURCE)),
    )


def _with_columns(rows: exp.Select, *columns: exp.Expr) -> exp.Select:
    """Return a copy of the query `rows` that selects these columns."""
    found = rows.copy()
    found.set("expressions", list(columns))
    return found


def _values(
    schema: StructType,
    branches: Sequence[Branch],
    decided: Callable[[], exp.Expr],
    generated: Mapping[str, exp.Expr],
    old: Callable[[StructField], exp.Expr],
    *,
    is_new: bool = False,
) -> Iterator[exp.Expr]:
    """Yield the new value of each column, depending on the clause that applies to the row.

    `decided` returns an expression for the number of that clause, and `old` the value of a column
    that the clause does not change.
    """
    rows = [
        (each, row_values(schema, each.assigned, generated, old, is_new=is_new))
        for each in branches
    ]
    for member in schema.fields:
        present = old(member)
        changes = [
            (_is_number(decided(), branch), row[member.name])
            for branch, row in rows
            if row[member.name] != present
        ]
        yield alias(case(changes, present), member.name)


def _action(branches: Sequence[Branch], decided: Callable[[], exp.Expr]) -> exp.Expr:
    found = [(_is_number(decided(), each), action_of(_ACTIONS[each.kind])) for each in branches]
    return alias(case(found, action_of(COPIED)), ACTION)


def _by_clause(
    plan: MergePlan, value: Callable[[Branch], exp.Expr], unchanged: Callable[[], exp.Expr]
) -> exp.Expr:
    """Return an expression: `value` of the clause that applies to a row of `joined_by_key`.

    For a row to which no clause applies, the expression is `unchanged`.
    """
    kinds = (plan.not_matched_by_source, plan.not_matched, plan.matched)
    by_source, new, matched = (_first(branches, value, unchanged()) for branches in kinds)
    found = [(is_null(column(NUMBER, SOURCE)), by_source)]
    if plan.not_matched and new != matched:
        found.append((is_null(column(FILE, TARGET)), new))
    return case(found, matched)


def _action_by_clause(plan: MergePlan) -> exp.Expr:
    action = _by_clause(
        plan, lambda branch: action_of(_ACTIONS[branch.kind]), lambda: action_of(COPIED)
    )
    return alias(action, ACTION)


def _target_column(member: StructField) -> exp.Expr:
    return column(member.name, TARGET)


def _branch(branches: Sequence[Branch]) -> exp.Expr:
    """Return an expression for the number of the first clause whose condition is true.

    It is null if there is no such clause.
    """
    null = exp.Cast(this=exp.null(), to=exp.DataType(this=exp.DType.INT))
    return _first(branches, lambda branch: number(branch.number), null)


def _first(
    branches: Sequence[Branch], value: Callable[[Branch], exp.Expr], default: exp.Expr
) -> exp.Expr:
    """Return an expression for the value of the first clause whose condition is true."""
    conditional: list[tuple[exp.Expr, exp.Expr]] = []
    for branch in branches:
        if branch.condition is None:
            return case(conditional, value(branch))
        conditional.append((branch.condition.copy(), value(branch)))
    return case(conditional, default)


def _is_number(decided: exp.Expr, branch: Branch) -> exp.Expr:
    return equal(decided, number(branch.number))


def _same_row(one: str, other: str) -> exp.Expr:
    return all_of(same(FILE, one, other), same(ROW, one, other))
