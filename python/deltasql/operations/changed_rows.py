"""Rows that an operation rewrites: the rules of the table, the new files, the change data.

Before and after are relations of the table's columns with ACTION: what becomes of each row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.engine.base import CHANGE_TYPE
from deltasql.operations.change_data import change_type, keeps_change_data, write_change_data
from deltasql.operations.checks import checked, rules_of
from deltasql.operations.sql_types import column, identifier

if TYPE_CHECKING:
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


def checked_rows(target: Target, rows: Relation) -> Relation:
    """Return rows with ACTION, the new ones checked by the rules of the table."""
    if not rules_of(target):
        return rows
    kept = target.engine.keep(rows)
    names = [column(name) for name in target.schema.names]
    new = exp.select(*names).from_(exp.to_table("r")).where(has_action(UPDATED, INSERTED))
    checked(target, target.engine.query(new, r=kept))
    return kept


def write_new_rows(target: Target, rows: Relation, options: WriteOptions | None) -> list[AddFile]:
    """Write rows that are all new; change data tells of them only where it tells of others."""
    final = checked_rows(target, rows)
    names = [column(name) for name in target.schema.names]
    query = exp.select(*names).from_(exp.to_table("r"))
    added = target.engine.write(target.engine.query(query, r=final), target.plan(options))
    if target.staged.cdc:
        told = exp.select(*names, change_type("insert")).from_(exp.to_table("r"))
        write_change_data(target, target.engine.query(told, r=final), options)
    return added


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
