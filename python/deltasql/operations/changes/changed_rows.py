"""Write the rows of UPDATE and MERGE: check them, write the new files and the change data.

Rows are relations with the table's columns and the column ACTION, which says whether a row is
copied, updated, deleted or inserted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.engine.base import CHANGE_TYPE
from deltasql.operations.changes.change_data import change_type, write_change_data
from deltasql.operations.rules.row_checks import checked, rules_of
from deltasql.operations.sql.queries import alias, case, column, equal, select, union

if TYPE_CHECKING:
    from deltasql.engine.base import Relation, WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.operations.table_stage import TableStage

ACTION = "__deltasql_action"
COPIED, UPDATED, DELETED, INSERTED = range(4)


def action_of(number: int) -> exp.Expr:
    """Return the literal of an action in the column ACTION."""
    return exp.Literal(this=str(number), is_string=False)


def has_action(*numbers: int, relation: str | None = None) -> exp.Expr:
    """Return the condition that a row has one of the actions."""
    return exp.In(
        this=column(ACTION, relation), expressions=[action_of(number) for number in numbers]
    )


def checked_rows(stage: TableStage, rows: Relation) -> Relation:
    """Return the rows; raise if an updated or inserted row breaks a rule of the table."""
    if not rules_of(stage):
        return rows
    kept = stage.engine.keep(rows)
    new = select(*_columns(stage), source="r", where=has_action(UPDATED, INSERTED))
    checked(stage, stage.engine.query(new, r=kept))
    return kept


def write_new_rows(
    stage: TableStage, rows: Relation, options: WriteOptions | None
) -> list[AddFile]:
    """Write inserted rows; also write them as change data if the commit already has some."""
    final = checked_rows(stage, rows)
    query = select(*_columns(stage), source="r")
    added = stage.engine.write(stage.engine.query(query, r=final), stage.plan(options))
    if stage.staged.cdc:
        changes = select(*_columns(stage), change_type("insert"), source="r")
        write_change_data(stage, stage.engine.query(changes, r=final), options)
    return added


def write_changed_rows(
    stage: TableStage, before: Relation | None, after: Relation, options: WriteOptions | None
) -> list[AddFile]:
    """Write the rows of `after` that are not deleted; write change data if `before` is given.

    `before` has the rows before the change, with the same ACTION.
    """
    engine = stage.engine
    left = select(*_columns(stage), source="r", where=exp.Not(this=has_action(DELETED)))
    if before is None:
        return engine.write(engine.query(left, r=after), stage.plan(options))
    final = engine.keep(after)
    added = engine.write(engine.query(left, r=final), stage.plan(options))
    old = select(
        *_columns(stage),
        _kind({UPDATED: "update_preimage", DELETED: "delete"}),
        source="b",
        where=has_action(UPDATED, DELETED),
    )
    new = select(
        *_columns(stage),
        _kind({UPDATED: "update_postimage", INSERTED: "insert"}),
        source="a",
        where=has_action(UPDATED, INSERTED),
    )
    changes = union(old, new)
    write_change_data(stage, engine.query(changes, b=before, a=final), options)
    return added


def _kind(kinds: dict[int, str]) -> exp.Expr:
    named = [
        (equal(column(ACTION), action_of(number)), exp.Literal.string(kind))
        for number, kind in kinds.items()
    ]
    return alias(case(named), CHANGE_TYPE)


def _columns(stage: TableStage) -> list[exp.Column]:
    return [column(name) for name in stage.schema.names]
