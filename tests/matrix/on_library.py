"""Checks that run with one release of a library: `python -m tests.matrix.on_library FOLDER NAME`.

The library reads the published log of a table by its path, and, where it uses deltalake, the table
by its `deltasql://` URI. The libraries are imported late: each environment has one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import deltasql
from deltasql.model.duckdb_results import arrow_table
from tests.matrix.behaviours import check
from tests.matrix.checks import main

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "part": ["a", "a", "b", None],
        "price": pa.array([1.5, None, 3.5, 4.5], pa.float64()),
    }
)
# What `published` leaves: row 2 is deleted, row 3 is updated, and row 5 is appended.
IDS, PRICES = [1, 3, 4, 5], 1.5 + 30.0 + 4.5 + 5.5


class Published:
    """A partitioned table with several commits, its URI, and the path of its published log."""

    def __init__(self, folder: Path) -> None:
        self.uri = f"deltasql://sqlite/{folder}/catalog.db?table=t"
        self.path = str(folder / "t")
        deltasql.write_deltalake(f"{self.uri}&location={self.path}", ROWS, partition_by=["part"])
        table = deltasql.DeltaTable(self.uri)
        table.delete("id = 2")
        table.update({"price": "30.0"}, predicate="id = 3")
        table.create_checkpoint()
        more = pa.table({"id": pa.array([5], pa.int64()), "part": ["c"], "price": [5.5]})
        deltasql.write_deltalake(self.uri, more, mode="append")
        self.expect(table_rows(deltasql.DeltaTable(self.uri).to_pyarrow_table()), "deltasql")

    def expect(self, found: tuple[list[int], float], reader: str) -> None:
        """Fail unless a reader returned the rows of the table."""
        check(found == (IDS, PRICES), f"{reader} reads {found}, not {(IDS, PRICES)}")


def table_rows(rows: Any) -> tuple[list[int], float]:
    """Return the sorted ids and the sum of the prices."""
    if isinstance(rows, pa.RecordBatchReader):  # from ibis 10
        rows = rows.read_all()
    columns = rows if isinstance(rows, dict) else rows.to_pydict()
    return sorted(columns["id"]), sum(price for price in columns["price"] if price is not None)


@contextmanager
def registration() -> Iterator[None]:
    deltasql.register()
    try:
        yield
    finally:
        deltasql.unregister()


def polars(folder: Path) -> None:
    """polars reads the path and the URI, filters, appends and overwrites."""
    import polars as pl

    table = Published(folder)
    table.expect(table_rows(pl.read_delta(table.path).to_arrow()), "read_delta of the path")
    table.expect(table_rows(pl.scan_delta(table.path).collect().to_arrow()), "scan_delta")
    with registration():
        table.expect(table_rows(pl.read_delta(table.uri).to_arrow()), "read_delta of the URI")
        found = pl.scan_delta(table.uri).filter(pl.col("part") == "a").collect()["id"].to_list()
        check(found == [1], f"the filter returns {found}")
        more = pl.DataFrame({"id": [6], "part": ["a"], "price": [1.0]})
        more.write_delta(table.uri, mode="append")
        check(sorted(pl.read_delta(table.path)["id"]) == [*IDS, 6], "the append is missing")
        more.write_delta(table.uri, mode="overwrite")
        check(pl.read_delta(table.path)["id"].to_list() == [6], "the overwrite is missing")


def duckdb(folder: Path) -> None:
    """DuckDB's delta extension reads the path."""
    import duckdb
    import duckdb_extensions

    duckdb_extensions.import_extension("delta")
    table = Published(folder)
    with duckdb.connect() as connection:
        connection.sql("LOAD delta")
        found = arrow_table(connection.execute("FROM delta_scan(?)", [table.path]))
        table.expect(table_rows(found), "delta_scan")
        sql = "SELECT id FROM delta_scan(?) WHERE part = 'a'"
        check(connection.execute(sql, [table.path]).fetchall() == [(1,)], "wrong rows of a filter")


def engine(folder: Path) -> None:
    """deltasql runs DML, SQL and OPTIMIZE with this release of DuckDB."""
    table = Published(folder)
    opened = deltasql.DeltaTable(table.uri)
    source = pa.table({"id": pa.array([5, 6], pa.int64()), "part": ["c", "c"], "price": [1.0, 2.0]})
    merge = opened.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    opened.optimize.compact()
    with deltasql.connect(table.uri.partition("?")[0]) as catalog:
        found = catalog.query("SELECT id, price FROM t ORDER BY id").read_all()
        check(table_rows(found) == ([*IDS, 6], 1.5 + 30.0 + 4.5 + 1.0 + 2.0), f"rows: {found}")
        (report,) = catalog.mirror.verify(data=True)
        check(report.total == 0, report.summary())


def datafusion(folder: Path) -> None:
    """DataFusion queries a DeltaTable through its table provider, and the published log."""
    import deltalake
    from datafusion import SessionContext

    table = Published(folder)
    for name, opened in (
        ("DeltaTable", deltasql.DeltaTable(table.uri)),
        ("deltalake's DeltaTable", deltalake.DeltaTable(table.path)),
    ):
        context = SessionContext()
        register = getattr(context, "register_table", None) or context.register_table_provider
        register("t", opened)
        found = context.sql("SELECT id, price FROM t").to_arrow_table()
        table.expect(table_rows(found), name)
        counted = context.sql("SELECT count(*) AS n FROM t").to_arrow_table().to_pylist()
        check(counted == [{"n": len(IDS)}], f"{name}: count(*) is {counted}")


def daft(folder: Path) -> None:
    """daft reads the path and the URI, and filters."""
    import daft

    table = Published(folder)
    table.expect(table_rows(daft.read_deltalake(table.path).to_pydict()), "the path")
    with registration():
        frame = daft.read_deltalake(table.uri)
        table.expect(table_rows(frame.to_pydict()), "the URI")
        found = frame.where(frame["part"] == "a").to_pydict()["id"]
        check(found == [1], f"the filter returns {found}")


def dask(folder: Path) -> None:
    """dask reads the path and the URI."""
    import dask_deltatable

    table = Published(folder)
    with registration():
        for place in (table.path, table.uri):
            frame = dask_deltatable.read_deltalake(place).compute()
            table.expect(table_rows(pa.Table.from_pandas(frame, preserve_index=False)), place)


def ibis(folder: Path) -> None:
    """ibis reads the path through polars and DuckDB, and the URI through polars."""
    import duckdb_extensions
    import ibis

    duckdb_extensions.import_extension("delta")
    table = Published(folder)
    with registration():
        for place in (table.path, table.uri):
            found = ibis.polars.connect().read_delta(place)
            table.expect(table_rows(found.to_pyarrow()), place)
    through_duckdb = ibis.duckdb.connect().read_delta(table.path)
    table.expect(table_rows(through_duckdb.to_pyarrow()), "DuckDB")


CHECKS: dict[str, Callable[[Path], None]] = {
    each.__name__: each for each in (polars, duckdb, engine, datafusion, daft, dask, ibis)
}


if __name__ == "__main__":
    sys.exit(main(CHECKS))
