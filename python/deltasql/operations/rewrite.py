"""Rewrite files: find the files that an operation affects, write changed rows and change data.

The rows of UPDATE and MERGE are relations with the table's columns and the column ACTION, which
says whether a row is copied, updated, deleted or inserted.

If a commit has change data, readers of the change data feed ignore its add and remove actions. The
change data must therefore contain every changed row of the commit.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from deltasql.engine.base import CHANGE_TYPE, FILE
from deltasql.model.actions import AddCdcFile
from deltasql.model.properties import TableProperties
from deltasql.operations.rules.row_checks import checked, rules_of
from deltasql.operations.sql.expressions import condition_of
from deltasql.operations.sql.queries import (
    alias,
    case,
    column,
    count_rows,
    equal,
    identifier,
    select,
    union,
)
from deltasql.operations.table_stage import STAGED_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from deltasql.engine.base import Engine, Relation, WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.model.predicates.predicate import Predicate
    from deltasql.operations.table_stage import TableStage

ACTION = "__deltasql_action"
COPIED, UPDATED, DELETED, INSERTED = range(4)
FOLDER = "_change_data/"
_COUNT = "__deltasql_count"


def logged_row_counts(files: pa.Table) -> list[int | None]:
    """Return the live rows of each listed file; None for a file without statistics."""
    counts = zip(files["num_records"].to_pylist(), deleted_row_counts(files), strict=True)
    return [None if records is None else records - deleted for records, deleted in counts]


def deleted_row_counts(files: pa.Table) -> list[int]:
    """Return the number of rows that the deletion vector of each listed file deletes."""
    return [
        json.loads(text).get("cardinality", 0) if text else 0
        for text in files["deletion_vector"].to_pylist()
    ]


def live_row_counts(stage: TableStage, files: pa.Table) -> list[int]:
    """Return the live rows of each listed file; files without statistics are read and counted."""
    known = logged_row_counts(files)
    unknown = [index for index, count in enumerate(known) if count is None]
    counts: Mapping[int, int] = {}
    if unknown:
        scan = stage.engine.scan(stage.live(files.take(pa.array(unknown))), positions=True)
        scanned = count_rows_by_file(stage.engine, scan)
        counts = {index: scanned.get(number, 0) for number, index in enumerate(unknown)}
    return [counts[index] if count is None else count for index, count in enumerate(known)]


def count_rows_by_file(
    engine: Engine, rows: Relation, condition: exp.Expr | None = None
) -> dict[int, int]:
    """Count rows by the index of their file; with a condition, count only rows that meet it.

    `rows` is a scan with positions. The condition refers to this scan as `t`.
    """
    query = select(
        column(FILE),
        alias(count_rows(), _COUNT),
        source="t",
        where=None if condition is None else condition.copy(),
        group_by=[column(FILE)],
    )
    found = engine.collect(engine.query(query, t=rows))
    return dict(zip(found[FILE].to_pylist(), found[_COUNT].to_pylist(), strict=True))


def in_partitions(stage: TableStage, files: pa.Table, predicate: Predicate) -> pa.Table:
    """Return the files whose partition values meet the condition."""
    live = stage.live(files)
    values = {field.name: array for field, array in live.listed_values()}
    indexes = pa.array(range(len(files)), pa.int64())
    listed = stage.engine.rows(pa.table({**values, FILE: indexes}))
    query = select(column(FILE), source="t", where=condition_of(predicate, "t"))
    return files_at(
        files, stage.engine.collect(stage.engine.query(query, t=listed))[FILE].to_pylist()
    )


def files_at(files: pa.Table, indexes: Iterable[int]) -> pa.Table:
    """Return the listed files with these indexes, in the order of the list."""
    return files.take(pa.array(sorted(indexes), pa.int64()))


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
    """Write inserted rows.

    If the commit already has change data, also write the rows as change data.
    """
    final = checked_rows(stage, rows)
    query = select(*_stored_columns(stage), source="r")
    added = stage.engine.write(
        stage.engine.query(query, r=final), stage.plan(options, rewrites=True)
    )
    if stage.staged.cdc:
        changes = select(*_columns(stage), change_type("insert"), source="r")
        write_change_data(stage, stage.engine.query(changes, r=final), options)
    return added


def write_changed_rows(
    stage: TableStage, before: Relation | None, after: Relation, options: WriteOptions | None
) -> list[AddFile]:
    """Write the rows of `after` that are not deleted; write change data if `before` is given.

    `before` has the rows before the change, with the same values in the column ACTION.
    """
    engine = stage.engine
    left = select(*_stored_columns(stage), source="r", where=exp.Not(this=has_action(DELETED)))
    plan = stage.plan(options, rewrites=True)
    if before is None:
        return engine.write(engine.query(left, r=after), plan)
    final = engine.keep(after)
    added = engine.write(engine.query(left, r=final), plan)
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


def _stored_columns(stage: TableStage) -> list[exp.Column]:
    return [column(name) for name in stage.stored_schema.names]


def keeps_change_data(stage: TableStage) -> bool:
    """Return whether the table has `delta.enableChangeDataFeed`."""
    return TableProperties(stage.configuration).change_data_feed


def write_change_data(stage: TableStage, changes: Relation, options: WriteOptions | None) -> None:
    """Write changed rows, which have the table's columns and CHANGE_TYPE, as change data.

    The first call in a transaction also writes the rows that the transaction added and removed
    before, because the change data of a commit must be complete.
    """
    if not stage.staged.cdc:
        record_earlier_changes(stage, options)
    _write_change_files(stage, changes, options)


def record_whole_files(
    stage: TableStage, files: pa.Table, kind: str, options: WriteOptions | None = None
) -> None:
    """If the commit already has change data, write all rows of listed files as change data.

    If it has none, do nothing: readers derive the changes from the add and remove actions.
    """
    if stage.staged.cdc and len(files):
        _write_change_files(stage, _rows_of_files(stage, files, kind), options)


def record_earlier_changes(stage: TableStage, options: WriteOptions | None = None) -> None:
    """Write the rows that the transaction added and removed before as change data.

    This is necessary before the first change data of a commit.
    """
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
