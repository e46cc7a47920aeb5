"""Change data: the rows that a commit changed, for tables with `delta.enableChangeDataFeed`.

A reader of a version takes its change data alone when there is any: so it tells of every row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.engine.base import CHANGE_TYPE
from deltasql.model.actions import AddCdcFile
from deltasql.model.properties import TableProperties
from deltasql.operations.sql_types import identifier

if TYPE_CHECKING:
    from deltasql.engine.base import Relation, WriteOptions
    from deltasql.operations.target import Target

FOLDER = "_change_data/"


def keeps_change_data(target: Target) -> bool:
    """Tell whether commits to the table have to say which rows they changed."""
    return TableProperties(target.configuration).change_data_feed


def write_change_data(target: Target, changes: Relation, options: WriteOptions | None) -> None:
    """Write changed rows, which have the table's columns and CHANGE_TYPE."""
    plan = target.plan(options, data_change=False, folder=FOLDER)
    target.staged.cdc += [
        AddCdcFile(path=file.path, partition_values=file.partition_values, size=file.size)
        for file in target.engine.write(changes, plan)
    ]


def change_type(kind: str) -> exp.Expr:
    """Return the column that says what happened to a row."""
    return exp.alias_(exp.Literal.string(kind), identifier(CHANGE_TYPE))
