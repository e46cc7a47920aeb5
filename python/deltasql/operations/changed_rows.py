"""Rows that an operation rewrites: the rules of the table, the new files, the change data.

Before and after are relations of the table's columns with ACTION: what becomes of each row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.engine.base import CHANGE_TYPE
from deltasql.operations.change_data import keeps_change_data, write_change_data
from deltasql.operations.checks import checked, rules_of
from deltasql.operations.sql_types import cast_to, column, identifier

if TYPE_CHECKING:
    from collections.abc import Collection

    from deltasql.engine.base import Relation, WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.operations.target import Target

ACTION = "__deltasql_action"
COPIED, UPDATED, DELETED, INSERTED = range(4)


def action_of(number: int) -> exp.Expr:
    """Return an action as it is in the column ACTION."""
    return exp.Literal.number(number)


def has_action(*numbers: int, relation: str | None = None) -> exp.Expr:
    """Return the condition that a row has one of some actions."""
    return exp.In(
        this=column(ACTION, relation), expressions=[action_of(number) for number in numbers]
    )


def finished_rows(target: Target, rows: Relation, given: Collection[str]) -> Relation:
    """Compute the generated columns of new rows that were not given, and check the rules.

    The rows have ACTION; copied ones stay as they are.
    """
    rules = rules_of(target)
    if not rules:
        return rows
    engine, schema = target.engine, target.schema
    computed = [name for name in rules.generated if name not in given]
    if computed:
        is_new = has_action(UPDATED, INSERTED)
        columns: list[exp.Expr] = []
        for member in schema.fields:
            value: exp.Expr = column(member.name)
            if member.name in computed:
                made = cast_to(exp.paren(rules.generated[member.name].copy()), member.type)
                value = exp.case().when(is_new.copy(), made).else_(value)
            columns.append(exp.alias_(value, identifier(member.name)))
        query = exp.select(*columns, column(ACTION)).from_(exp.to_table("r"))
        whole = engine.query(query, r=rows)
    else:
        whole = rows
    kept = engine.keep(whole)
    names = [column(name) for name in schema.names]
    new = exp.select(*names).from_(exp.to_table("r")).where(has_action(UPDATED, INSERTED))
    checked(target, engine.query(new, r=kept))
    return kept


def write_changed_rows(
    target: Target, before: Relation, after: Relation, options: WriteOptions | None
) -> list[AddFile]:
    """Write what is left, and the change data of a table that keeps it."""
    engine = target.engine
    names = [column(name) for name in target.schema.names]
    left = exp.select(*names).from_(exp.to_table("r")).where(exp.not_(has_action(DELETED)))
    if not keeps_change_data(target):
        return engine.write(engine.query(left, r=after), target.plan(options))
    final = engine.keep(after)
    added = engine.write(engine.query(left, r=final), target.plan(options))
    old = exp.select(*names, _kind({UPDATED: "update_preimage", DELETED: "delete"})).from_(
        exp.to_table("b")
    )
    new = exp.select(*names, _kind({UPDATED: "update_postimage", INSERTED: "insert"})).from_(
        exp.to_table("a")
    )
    changes = exp.union(
        old.where(has_action(UPDATED, DELETED)),
        new.where(has_action(UPDATED, INSERTED)),
        distinct=False,
    )
    write_change_data(target, engine.query(changes, b=before, a=final), options)
    return added


def _kind(kinds: dict[int, str]) -> exp.Expr:
    case = exp.case(column(ACTION))
    for number, kind in kinds.items():
        case = case.when(action_of(number), exp.Literal.string(kind))
    return exp.alias_(case, identifier(CHANGE_TYPE))
