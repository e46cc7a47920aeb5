"""A model of DELETE, UPDATE and MERGE on a table that is a list of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Row: TypeAlias = tuple[int | None, str | None, int | None]
"""id, g, v"""
Truth: TypeAlias = "bool | None"


@dataclass(frozen=True)
class Condition:
    """A SQL condition on one row, and the Python function that computes it."""

    sql: str
    holds: Callable[[Row], Truth]

    def __repr__(self) -> str:
        return self.sql


@dataclass(frozen=True)
class Setting:
    """An assignment: column, SQL, and the Python function that computes the new row."""

    column: str
    sql: str
    apply: Callable[[Row], Row]

    def __repr__(self) -> str:
        return f"{self.column} = {self.sql}"


@dataclass(frozen=True)
class PairClause:
    """A WHEN MATCHED clause; its condition reads the row and its source row."""

    kind: str
    sql: str | None
    holds: Callable[[Row, Row], Truth]

    def __repr__(self) -> str:
        return f"{self.kind} if {self.sql}"


class Ambiguous(Exception):
    """Two source rows match a clause for the same row."""


def _more(value: int | None, than: int) -> Truth:
    return None if value is None else value > than


def _both(one: Truth, other: Truth) -> Truth:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


CONDITIONS = (
    Condition("id = 2", lambda r: None if r[0] is None else r[0] == 2),
    Condition("id IN (1, 3)", lambda r: None if r[0] is None else r[0] in (1, 3)),
    Condition("ID IS NULL", lambda r: r[0] is None),
    Condition("v > 2", lambda r: _more(r[2], 2)),
    Condition("NOT v > 2", lambda r: None if r[2] is None else r[2] <= 2),
    Condition("g = 'a'", lambda r: None if r[1] is None else r[1] == "a"),
    Condition("g IS NULL OR g <> 'a'", lambda r: r[1] is None or r[1] != "a"),
    Condition(
        "`g` = 'b' AND v > 1",
        lambda r: _both(None if r[1] is None else r[1] == "b", _more(r[2], 1)),
    ),
    Condition("true", lambda _: True),
)
SETTINGS = (
    Setting("v", "v + 1", lambda r: (r[0], r[1], None if r[2] is None else r[2] + 1)),
    Setting("V", "id", lambda r: (r[0], r[1], r[0])),
    Setting("v", "NULL", lambda r: (r[0], r[1], None)),
    Setting("g", "'a'", lambda r: (r[0], "a", r[2])),
    Setting(
        "g",
        "CASE WHEN v > 2 THEN 'b' END",
        lambda r: (r[0], "b" if (r[2] or 0) > 2 else None, r[2]),
    ),
    Setting("id", "id + 1", lambda r: (None if r[0] is None else r[0] + 1, r[1], r[2])),
)
PAIR_CLAUSES = (
    PairClause("update_all", None, lambda t, s: True),
    PairClause(
        "update_all", "s.v > t.v", lambda t, s: None if None in (s[2], t[2]) else s[2] > t[2]
    ),
    PairClause("delete", None, lambda t, s: True),
    PairClause("delete", "s.v = 1", lambda t, s: None if s[2] is None else s[2] == 1),
    PairClause("update_v", "t.g = 'a'", lambda t, s: None if t[1] is None else t[1] == "a"),
)


def delete(rows: Sequence[Row], condition: Condition) -> list[Row]:
    return [row for row in rows if condition.holds(row) is not True]


def update(rows: Sequence[Row], setting: Setting, condition: Condition) -> list[Row]:
    return [setting.apply(row) if condition.holds(row) is True else row for row in rows]


def merge(
    rows: Sequence[Row],
    source: Sequence[Row],
    matched: Sequence[PairClause],
    inserts: Sequence[Condition],
    alone: Sequence[tuple[str, Condition]],
) -> list[Row]:
    """Merge by id; `alone` are the clauses for rows that no source row matches."""
    lone_delete = [(clause.kind, clause.sql) for clause in matched] == [("delete", None)]
    kept: list[Row] = []
    for row in rows:
        pairs = [each for each in source if row[0] is not None and each[0] == row[0]]
        if not pairs:
            kept += _alone(row, alone)
            continue
        wanted = [(each, clause) for each in pairs if (clause := _first(row, each, matched))]
        if len(wanted) > 1 and not lone_delete:
            raise Ambiguous
        kept += _changed(row, *wanted[0]) if wanted else [row]
    known = {row[0] for row in rows if row[0] is not None}
    new = [each for each in source if each[0] not in known]
    return kept + [each for each in new if any(c.holds(each) is True for c in inserts)]


def _first(row: Row, source: Row, clauses: Sequence[PairClause]) -> PairClause | None:
    return next((clause for clause in clauses if clause.holds(row, source) is True), None)


def _changed(row: Row, source: Row, clause: PairClause) -> list[Row]:
    if clause.kind == "delete":
        return []
    return [source if clause.kind == "update_all" else (row[0], row[1], source[2])]


def _alone(row: Row, clauses: Sequence[tuple[str, Condition]]) -> list[Row]:
    for kind, condition in clauses:
        if condition.holds(row) is True:
            return [] if kind == "delete" else [(row[0], row[1], 0)]
    return [row]
