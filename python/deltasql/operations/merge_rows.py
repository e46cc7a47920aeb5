"""The queries of a MERGE: which rows match, what is decided for each, and what they become."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from deltasql.engine.base import DROPPED, FILE, ROW
from deltasql.operations.assignments import row_values
from deltasql.operations.changed_rows import ACTION, COPIED, DELETED, INSERTED, UPDATED, action_of
from deltasql.operations.merge_plan import SOURCE, TARGET, Branch, MergePlan
from deltasql.operations.sql_types import column, identifier, typed_null

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deltasql.engine.base import Engine, Relation
    from deltasql.model.schema import StructField, StructType

NUMBER = "__deltasql_source"
"""Numbers the rows of the source."""
BRANCH = "__deltasql_branch"
"""Number of the clause that applies to a row; null when none does."""
MATCHES = "__deltasql_matches"
"""How many source rows want to change one row."""
PLACE = "__deltasql_place"
_ACTIONS = {"update": UPDATED, "delete": DELETED, "insert": INSERTED}


def matches(
    engine: Engine, plan: MergePlan, scan: Relation, source: Relation, *, only_changes: bool
) -> Relation:
    """Return the pairs of rows that match, with the clause that applies to each.

    `only_changes` leaves out pairs to which none applies: nobody asks for them.
    """
    branch = _branch(plan.matched)
    query = (
        exp.select(
            column(FILE, TARGET),
            column(ROW, TARGET),
            column(NUMBER, SOURCE),
            exp.alias_(branch, identifier(BRANCH)),
        )
        .from_(exp.to_table(TARGET))
        .join(exp.to_table(SOURCE), on=plan.on.copy(), join_type="inner")
    )
    if only_changes and all(each.condition is not None for each in plan.matched):
        conditions = [each.condition for each in plan.matched if each.condition is not None]
        query = query.where(exp.or_(*(exp.paren(each.copy()) for each in conditions)))
    return engine.keep(engine.query(query, t=scan, s=source))


def matched_sources(engine: Engine, plan: MergePlan, scan: Relation, source: Relation) -> Relation:
    """Return the numbers of the source rows that match anything: enough to insert the others."""
    query = (
        exp.select(column(NUMBER, SOURCE))
        .distinct()
        .from_(exp.to_table(TARGET))
        .join(exp.to_table(SOURCE), on=plan.on.copy(), join_type="inner")
    )
    return engine.keep(engine.query(query, t=scan, s=source))


def decisions(engine: Engine, pairs: Relation) -> Relation:
    """Return one row for every row of the target that matches: its clause and its source row.

    They are computed when they are needed.
    """
    wants = exp.not_(_is_null(column(BRANCH)))
    chosen = exp.case().when(wants.copy(), column(NUMBER))
    wanting = exp.case().when(wants, column(NUMBER))
    query = (
        exp.select(
            column(FILE),
            column(ROW),
            exp.alias_(exp.Min(this=column(BRANCH)), identifier(BRANCH)),
            exp.alias_(exp.Min(this=chosen), identifier(NUMBER)),
            exp.alias_(exp.Count(this=wanting), identifier(MATCHES)),
        )
        .from_(exp.to_table("m"))
        .group_by(column(FILE), column(ROW))
    )
    return engine.query(query, m=pairs)


def left_alone(
    engine: Engine, branches: Sequence[Branch], scan: Relation, decided: Relation
) -> Relation:
    """Return the file and the clause of every row that no source row matches."""
    query = (
        exp.select(column(FILE, TARGET), exp.alias_(_branch(branches), identifier(BRANCH)))
        .from_(exp.to_table(TARGET))
        .join(exp.to_table("d"), on=_same_row(TARGET, "d"), join_type="left")
        .where(_is_null(column(FILE, "d")))
    )
    return engine.query(query, t=scan, d=decided)


def by_file(engine: Engine, rows: Relation) -> list[tuple[int, int, int, int]]:
    """Count rows by file and clause: (file, clause, rows, most source rows for one of them)."""
    most = exp.Max(this=column(MATCHES)) if MATCHES in rows.columns else exp.Literal.number(1)
    query = (
        exp.select(
            column(FILE),
            column(BRANCH),
            exp.alias_(exp.Count(this=exp.Star()), identifier("n")),
            exp.alias_(most, identifier("most")),
        )
        .from_(exp.to_table("r"))
        .where(exp.not_(_is_null(column(BRANCH))))
        .group_by(column(FILE), column(BRANCH))
    )
    found = engine.collect(engine.query(query, r=rows))
    return list(zip(*(found.column(place).to_pylist() for place in range(4)), strict=True))


def joined(
    engine: Engine, scan: Relation, decided: Relation, source: Relation, places: Sequence[int]
) -> tuple[exp.Select, Mapping[str, Relation]]:
    """Return the rows of the files to rewrite, each with its source row if it has one.

    `scan` reads the files at some places of the first scan, in that order.
    """
    moved = pa.table({FILE: pa.array(places, pa.int64()), PLACE: range(len(places))})
    columns = [column(name, "x") for name in source.columns]
    right = (
        exp.select(
            exp.alias_(column(PLACE, "f"), identifier(FILE)),
            column(ROW, "d"),
            column(BRANCH, "d"),
            *columns,
        )
        .from_(exp.to_table("d"))
        .join(exp.to_table("f"), on=_equal(FILE, "d", "f"), join_type="inner")
        .join(exp.to_table("x"), on=_equal(NUMBER, "d", "x"), join_type="left")
    )
    query = (
        exp.select()
        .from_(exp.to_table(TARGET))
        .join(right.subquery(SOURCE), on=_same_row(TARGET, SOURCE), join_type="left")
    )
    return query, {"t": scan, "d": decided, "x": source, "f": engine.rows(moved)}


def changes(
    plan: MergePlan,
    schema: StructType,
    generated: Mapping[str, exp.Expr],
    joined_rows: exp.Select,
    relations: Mapping[str, Relation],
) -> tuple[exp.Select, Mapping[str, Relation]]:
    """Return what clauses for rows that match do, as changes of rows at their places.

    They have new values, or DROPPED, or both. The table is read only where a value needs it.
    """
    updates = [each for each in plan.matched if each.kind == "update"]
    is_single = len(updates) == len(plan.matched) == 1
    values = _changed_values(plan, schema, updates, generated, is_single=is_single)
    (join,) = joined_rows.args["joins"]
    decided = join.this.copy()
    decided.this.where(exp.not_(_is_null(column(BRANCH, "d"))), copy=False)
    query = exp.select(column(FILE, SOURCE), column(ROW, SOURCE)).from_(decided)
    used = {node.table for value in values.values() for node in value.find_all(exp.Column)}
    if TARGET in used:
        query = query.join(exp.to_table(TARGET), on=_same_row(TARGET, SOURCE), join_type="inner")
    if len(updates) < len(plan.matched):
        deletes = [exp.Literal.number(b.number) for b in plan.matched if b.kind == "delete"]
        dropped = exp.In(this=column(BRANCH, SOURCE), expressions=deletes)
        query = query.select(exp.alias_(dropped, identifier(DROPPED)))
    for name, value in values.items():
        query = query.select(exp.alias_(value, identifier(name)))
    return query, {
        name: each for name, each in relations.items() if name != TARGET or TARGET in used
    }


def copied_columns(query: exp.Select) -> dict[str, str] | None:
    """Return the column of the source that each value of changes is, if they are nothing else."""
    found = {}
    for value in query.selects:
        if value.name in (FILE, ROW):
            continue
        copied = value.this
        if not isinstance(copied, exp.Column) or copied.table != SOURCE:
            return None
        found[value.alias] = copied.name
    return found


def changed_places() -> exp.Select:
    """Return the query for the rows `d` that change, in the files `f`, with their source rows."""
    return (
        exp.select(
            exp.alias_(column(PLACE, "f"), identifier(FILE)), column(ROW, "d"), column(NUMBER, "d")
        )
        .from_(exp.to_table("d"))
        .join(exp.to_table("f"), on=_equal(FILE, "d", "f"), join_type="inner")
        .where(exp.not_(_is_null(column(BRANCH, "d"))))
    )


def _changed_values(
    plan: MergePlan,
    schema: StructType,
    updates: Sequence[Branch],
    generated: Mapping[str, exp.Expr],
    *,
    is_single: bool,
) -> dict[str, exp.Expr]:
    """Return the new values of columns that an update sets; `is_single` if it is all there is."""
    rows = []
    for each in updates:
        row = row_values(schema, each.assigned, generated, lambda m: column(m.name, TARGET))
        same = {name: column(name, TARGET) for name in plan.copied_keys(each)}
        rows.append((each, row | same))
    found: dict[str, exp.Expr] = {}
    for name in schema.names:
        present = column(name, TARGET)
        if all(row[name] == present for _, row in rows):
            continue
        if is_single:
            found[name] = rows[0][1][name]
            continue
        case = exp.case()
        for branch, row in rows:
            case = case.when(_is_number(column(BRANCH, SOURCE), branch), row[name])
        found[name] = case
    return found


def decided_branch(plan: MergePlan) -> exp.Expr:
    """Return the clause that applies to a joined row; null when it is only copied."""
    matched = column(BRANCH, SOURCE)
    if not plan.not_matched_by_source:
        return matched
    alone = _branch(plan.not_matched_by_source)
    return exp.case().when(_is_null(column(FILE, SOURCE)), alone).else_(matched)


def rewritten(
    joined_rows: exp.Select,
    schema: StructType,
    plan: MergePlan,
    generated: Mapping[str, exp.Expr],
) -> exp.Select:
    """Return what becomes of the joined rows: the table's columns and ACTION."""
    branches = (*plan.matched, *plan.not_matched_by_source)
    return _projected(
        joined_rows,
        schema,
        [each for each in branches if each.kind == "update"],
        decided_branch(plan),
        generated,
        lambda member: column(member.name, TARGET),
    ).select(exp.alias_(_action(branches, decided_branch(plan)), identifier(ACTION)))


