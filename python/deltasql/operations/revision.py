"""Files that are revised in place of being written row by row, where an engine can do that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.engine.base import DROPPED, FILE, ROW
from deltasql.operations.sql_types import column, identifier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from deltasql.engine.base import Relation, WritePlan
    from deltasql.model.actions import AddFile
    from deltasql.operations.target import Target


def dropped_rows(
    target: Target, scan: Relation, condition: exp.Expr
) -> tuple[Relation, dict[int, int]]:
    """Return the rows of a scan that meet a condition, as changes that drop them; and how many.

    They are counted by file.
    """
    query = _changes(condition).select(exp.alias_(exp.true(), identifier(DROPPED)))
    return target.engine.keep_changes(target.engine.query(query, t=scan))


def new_rows(
    target: Target, scan: Relation, condition: exp.Expr, values: Mapping[str, exp.Expr]
) -> Relation:
    """Return the rows of a scan that meet a condition, as changes that give them values.

    They are computed when they are needed.
    """
    columns = [exp.alias_(value.copy(), identifier(name)) for name, value in values.items()]
    return target.engine.query(_changes(condition).select(*columns), t=scan)


def revised_files(
    target: Target, files: pa.Table, places: Sequence[int], changes: Relation, plan: WritePlan
) -> tuple[list[AddFile], list[int]]:
    """Write listed files again with changes; return also which of them are left as they were.

    `places` are those that the files had in the scan of the changes.
    """
    done = target.engine.revise(target.live(files), places, changes, plan)
    added = [file for each in done if each is not None for file in each]
    return added, [number for number, each in enumerate(done) if each is None]


def _changes(condition: exp.Expr) -> exp.Select:
    query = exp.select(column(FILE, "t"), column(ROW, "t")).from_(exp.to_table("t"))
    return query.where(condition.copy())
