"""Rows that DuckDB can compute, and the names that they have in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections import deque

    import pyarrow as pa

    from deltasql.engine.base import Relation
    from deltasql.engine.looked_up import LookedUp
    from deltasql.engine.stored_files import StoredFiles


class Hold:
    """What a relation consists of in DuckDB; when nobody has it any more, it can go."""

    __slots__ = ("_names", "_needs", "_unneeded")

    def __init__(self, unneeded: deque[str], names: list[str], needs: tuple[Hold, ...]) -> None:
        self._unneeded, self._names, self._needs = unneeded, names, needs

    def __del__(self) -> None:
        # Only noted: this may run in any thread, in the middle of a query.
        self._unneeded.extend(self._names)


@dataclass(frozen=True, slots=True)
class DuckDbRelation:
    """Rows that DuckDB can compute: a view or a table of the engine."""

    name: str
    columns: tuple[str, ...]
    hold: Hold = field(repr=False, compare=False)
    stored: StoredFiles | None = field(default=None, repr=False)
    """The files behind it, when they are read through our storage and nothing else is."""
    reads_files: bool = field(default=False, repr=False)
    """Whether files are read each time that its rows are."""
    rows: pa.Table | None = field(default=None, repr=False)
    """The rows themselves, when they are in memory."""
    held: pa.Table | LookedUp | None = field(default=None, repr=False)
    """Changes that are few, in the order of files and rows."""


def own_relation(relation: Relation) -> DuckDbRelation:
    assert isinstance(relation, DuckDbRelation), "a relation of another engine"
    return relation


def renamed(node: exp.Expression, names: dict[str, str]) -> exp.Expression:
    """Put the name that a relation has here in the place of the one in the query."""
    if not isinstance(node, exp.Table) or node.args.get("db") or node.name not in names:
        return node
    placed = exp.to_table(names[node.name])
    for key, value in node.args.items():
        if key not in ("this", "alias") and value is not None:
            placed.set(key, value)
    alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name))
    placed.set("alias", alias)
    return placed
