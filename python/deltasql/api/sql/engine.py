"""StatementEngine: the interface through which SQL statements use DuckDB or Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.model.schema.schema import DataType
    from deltasql.model.statements.statement import TableRef


@dataclass(frozen=True, slots=True)
class Stored:
    """A column of a table, and the value that a statement stores in it."""

    name: str
    type: DataType | None
    """The type to cast to; None keeps the type of the query's column."""
    column: int | None = None
    """The position of the value in the result of the query."""
    value: str | None = None
    """An SQL expression; if both `column` and `value` are None, null is stored."""


Arrange: TypeAlias = "Callable[[Sequence[str]], Sequence[Stored]]"
"""A function from the column names of a query to the columns to store."""


def as_they_are(names: Sequence[str]) -> list[Stored]:
    """Store the columns of a query with their own names and types."""
    return [Stored(name, None, column) for column, name in enumerate(names)]


class StatementEngine(Protocol):
    """Runs the queries of statements, on the embedded engine (DuckDB) or in a Spark session."""

    name: str | None
    """The engine that operations run on; None for the configured engine."""

    def table(self, tx: MultiTableTransaction, table: TableRef) -> str:
        """Return the name of a table in the catalog's spelling."""

    def location(self, path: str) -> str:
        """Convert a path in a statement to the form in which the catalog stores locations."""

    def timestamp(self, text: str) -> datetime:
        """Parse a timestamp of a statement."""

    def start(self, tx: MultiTableTransaction, table: str) -> None:
        """Prepare the transaction to run an operation on this engine."""

    def select(self, tx: MultiTableTransaction, query: str, values: Mapping[str, Any]) -> Any:
        """Return the rows of a query to the user, as the transaction sees them."""

    def rows(
        self,
        tx: MultiTableTransaction,
        query: str,
        values: Mapping[str, Any],
        arrange: Arrange | None = None,
    ) -> Any:
        """Return the rows of a query for a write or a merge; `arrange` chooses the columns."""

    def fetch(self, tx: MultiTableTransaction, query: str, values: Mapping[str, Any]) -> pa.Table:
        """Return the rows of a query as an Arrow table, for another step of the same statement."""

    def vacuum_options(self) -> dict[str, Any]:
        """Return the options of `catalog.vacuum` for this engine."""

    def result(self, rows: pa.Table) -> Any:
        """Return a small result to the user."""
