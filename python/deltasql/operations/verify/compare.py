"""Compare the rows of one version as two readers return them.

The engine counts equal rows of both in one query, which can spill to disk. Order and files do not
matter, and only the differences are collected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.engine.inputs import python_rows
from deltasql.operations.sql.queries import column, identifier
from deltasql.operations.verify.report import DataDifference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.engine.base import Engine, Relation

_OURS, _THEIRS = "__deltasql_ours", "__deltasql_theirs"
SHOWN = 20


@dataclass(frozen=True, slots=True)
class RowComparison:
    """Some of the rows that occur more often on one side, and the number of such rows."""

    shown: tuple[DataDifference, ...]
    total: int


def compare_rows(
    engine: Engine, ours: Relation, theirs: Relation, names: Sequence[str]
) -> RowComparison:
    """Compare rows by the values of all columns; NaN equals NaN, null equals null."""
    both = exp.union(_counted("a", names, 1, 0), _counted("b", names, 0, 1), distinct=False)
    columns = [column(name) for name in names]
    sums = {name: exp.Sum(this=column(name)) for name in (_OURS, _THEIRS)}
    query = (
        exp.select(*columns, *(exp.alias_(each, identifier(name)) for name, each in sums.items()))
        .from_(both.subquery("u"))
        .group_by(*(each.copy() for each in columns))
        .having(exp.NEQ(this=sums[_OURS].copy(), expression=sums[_THEIRS].copy()))
    )
    differing = engine.keep(engine.query(query, a=ours, b=theirs))
    total = exp.select(exp.alias_(exp.Count(this=exp.Star()), identifier("n")))
    count = engine.collect(engine.query(total.from_(exp.to_table("t")), t=differing))["n"][0]
    if not count.as_py():
        return RowComparison((), 0)
    some = exp.select(exp.Star()).from_(exp.to_table("t")).limit(SHOWN)
    shown = []
    for row in python_rows(engine.collect(engine.query(some, t=differing))):
        counts = int(row.pop(_THEIRS)), int(row.pop(_OURS))
        shown.append(DataDifference(None, "row", _text(row), *counts))
    return RowComparison(tuple(shown), count.as_py())


def _counted(relation: str, names: Sequence[str], ours: int, theirs: int) -> exp.Select:
    sides = ((_OURS, ours), (_THEIRS, theirs))
    return exp.select(
        *(column(name, relation) for name in names),
        *(exp.alias_(exp.Literal.number(side), identifier(name)) for name, side in sides),
    ).from_(exp.to_table(relation))


def _text(row: dict[str, object]) -> str:
    text = ", ".join(f"{name}={value!r}" for name, value in row.items())
    return text if len(text) <= 300 else f"{text[:297]}…"