def unchanged(joined_rows: exp.Select, schema: StructType, plan: MergePlan) -> exp.Select:
    """Return the joined rows as they were, with ACTION."""
    branches = (*plan.matched, *plan.not_matched_by_source)
    action = _action(branches, decided_branch(plan))
    return joined_rows.select(
        *(column(name, TARGET) for name in schema.names), exp.alias_(action, identifier(ACTION))
    )


def inserted(
    schema: StructType,
    plan: MergePlan,
    generated: Mapping[str, exp.Expr],
    source_columns: Sequence[str],
    *,
    all_new: bool,
) -> exp.Select:
    """Return the rows of the source `n` that match nothing in `m`, as rows of the table.

    Without anything to match, `all_new`, there is no `m`.
    """
    branch = exp.alias_(_branch(plan.not_matched), identifier(BRANCH))
    new = exp.select(*(column(name, SOURCE) for name in source_columns), branch)
    new = new.from_(exp.alias_(exp.to_table("n"), SOURCE, table=True))
    if not all_new:
        new = new.join(exp.to_table("m"), on=_equal(NUMBER, SOURCE, "m"), join_type="left")
        new = new.where(_is_null(column(NUMBER, "m")))
    rows = (
        exp.select().from_(new.subquery(SOURCE)).where(exp.not_(_is_null(column(BRANCH, SOURCE))))
    )
    return _projected(
        rows,
        schema,
        plan.not_matched,
        column(BRANCH, SOURCE),
        generated,
        lambda member: typed_null(member.type),
        is_new=True,
    ).select(exp.alias_(action_of(INSERTED), identifier(ACTION)))


