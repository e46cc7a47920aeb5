"""Load two tables in one transaction, build the dbt project, and read the tables that it wrote."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import deltalake
import pyarrow as pa
from dbt.cli.main import dbtRunner

import deltasql

PROJECT = Path(__file__).parent


def main(folder: Path) -> None:
    uri = f"deltasql://sqlite/{folder}/meta.db"
    os.environ |= {
        "DELTASQL_URI": uri,
        "DBT_DATABASE": f"{folder}/shop.duckdb",
        "DBT_EXTERNAL_ROOT": str(folder),
        "DBT_PROJECT_DIR": str(PROJECT),
        "DBT_PROFILES_DIR": str(PROJECT),
        "DBT_TARGET_PATH": f"{folder}/target",
        "DBT_LOG_PATH": f"{folder}/logs",
        "DO_NOT_TRACK": "1",
    }
    with deltasql.begin(uri) as tx:
        tx.write("customers", pa.table({"customer_id": [1, 2], "name": ["Ann", "Bo"]}))
        tx.write("orders", orders([(1, "mon", 30), (2, "mon", 5)]))
    build()
    show(uri)
    with deltasql.begin(uri) as tx:
        tx.write("orders", orders([(2, "tue", 10)]))
    build()
    show(uri)


def orders(rows: list[tuple[int, str, int]]) -> pa.Table:
    names = ("customer_id", "day", "amount")
    return pa.table({name: [row[n] for row in rows] for n, name in enumerate(names)})


def build() -> None:
    """Run the models and their tests."""
    done = dbtRunner().invoke(["--quiet", "build"])
    if not done.success:
        sys.exit(f"dbt failed: {done.exception or done.result}")
    print("dbt build:", sorted(f"{each.node.name} {each.status}" for each in done.result))


def show(uri: str) -> None:
    with deltasql.connect(uri) as catalog:
        for name in ("revenue", "daily_revenue"):
            stock = deltalake.DeltaTable(catalog.table(name).location)  # by path
            rows = sorted(stock.to_pyarrow_table().to_pylist(), key=str)
            operation = catalog.table(name).history()[0].info.operation
            print(f"{name}@{stock.version()} ({operation}):", rows)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
