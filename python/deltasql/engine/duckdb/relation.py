"""Rows that DuckDB can compute: a query, and what has to be there when it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlglot import exp

if TYPE_CHECKING:
    from collections import deque

    import pyarrow as pa

    from deltasql.engine.base import Relation
    from deltasql.engine.files.stored_files import StoredFiles


class Held:
    """A table of DuckDB, or Arrow rows or a list that have a name in it.

    When no relation refers to it any more, the engine may drop it.
    """

    __slots__ = ("_unneeded", "drop", "name", "value")

    def __init__(
        self, name: str, unneeded: deque[tuple[str, str]], *, drop: str = "", value: Any = None
    ) -> None:
        """`drop` is the statement that removes it; without one it is Arrow rows."""
        self.name, self.drop, self.value = name, drop, value
        self._unneeded = unneeded

    def __del__(self) -> None:
        # Only queued: this may run in any thread, in the middle of a query.
        self._unneeded.append((self.name, self.drop))


@dataclass(frozen=True, slots=True)
class DuckDbRelation:
    """Rows that DuckDB can compute."""

    sql: str
    columns: tuple[str, ...]
    needs: tuple[Held, ...] = field(default=(), repr=False, compare=False)
    table: str | None = None
    """The table that holds just these rows, if there is one."""
    stored: StoredFiles | None = field(default=None, repr=False)
    """The files behind it, when they are read through our storage and nothing else is."""
    rows: pa.Table | None = field(default=None, repr=False)
    """The rows themselves, when they are in memory."""


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
