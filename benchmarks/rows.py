"""Systems that read and write rows: one class for deltalake and deltasql, and one for DuckLake.

The table has six columns. Its ids are consecutive, and file i of n has the i-th range of ids.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

    from benchmarks.harness import Native

_START_US = 1_760_000_000_000_000


def rows(first: int, count: int) -> pa.Table:
    """Return `count` rows with ids that start at `first`.

    >>> rows(10, 2)["id"].to_pylist()
    [10, 11]
    """
    return _rows(np.arange(first, first + count, dtype=np.int64), 0.5)


def merge_source(total: int, count: int) -> pa.Table:
    """Return rows for a merge: 90 % update ids of the last quarter, the others are new.

    >>> merge_source(400, 10)["id"].to_pylist()
    [300, 311, 322, 333, 344, 355, 366, 377, 388, 400]
    """
    old = count * 9 // 10
    changed = total - total // 4 + np.arange(old, dtype=np.int64) * (total // 4 // old)
    added = np.arange(total, total + count - old, dtype=np.int64)
    return _rows(np.concatenate([changed, added]), 2.0)


def _rows(ids: np.ndarray, scale: float) -> pa.Table:
    words = pa.array([f"label {number:04d}" for number in range(1000)])
    labels = pa.DictionaryArray.from_arrays(pa.array((ids * 7919 % 1000).astype(np.int32)), words)
    return pa.table(
        {
            "id": ids,
            "key": (ids * 2654435761 % 100_003).astype(np.int32),
            "amount": (ids * 31 % 10_007) * scale,
            "label": labels.cast(pa.string()),
            "at": pa.array(_START_US + ids * 1_000_000, pa.timestamp("us", "UTC")),
            "flag": ids % 3 == 0,
        }
    )


class DeltaRows:
    """deltalake with a path, or deltasql with a URI, through the same calls.

    It has only plain values, so that it can be sent to another process.
    """

    def __init__(self, name: str, backend: str, place: str) -> None:
        self.name, self.backend, self.place = name, backend, place

    def prepare(self) -> None:
        """Run every operation on three rows of another table, so that all modules are loaded."""
        with tempfile.TemporaryDirectory() as folder:
            ours = f"deltasql://sqlite/{folder}/meta.db?table=t&mirror=sync"
            place = ours if self.name.startswith("deltasql") else f"{folder}/t"
            small = DeltaRows(self.name, self.backend, place)
            small.append(rows(0, 3))
            small.merge(rows(2, 3))
            small.update("id = 0")
            small.delete("id = 1")
            small.sum()

    def append(self, data: pa.Table) -> None:
        """Append rows; the first append creates the table."""
        self._module().write_deltalake(self.place, data, mode="append")

    def merge(self, source: pa.Table) -> Native:
        """Update the rows that are in the source, and insert the other rows of the source."""
        merger = self._table().merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        return merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self, where: str) -> Native:
        """Delete the rows that match."""
        return self._table().delete(where)

    def update(self, where: str) -> Native:
        """Change one column of the rows that match."""
        return self._table().update(updates={"amount": "amount + 1"}, predicate=where)

    def version(self) -> int:
        """Return the latest version."""
        return int(self._table().version())

    def restore(self, version: int) -> None:
        """Restore a version, so that the next sample has the same files."""
        self._table().restore(version)

    def sum(self) -> tuple[int, float]:
        """Return the number of rows and the sum of `amount`."""
        import pyarrow.compute as pc

        amounts = self._table().to_pyarrow_table(columns=["amount"])["amount"]
        return len(amounts), float(pc.sum(amounts).as_py())

    def scan(self, low: int, high: int) -> int:
        """Open the table, read the rows of a range of ids, and return their number."""
        filters = [("id", ">=", low), ("id", "<=", high)]
        return len(self._table().to_pyarrow_table(filters=filters))

    def scan_sql(self, low: int, high: int) -> int:
        """Read the same rows through the library's own query engine."""
        query = self._module().QueryBuilder().register("t", self._table())
        found = query.execute(f"SELECT * FROM t WHERE id BETWEEN {low} AND {high}").read_all()
        return int(found.num_rows)

    def close(self) -> None:
        """Do nothing: no connection stays open."""

    def _module(self) -> Any:
        if self.name.startswith("deltasql"):
            import deltasql

            return deltasql
        import deltalake

        return deltalake

    def _table(self) -> Any:
        return self._module().DeltaTable(self.place)


class DuckLakeRows:
    """DuckLake on SQLite: it gets Arrow data that is large enough to be written as Parquet."""

    name = "ducklake-sqlite"
    backend = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Load the extensions."""
        # A late import: the processes of the other systems must not load DuckDB.
        import pandas  # noqa: F401

        from benchmarks.ducklake import ducklake_connection

        self._db: duckdb.DuckDBPyConnection = ducklake_connection()
        self._db.execute(
            f"ATTACH 'ducklake:sqlite:{self.folder}/lake.sqlite' AS lake "
            f"(DATA_PATH '{self.folder}/data', META_JOURNAL_MODE 'WAL')"
        )

    def append(self, data: pa.Table) -> None:
        """Append rows; the first append creates the table."""
        self._db.register("given", data)
        known = self._db.execute(
            "SELECT count(*) FROM duckdb_tables() WHERE database_name = 'lake'"
        ).fetchone()
        if known == (0,):
            self._db.execute("CREATE TABLE lake.t0 AS SELECT * FROM given")
        else:
            self._db.execute("INSERT INTO lake.t0 SELECT * FROM given")

    def add_files(self, pattern: str) -> None:
        """Register existing Parquet files that match a glob pattern."""
        self._db.execute(f"CALL ducklake_add_data_files('lake', 't0', '{pattern}')")

    def sum(self) -> tuple[int, float]:
        """Return the number of rows and the sum of `amount`."""
        found = self._db.execute("SELECT count(*), sum(amount) FROM lake.t0").fetchone()
        return found or (0, 0.0)

    def scan(self, low: int, high: int) -> int:
        """Read the rows of a range of ids as Arrow, and return their number."""
        query = f"SELECT * FROM lake.t0 WHERE id BETWEEN {low} AND {high}"
        return len(self._db.execute(query).fetch_arrow_table())

    def close(self) -> None:
        """Close the connection."""
        self._db.close()
