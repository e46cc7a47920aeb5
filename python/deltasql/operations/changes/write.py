"""Change data: the rows that a commit changed, for tables with `delta.enableChangeDataFeed`.

A reader of a version takes its change data alone when there is any: so it tells of every row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from deltasql.engine.base import CHANGE_TYPE
from deltasql.model.actions import AddCdcFile
from deltasql.model.properties import TableProperties
from deltasql.operations.sql.types import column, identifier
from deltasql.operations.target import STAGED_VERSION

if TYPE_CHECKING:
    from deltasql.engine.base import Relation, WriteOptions
    from deltasql.operations.target import TableStage

FOLDER = "_change_data/"


def keeps_change_data(target: TableStage) -> bool:
    """Tell whether commits to the table have to say which rows they changed."""
    return TableProperties(target.configuration).change_data_feed


def write_change_data(target: TableStage, changes: Relation, options: WriteOptions | None) -> None:
    """Write changed rows, which have the table's columns and CHANGE_TYPE.

    What the transaction did to the table before is told along with the first of them.
    """
    if not target.staged.cdc:
        _tell_earlier(target, options)
    _write(target, changes, options)


def tell_whole_files(
    target: TableStage, files: pa.Table, kind: str, options: WriteOptions | None = None
) -> None:
    """Tell of all rows of listed files, if the commit has change data already.

    A commit without any tells by the files it adds and removes.
    """
    if target.staged.cdc and len(files):
        _write(target, _whole(target, files, kind), options)


def _tell_earlier(target: TableStage, options: WriteOptions | None) -> None:
    staged = target.staged
    files = target.files()
    own = files.filter(
        pc.and_(pc.equal(files["added_version"], STAGED_VERSION), files["data_change"])
    )
    if len(own):
        _write(target, _whole(target, own, "insert"), options)
    removed = {each.path for each in staged.removes if each.data_change}
    if removed and target.snapshot is not None:
        before = target.snapshot.scan(None).arrow
        gone = before.filter(pc.is_in(before["path"], pa.array(sorted(removed), pa.string())))
        _write(target, _whole(target, gone, "delete"), options)


def _whole(target: TableStage, files: pa.Table, kind: str) -> Relation:
    columns = [column(name, "t") for name in target.schema.names]
    query = exp.select(*columns, change_type(kind)).from_(exp.to_table("t"))
    return target.engine.query(query, t=target.engine.scan(target.live(files)))


def _write(target: TableStage, changes: Relation, options: WriteOptions | None) -> None:
    plan = target.plan(options, data_change=False, folder=FOLDER)
    target.staged.cdc += [
        AddCdcFile(path=file.path, partition_values=file.partition_values, size=file.size)
        for file in target.engine.write(changes, plan)
    ]


def change_type(kind: str) -> exp.Expr:
    """Return the column that says what happened to a row."""
    return exp.alias_(exp.Literal.string(kind), identifier(CHANGE_TYPE))
