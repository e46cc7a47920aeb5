"""Checks the verbs of the embedded engine with the DuckDB of this environment.

`python -m tests.matrix.duckdb_engine FOLDER` prints one line of JSON, as the behaviours do.
"""

from __future__ import annotations

import json
import sys
import traceback

import pyarrow as pa

import deltasql
from tests.matrix.behaviours import OK, Failure


def verbs(folder: str) -> None:
    """Write partitions, then delete, update, merge, compact and sort, and compare all rows."""
    rows = pa.table({"id": pa.array(range(6), pa.int64()), "part": ["a", "b"] * 3})
    source = pa.table({"id": pa.array([5, 9], pa.int64()), "part": ["c", "c"]})
    with deltasql.connect(f"deltasql://sqlite/{folder}/engine.db") as catalog:
        with catalog.begin() as tx:
            tx.write("t", rows, partition_by=["part"])
            tx.delete("t", "id = 0")
        with catalog.begin() as tx:
            tx.update("t", {"part": "'d'"}, predicate="id = 1")
            merge = tx.merge("t", source, "t.id = s.id", source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        catalog.optimize("t")
        catalog.optimize("t", z_order=["id"])
        catalog.sql("INSERT INTO t VALUES (10, 'e')")
        found = catalog.query("SELECT id, part FROM t ORDER BY id").read_all().to_pylist()
    expected = {1: "d", 2: "a", 3: "b", 4: "a", 5: "c", 9: "c", 10: "e"}
    if {row["id"]: row["part"] for row in found} != expected or len(found) != len(expected):
        raise Failure(f"the rows are {found}")


def main(folder: str) -> None:
    """Run the checks and print their result."""
    try:
        verbs(folder)
        result = OK
    except Exception as error:
        traceback.print_exc()
        result = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    print(json.dumps({"delete, update, merge, optimize": result}))


if __name__ == "__main__":
    main(sys.argv[1])
