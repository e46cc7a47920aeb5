"""Write change data files: the rows that a commit changed, for the change data feed.

If a commit has change data, readers of the feed ignore its add and remove actions. The change data
must therefore contain every changed row of the commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from deltasql.engine.base import CHANGE_TYPE
from deltasql.model.actions import AddCdcFile
from deltasql.model.properties import TableProperties
from deltasql.operations.sql.queries import column, identifier
from deltasql.operations.table_stage import STAGED_VERSION

if TYPE_CHECKING:
    from deltasql.engine.base import Relation, WriteOptions
    from deltasql.operations.table_stage import TableStage

FOLDER = "_change_data/"


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
    _write(stage, changes, options)


def record_whole_files(
    stage: TableStage, files: pa.Table, kind: str, options: WriteOptions | None = None
) -> None:
    """If the commit already has change data, write all rows of listed files as change data.

    If it has none, do nothing: readers derive the changes from the add and remove actions.
    """
    if stage.staged.cdc and len(files):
        _write(stage, _whole(stage, files, kind), options)


def _record_earlier_changes(stage: TableStage, options: WriteOptions | None) -> None:
    staged = stage.staged
    files = stage.files()
    own = files.filter(
        pc.and_(pc.equal(files["added_version"], STAGED_VERSION), files["data_change"])
    )
    if len(own):
        _write(stage, _whole(stage, own, "insert"), options)
    removed = {each.path for each in staged.removes if each.data_change}
    if removed and stage.snapshot is not None:
        before = stage.snapshot.scan(None).arrow
        files = before.filter(pc.is_in(before["path"], pa.array(sorted(removed), pa.string())))
        _write(stage, _whole(stage, files, "delete"), options)


def _whole(stage: TableStage, files: pa.Table, kind: str) -> Relation:
    columns = [column(name, "t") for name in stage.schema.names]
    query = exp.select(*columns, change_type(kind)).from_(exp.to_table("t"))
    return stage.engine.query(query, t=stage.engine.scan(stage.live(files)))


def _write(stage: TableStage, changes: Relation, options: WriteOptions | None) -> None:
    plan = stage.plan(options, data_change=False, folder=FOLDER)
    stage.staged.cdc += [
        AddCdcFile(path=file.path, partition_values=file.partition_values, size=file.size)
        for file in stage.engine.write(changes, plan)
    ]


def change_type(kind: str) -> exp.Expr:
    """Return the column CHANGE_TYPE with a constant value."""
    return exp.alias_(exp.Literal.string(kind), identifier(CHANGE_TYPE))
