"""Runs in the environment of one deltalake release and answers requests, line by line.

Only deltalake and pyarrow are installed there, so nothing of deltasql is imported.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import deltalake
import pyarrow as pa

from tests.compat.makers import MAKERS
from tests.oracles.states import arrow_rows


def version() -> str:
    """Return the version of the release."""
    return str(deltalake.__version__)


def read(location: str, at: int, way: str) -> dict[str, Any]:
    """Return the rows of a version, read with a pyarrow dataset or with the release's SQL."""
    table = deltalake.DeltaTable(location, version=at)
    rows = arrow_rows(table.to_pyarrow_table() if way == "pyarrow" else by_sql(table))
    return asdict(rows)


def make(location: str, maker: str) -> dict[str, Any]:
    """Write a table, and return the rows of its versions as this release reads them."""
    MAKERS[maker](location)
    states = {}
    for at in range(deltalake.DeltaTable(location).version() + 1):
        try:
            states[at] = read(location, at, "sql")
        except (
            Exception
        ):  # it cannot read some versions, such as those whose files a vacuum deleted
            states.pop(at, None)
    return states


def append(location: str, numbers: list[int]) -> int:
    """Append rows with one column to the path, and return the new version."""
    deltalake.write_deltalake(
        location, pa.table({"id": pa.array(numbers, pa.int64())}), mode="append"
    )
    return int(deltalake.DeltaTable(location).version())


def by_sql(table: deltalake.DeltaTable) -> pa.Table:
    """Read a table with the engine in deltalake."""
    builder = deltalake.QueryBuilder().register("t", table)
    found = builder.execute("SELECT * FROM t")
    if not hasattr(found, "fetchall"):
        return pa.table(found)
    batches = [pa.record_batch(each) for each in found.fetchall()]
    return pa.Table.from_batches(batches) if batches else table.to_pyarrow_table()


ACTIONS = {each.__name__: each for each in (version, read, make, append)}


def main() -> None:
    """Answer requests until the input ends; an error is a response, too."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            response = {"value": ACTIONS[request.pop("do")](**request)}
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a Rust panic is not an Exception
            lines = str(error).strip().splitlines() or [""]
            response = {"error": f"{type(error).__name__}: {lines[0]}"}
        print(json.dumps(response), flush=True)


if __name__ == "__main__":
    main()
