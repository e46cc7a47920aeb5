"""Read tables with DuckDB and polars: from the published log, as views, and by URI."""

from __future__ import annotations

import duckdb
import polars as pl

import deltasql

URI = "deltasql://sqlite/lake/meta.db"


def main() -> None:
    sales = pl.DataFrame({"day": ["mon", "mon", "tue"], "amount": [3, 4, 5]})
    with deltasql.begin(URI) as tx:
        tx.write("sales", sales)
        tx.write("days", pl.DataFrame({"day": ["mon", "tue"], "open": [True, False]}))
    with deltasql.connect(URI) as catalog:
        place = catalog.table("sales").location

    # polars with the table's path reads only the published log.
    by_day = pl.scan_delta(place).group_by("day").agg(pl.col("amount").sum()).sort("day")
    print("polars, by path:", by_day.collect().rows())

    # DuckDB reads an Arrow dataset; `delta_scan(place)` of its delta extension is an alternative.
    table = deltasql.DeltaTable(f"{URI}?table=sales")
    database = duckdb.connect()
    database.register("sales", table.to_pyarrow_dataset())
    query = "SELECT day, sum(amount)::INT FROM sales GROUP BY day ORDER BY day"
    print("DuckDB, a table:", database.sql(query).fetchall())

    # A DuckDB file with a view for every table of the catalog, updated after each commit.
    deltasql.mirror_duckdb(URI, "lake/views.duckdb")
    with deltasql.begin(URI) as tx:
        tx.write("sales", pl.DataFrame({"day": ["tue"], "amount": [6]}))
    with duckdb.connect("lake/views.duckdb", read_only=True) as views:
        query = (
            "SELECT open, sum(amount)::INT FROM sales JOIN days USING (day) GROUP BY 1 ORDER BY 1"
        )
        print("DuckDB, all tables:", views.sql(query).fetchall())

    # polars with the table's URI, at an old version.
    deltasql.register()
    print("polars, version 0:", pl.read_delta(f"{URI}?table=sales", version=0).height, "rows")
    deltasql.unregister()


if __name__ == "__main__":
    main()
