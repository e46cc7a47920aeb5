"""Rows with their ids: scans that also return the row id and the commit version of each row.

Operations that write rows to other files carry both columns along (`TableStage.stored_schema`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from deltasql.engine.base import FILE, ROW
from deltasql.exceptions import UnsupportedFeatureError
from deltasql.model.features.row_tracking import FEATURE
from deltasql.operations.sql.queries import alias, column, join, same, select

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.engine.base import Engine, Relation
    from deltasql.engine.files.live_files import LiveFiles
    from deltasql.operations.table_stage import TableStage

FIRST_ID, FIRST_VERSION = "__deltasql_first_id", "__deltasql_first_version"
"""Columns: the id of the first row of a file, and the version that added the file."""


def scan_to_rewrite(stage: TableStage, files: pa.Table, *, positions: bool = False) -> Relation:
    """Return the live rows of files, with the columns of `stage.stored_schema`."""
    live = stage.live(files)
    if not live.row_columns:
        return stage.engine.scan(live, positions=positions)
    names = [each.name for each in live.row_columns]
    return _scan(stage.engine, live, names, positions=positions)


def scan_with_ids(engine: Engine, live: LiveFiles, names: Sequence[str]) -> Relation:
    """Return the live rows of files with two more columns: the row ids and the commit versions.

    `names` are the names of these columns. Raise if the table has no row tracking.
    """
    check_tracked(live)
    return _scan(engine, live, names, positions=False)


def check_tracked(live: LiveFiles) -> None:
    """Raise if the rows of a table have no ids."""
    if not live.row_columns:
        raise UnsupportedFeatureError(
            f"the rows of {live.location} have no ids: row tracking is not enabled",
            features=(FEATURE,),
            help="Set the table property delta.enableRowTracking to true.",
        )


def first_ids(live: LiveFiles) -> pa.Table:
    """Return for each file its position, the id of its first row, and its commit version."""
    bases, versions = (
        live.listed[name].cast(pa.int64()) for name in ("base_row_id", "default_row_commit_version")
    )
    numbers = pa.array(range(len(live.listed)), pa.int64())
    return pa.table({FILE: numbers, FIRST_ID: bases, FIRST_VERSION: versions})


def _scan(engine: Engine, live: LiveFiles, names: Sequence[str], *, positions: bool) -> Relation:
    files = engine.rows(first_ids(live))
    row_id, version = (column(each.name, "t") for each in live.row_columns)
    first = exp.Add(this=column(FIRST_ID, "f"), expression=column(ROW, "t"))
    query = select(
        *(column(name, "t") for name in live.schema.names),
        alias(exp.Coalesce(this=row_id, expressions=[first]), names[0]),
        alias(exp.Coalesce(this=version, expressions=[column(FIRST_VERSION, "f")]), names[1]),
        *(column(name, "t") for name in (FILE, ROW) if positions),
        source="t",
        joins=[join("f", same(FILE, "t", "f"))],
    )
    return engine.query(query, t=engine.scan(live.with_row_columns(), positions=True), f=files)
