"""Write changed rows: the new data files of UPDATE and MERGE, and the change data of a commit.

The rows of UPDATE and MERGE are relations with the table's columns and the column ACTION, which
says whether a row is copied, updated, deleted or inserted.

If a commit has change data, readers of the change data feed ignore its add and remove actions. The
change data must therefore contain every changed row of the commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from deltasql.engine.base import CHANGE_TYPE
from deltasql.model.actions import AddCdcFile
from deltasql.model.properties import TableProperties
from deltasql.operations.rules.row_checks import checked, rules_of
from deltasql.operations.sql.queries import alias, case, column, equal, identifier, select, union
from deltasql.operations.table_stage import STAGED_VERSION

if TYPE_CHECKING:
    from deltasql.engine.base import Relation, WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.operations.table_stage import TableStage

ACTION = "__deltasql_action"
COPIED, UPDATED, DELETED, INSERTED = range(4)
FOLDER = "_change_data/"


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


def keeps_change_data(stage: TableStage) -> bool:
    """Return whether the table has `delta.enableChangeDataFeed`."""
    return TableProperties(stage.configuration).change_data_feed


def write_change_data(stage: TableStage, changes: Relation, options: WriteOptions | None) -> None:
    """Write changed rows, which have the table's columns and CHANGE_TYPE, as change data.

    The first call in a transaction also writes the rows that the transaction added and removed
    before, because the change data of a commit must be complete.
    """
    if not stage.staged.cdc:
        _record_earlier_changes(stage, options)
    _write_change_files(stage, changes, options)


def record_whole_files(
    stage: TableStage, files: pa.Table, kind: str, options: WriteOptions | None = None
) -> None:
    """If the commit already has change data, write all rows of listed files as change data.

    If it has none, do nothing: readers derive the changes from the add and remove actions.
    """
    if stage.staged.cdc and len(files):
        _write_change_files(stage, _rows_of_files(stage, files, kind), options)


def _record_earlier_changes(stage: TableStage, options: WriteOptions | None) -> None:
    staged = stage.staged
    files = stage.files()
    own = files.filter(
        pc.and_(pc.equal(files["added_version"], STAGED_VERSION), files["data_change"])
    )
    if len(own):
        _write_change_files(stage, _rows_of_files(stage, own, "insert"), options)
    removed = {each.path for each in staged.removes if each.data_change}
    if removed and stage.snapshot is not None:
        before = stage.snapshot.scan(None).arrow
        files = before.filter(pc.is_in(before["path"], pa.array(sorted(removed), pa.string())))
        _write_change_files(stage, _rows_of_files(stage, files, "delete"), options)


def _rows_of_files(stage: TableStage, files: pa.Table, kind: str) -> Relation:
    columns = [column(name, "t") for name in stage.schema.names]
    query = exp.select(*columns, change_type(kind)).from_(exp.to_table("t"))
    return stage.engine.query(query, t=stage.engine.scan(stage.live(files)))


def _write_change_files(stage: TableStage, changes: Relation, options: WriteOptions | None) -> None:
    plan = stage.plan(options, data_change=False, folder=FOLDER)
    stage.staged.cdc += [
        AddCdcFile(path=file.path, partition_values=file.partition_values, size=file.size)
        for file in stage.engine.write(changes, plan)
    ]


def change_type(kind: str) -> exp.Expr:
    """Return the column CHANGE_TYPE with a constant value."""
    return exp.alias_(exp.Literal.string(kind), identifier(CHANGE_TYPE))
