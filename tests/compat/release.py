"""Runs inside the environment of one deltalake release: it answers requests, line by line.

Only deltalake and pyarrow are there, so nothing of deltasql is imported.
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
    """Return the release."""
    return str(deltalake.__version__)


def read(location: str, at: int, way: str) -> dict[str, Any]:
    """Return the rows of a version, read by a pyarrow dataset or by the release's own SQL."""
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
        except Exception:  # what it cannot read any more, such as files that a vacuum took
            states.pop(at, None)
    return states


def append(location: str, numbers: list[int]) -> int:
    """Append rows with one column by path, and return the version that it made."""
    deltalake.write_deltalake(
        location, pa.table({"id": pa.array(numbers, pa.int64())}), mode="append"
    )
    return int(deltalake.DeltaTable(location).version())


def by_sql(table: deltalake.DeltaTable) -> pa.Table:
    """Read a table with the engine inside deltalake."""
    builder = deltalake.QueryBuilder().register("t", table)
    found = builder.execute("SELECT * FROM t")
    if not hasattr(found, "fetchall"):
        return pa.table(found)
    batches = [pa.record_batch(each) for each in found.fetchall()]
    return pa.Table.from_batches(batches) if batches else table.to_pyarrow_table()


ACTIONS = {each.__name__: each for each in (version, read, make, append)}


def main() -> None:
    """Answer until nobody asks any more; what went wrong is an answer, too."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"value": ACTIONS[request.pop("do")](**request)}
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the Rust part is no Exception
            words = str(error).strip().splitlines() or [""]
            answer = {"error": f"{type(error).__name__}: {words[0]}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
