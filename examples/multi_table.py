"""Transactions over two tables, a conflict and time travel, with the log in SQLite.

Run it with `.venv/bin/python examples/multi_table.py`; Spark is not needed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import deltalake
import pyarrow as pa

import deltasql
from deltasql.exceptions import CommitConflictError

orders = pa.table({"order_id": [1, 2, 3], "sku": ["pen", "ink", "pen"], "quantity": [2, 1, 5]})
more_orders = pa.table({"order_id": [4], "sku": ["ink"], "quantity": [3]})
stock = pa.table({"sku": ["pen", "ink"], "left": [93, 49]})
stock_after = pa.table({"sku": ["pen", "ink"], "left": [93, 46]})


def main(folder: Path) -> None:
    uri = f"deltasql://sqlite/{folder}/catalog.db"

    heading("1. One commit creates two tables")
    with deltasql.begin(uri) as tx:
        tx.create_table("orders", orders.schema)
        tx.create_table("stock", stock.schema)
        tx.write("orders", orders)
        tx.write("stock", stock)
    print("   versions:", tx.versions)

    heading("2. One commit adds an order and changes the stock")
    with deltasql.begin(uri) as tx:
        tx.write("orders", more_orders)
        tx.write("stock", stock_after, mode="overwrite")
    print("   versions:", tx.versions)

    heading("3. A transaction that fails changes neither table")
    try:
        with deltasql.begin(uri) as tx:
            tx.write("orders", more_orders)
            raise RuntimeError("the payment failed")
    except RuntimeError as error:
        print("   rolled back:", error)

    with deltasql.connect(uri) as catalog:
        heading("4. Two writers change the same rows: the second commit fails and changes nothing")
        first, second = catalog.begin(), catalog.begin()
        for tx in (first, second):
            tx.write("stock", stock, mode="overwrite")
        first.commit()
        try:
            second.commit()
        except CommitConflictError as error:
            print("  ", str(error).replace("\n", "\n   "))

        heading("5. The history of a table, and its rows at two versions")
        table = catalog.table("orders")
        for commit in table.history():
            print(
                f"   version {commit.version}: {commit.info.operation}, {commit.group_size} tables"
            )
        for version in (0, 1):
            totals = table.snapshot(version).totals()
            print(f"   orders@{version}: files {totals.num_files}, rows {totals.num_records}")

        heading("6. Stock deltalake reads the same rows from the published log")
        for name, key in (("orders", "order_id"), ("stock", "sku")):
            mirrored = deltalake.DeltaTable(catalog.table(name).location)
            rows = mirrored.to_pyarrow_table().sort_by(key).to_pylist()
            print(f"   {name}@{mirrored.version()}: {rows}")


def heading(text: str) -> None:
    print(f"\n{text}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="deltasql-demo-") as place:
        main(Path(place))
