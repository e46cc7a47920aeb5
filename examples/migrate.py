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
    print("deltalake wrote a table, version", deltalake.DeltaTable(place).version())

    with deltasql.connect(URI) as catalog:
        report = catalog.import_table(place)
        print(
            f"imported as {report.table}, versions {report.first_version} to {report.last_version}"
        )
        print("all versions are equal:", catalog.mirror.verify("sales", versions="all")[0].ok)

        catalog.cutover("sales")
        print("the database manages the table from version", catalog.table("sales").version())
        try:
            deltalake.write_deltalake(place, rows, mode="append")
        except deltalake.exceptions.DeltaError as error:
            print("deltalake can no longer write to the path:", type(error).__name__)

        with catalog.begin() as tx:
            tx.write("sales", rows)
        print("deltalake still reads the path, at version", deltalake.DeltaTable(place).version())

        catalog.rollback("sales")
    deltalake.write_deltalake(place, rows, mode="append")
    table = deltalake.DeltaTable(place)
    print(f"rolled back: deltalake wrote version {table.version()}, {table.count()} rows")


if __name__ == "__main__":
    main()
