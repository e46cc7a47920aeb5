"""The tables of the soak, and the invariants of every snapshot of them.

An order and its payment are written, changed and deleted in one transaction; what is taken from
stock is recorded in the same transaction. So in one snapshot, orders and payments have the same
sum, and stock and moves add up to the initial stock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

import deltasql

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

LINES = 20  # rows of an order
SKUS, SHELVES, FULL = 64, 8, 1_000_000
SCHEMAS = {
    "orders": pa.schema(
        [("writer", pa.int64()), ("seq", pa.int64()), ("line", pa.int64()), ("amount", pa.int64())]
    ),
    "payments": pa.schema([("writer", pa.int64()), ("seq", pa.int64()), ("amount", pa.int64())]),
    "stock": pa.schema([("shelf", pa.int64()), ("sku", pa.int64()), ("left", pa.int64())]),
    "moves": pa.schema([("writer", pa.int64()), ("sku", pa.int64()), ("taken", pa.int64())]),
}
TABLES = tuple(SCHEMAS)


@dataclass(frozen=True, slots=True)
class Place:
    """The catalog and folder of a soak, and the retention of its vacuum."""

    uri: DeltaSqlUri
    folder: Path
    retention_s: float

    @property
    def pause_s(self) -> float:
        """The pause of optimize and vacuum between two tables."""
        return self.retention_s / 12

    def open(self, mirror: str = "off") -> Catalog:
        """Open the catalog with few connections and threads, since there are many processes."""
        return deltasql.connect(
            self.uri,
            mirror={"mode": mirror},
            table={"data_root": str(self.folder / "lake")},
            pool={"max_size": 2},
            engine={"threads": 1, "memory_limit": "256MB"},
        )


def create(catalog: Catalog) -> None:
    """Create the tables and the initial stock."""
    for name, schema in SCHEMAS.items():
        catalog.create_table(name, schema, partition_by=["shelf"] if name == "stock" else None)
    skus = range(SKUS)
    with catalog.begin() as tx:
        columns = {"shelf": [n % SHELVES for n in skus], "sku": skus, "left": [FULL] * SKUS}
        tx.write("stock", pa.table(columns, schema=SCHEMAS["stock"]))


def amounts(writer: int, seq: int) -> list[int]:
    """Return the amounts of the lines of an order."""
    return [(31 * writer + 17 * seq + line) % 1000 for line in range(LINES)]


def contradictions(rows: Mapping[str, pa.Table]) -> list[str]:
    """Return the invariants that the rows of one snapshot violate."""
    found = []
    ordered, paid = _sum(rows["orders"], "amount"), _sum(rows["payments"], "amount")
    if ordered != paid:
        found.append(f"orders of {ordered}, payments of {paid}")
    if rows["orders"].num_rows != LINES * rows["payments"].num_rows:
        found.append(f"{rows['orders'].num_rows} lines, {rows['payments'].num_rows} payments")
    left, taken = _sum(rows["stock"], "left"), _sum(rows["moves"], "taken")
    if left + taken != SKUS * FULL:
        found.append(f"{left} left and {taken} taken of {SKUS * FULL}")
    return found


def _sum(rows: pa.Table, column: str) -> int:
    return int(pc.sum(rows[column]).as_py() or 0)
