"""Runs in the environment of deltasql 0.1.0 and answers requests, line by line.

It opens one catalog and keeps it open, as a service does that nobody stopped before an upgrade.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa

import deltasql

opened: list[deltasql.Catalog] = []
transactions: list[deltasql.MultiTableTransaction] = []


def version() -> str:
    """Return the version of the release."""
    return str(deltasql.__version__)


def connect(uri: str, root: str, mode: str) -> None:
    """Open the catalog for the requests that follow."""
    settings: dict[str, Any] = {"mirror": {"mode": mode}, "table": {"data_root": root}}
    opened.append(deltasql.connect(uri, **settings))


def make() -> None:
    """Create tables with a history that every migration has to keep."""
    catalog = opened[-1]
    with catalog.begin() as tx:
        rows = pa.table({"id": [1, 2, 3], "day": ["mon", "mon", "tue"], "price": [1.5, None, -0.5]})
        tx.write("orders", rows, partition_by=["day"])
        tx.write("stock", pa.table({"sku": ["pen", "ink"], "left": [5, 7]}))
    with catalog.begin() as tx:
        tx.delete("orders", "id = 1")
        tx.update("stock", {"left": "left - 1"}, predicate="sku = 'pen'")
    with catalog.begin() as tx:
        rows = pa.table({"id": [4, 5], "day": ["tue", "wed"], "price": [4.0, 5.0]})
        tx.write("orders", rows)
    catalog.optimize("orders")
    with catalog.begin() as tx:
        tx.write("old_name", pa.table({"n": [1]}))
        tx.write("gone", pa.table({"n": [2]}))
    catalog.rename("old_name", "sales.renamed")
    catalog.drop("gone")


def append(table: str, numbers: list[int]) -> int:
    """Commit an append of one column and return the new version; create a missing table."""
    with opened[-1].begin() as tx:
        tx.write(table, pa.table({"n": numbers}))
    return int(opened[-1].table(table).version())


def create_at(table: str, location: str) -> None:
    """Create a table with one row at a location."""
    with opened[-1].begin() as tx:
        tx.create_table(table, pa.schema([("n", pa.int64())]), location=location)
        tx.write(table, pa.table({"n": [1]}))


def drop(table: str) -> None:
    """Drop a table."""
    opened[-1].drop(table)


def publish() -> int:
    """Publish what is missing, as a reconciler does; return the number of versions."""
    return int(opened[-1].mirror.publish())


def stage(table: str, numbers: list[int]) -> None:
    """Write a data file for a table in a transaction that stays open."""
    tx = opened[-1].begin()
    tx.write(table, pa.table({"n": numbers}))
    transactions.append(tx)


def commit() -> None:
    """Commit the transaction that `stage` opened."""
    transactions.pop().commit()


def states() -> dict[str, dict[str, Any]]:
    """Return the operation and the rows of every version of every table."""
    return {each.full_name: versions_of(each) for each in opened[-1].tables()}


def versions_of(table: Any) -> dict[str, Any]:
    """Return the operation and the rows of every version of a table."""
    operations = {each.version: each.info.operation for each in table.history()}
    found = {}
    for number in range(table.version() + 1):
        rows = deltasql.DeltaTable(table.uri, version=number).to_pyarrow_table().to_pylist()
        found[str(number)] = [operations[number], sorted(rows, key=repr)]
    return found


def main() -> None:
    """Answer one request per line of stdin."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"value": globals()[request.pop("do")](**request)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
