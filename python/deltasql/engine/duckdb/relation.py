"""A relation of the DuckDB engine: a query, and the named objects that the query uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections import deque

    import pyarrow as pa

    from deltasql.engine.base import Relation
    from deltasql.engine.files.arrow_scan import ArrowScan


class NamedObject:
    """A table, registered Arrow data or a variable in DuckDB.

    When no relation refers to the object any more, it adds itself to the engine's queue of objects
    to drop.
    """

    __slots__ = ("_unused", "drop", "name", "value")

    def __init__(
        self, name: str, unused: deque[tuple[str, str]], *, drop: str = "", value: Any = None
    ) -> None:
        """`drop` is the statement that drops the object; empty for registered Arrow data."""
        self.name, self.drop, self.value = name, drop, value
        self._unused = unused

    def __del__(self) -> None:
        # Do not drop the object here: this may run in any thread, even during a query.
        self._unused.append((self.name, self.drop))


@dataclass(frozen=True, slots=True)
class DuckDbRelation:
    """Rows that DuckDB can compute."""

    sql: str
    columns: tuple[str, ...]
    needs: tuple[NamedObject, ...] = field(default=(), repr=False, compare=False)
    table: str | None = None
    """The table that holds exactly these rows, if there is one."""
    scan: ArrowScan | None = field(default=None, repr=False)
    """The Arrow scan that provides the rows, if DuckDB reads none of the files itself."""
    rows: pa.Table | None = field(default=None, repr=False)
    """The rows, if they are in memory."""


def own_relation(relation: Relation) -> DuckDbRelation:
    """Narrow the type of a relation to `DuckDbRelation`; fail for a relation of another engine."""
    assert isinstance(relation, DuckDbRelation), "the relation belongs to another engine"
    return relation