def _projected(
    rows: exp.Select,
    schema: StructType,
    branches: Sequence[Branch],
    decided: exp.Expr,
    generated: Mapping[str, exp.Expr],
    old: Callable[[StructField], exp.Expr],
    *,
    is_new: bool = False,
) -> exp.Select:
    values = [
        (each, row_values(schema, each.assigned, generated, old, is_new=is_new))
        for each in branches
    ]
    query = rows
    for member in schema.fields:
        present = old(member)
        case = exp.case()
        for branch, row in values:
            if row[member.name] != present:
                case = case.when(_is_number(decided, branch), row[member.name])
        value = case.else_(present) if case.args.get("ifs") else present
        query = query.select(exp.alias_(value, identifier(member.name)))
    return query


def _action(branches: Sequence[Branch], decided: exp.Expr) -> exp.Expr:
    case = exp.case()
    for branch in branches:
        case = case.when(_is_number(decided, branch), action_of(_ACTIONS[branch.kind]))
    return case.else_(action_of(COPIED)) if branches else action_of(COPIED)


def _branch(branches: Sequence[Branch]) -> exp.Expr:
    """Return the number of the first clause whose condition holds, else null."""
    if not branches:
        return exp.Cast(this=exp.null(), to=exp.DataType(this=exp.DType.INT))
    case = exp.case()
    for branch in branches:
        number = exp.Literal.number(branch.number)
        if branch.condition is None:
            return case.else_(number) if case.args.get("ifs") else number
        case = case.when(branch.condition.copy(), number)
    return case


def _is_number(decided: exp.Expr, branch: Branch) -> exp.Expr:
    return exp.EQ(this=decided.copy(), expression=exp.Literal.number(branch.number))


def _same_row(one: str, other: str) -> exp.Expr:
    return exp.and_(_equal(FILE, one, other), _equal(ROW, one, other))


def _equal(name: str, one: str, other: str) -> exp.Expr:
    return exp.EQ(this=column(name, one), expression=column(name, other))


def _is_null(value: exp.Expr) -> exp.Expr:
    return exp.Is(this=value, expression=exp.null())
