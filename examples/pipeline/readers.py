"""Read a table from its published log with stock deltalake, DuckDB and polars."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TypeAlias

import deltalake
import duckdb
import polars

Totals: TypeAlias = tuple[int, Decimal]
"""The number of orders and their total amount."""


def with_deltalake(location: str) -> Totals:
    """Read the totals with stock deltalake."""
    table = deltalake.DeltaTable(location).to_pyarrow_table(columns=["amount"])
    return table.num_rows, sum(table["amount"].to_pylist(), Decimal(0))


def with_duckdb(location: str) -> Totals:
    """Read the totals with DuckDB; with its delta extension if it is installed."""
    connection = duckdb.connect()
    try:
        import duckdb_extensions

        duckdb_extensions.import_extension("delta")
        connection.execute("LOAD delta")
        orders = connection.from_query(
            "SELECT * FROM delta_scan($place)", params={"place": location}
        )
    except ImportError:
        orders = connection.from_arrow(deltalake.DeltaTable(location).to_pyarrow_dataset())
    found = orders.aggregate("count(*), sum(amount)").fetchone()
    assert found is not None
    return found[0], found[1]


def with_polars(location: str) -> Totals:
    """Read the totals with polars."""
    amounts = polars.read_delta(location, columns=["amount"])["amount"]
    return len(amounts), Decimal(str(amounts.sum()))


READERS: dict[str, Callable[[str], Totals]] = {
    "deltalake": with_deltalake,
    "DuckDB": with_duckdb,
    "polars": with_polars,
}
