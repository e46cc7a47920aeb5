"""Migrate an existing table: import, verify, cutover, rollback. Its data files do not move."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa

import deltasql

URI = "deltasql://sqlite/lake/meta.db"


def main() -> None:
    place = str(Path("old/sales").absolute())
    for day in range(3):
        rows = pa.table({"id": [day * 2, day * 2 + 1], "day": [day, day]})
        deltalake.write_deltalake(place, rows, mode="append", partition_by=["day"])
    print("a table of deltalake at version", deltalake.DeltaTable(place).version())

    with deltasql.connect(URI) as catalog:
        report = catalog.import_table(place)
        print(
            f"imported as {report.table}, versions {report.first_version} to {report.last_version}"
        )
        print("every version is the same:", catalog.mirror.verify("sales", versions="all")[0].ok)

        catalog.cutover("sales")
        print("SQL decides from version", catalog.table("sales").version())
        try:
            deltalake.write_deltalake(place, rows, mode="append")
        except deltalake.exceptions.DeltaError as error:
            print("a writer by path is refused:", type(error).__name__)

        with catalog.begin() as tx:
            tx.write("sales", rows)
        print("a reader by path goes on, at version", deltalake.DeltaTable(place).version())

        catalog.rollback("sales")
    deltalake.write_deltalake(place, rows, mode="append")
    table = deltalake.DeltaTable(place)
    print(f"rolled back: version {table.version()} with {table.count()} rows, by path")


if __name__ == "__main__":
    main()
