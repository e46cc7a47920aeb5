"""Checks deltasql with the PySpark of this environment: `python -m tests.spark.on_release`.

`tests.spark.releases` runs it in an environment of every supported release. It prints one JSON
object: check → "yes", or the error.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltasql
import deltasql.spark
from deltasql.spark import DeltaTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

YES = "yes"


class Place:
    """A session, and a catalog with an empty folder of its own for each check."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.catalog = deltasql.connect(f"deltasql://sqlite/{folder}/meta.db", create=True)
        deltasql.spark.register(spark, self.catalog)

    def uri(self, table: str) -> str:
        return self.catalog.uri.with_table(table).to_string()

    def catalog_sql(self, text: str) -> list[tuple[Any, ...]]:
        """Run a statement with the Spark catalog `lake`, and return its rows."""
        name = self.folder.name
        for key, value in deltasql.spark.catalog_options(self.catalog, name).items():
            if key != "spark.jars":
                self.spark.conf.set(key, value)
        found = self.spark.sql(text.replace("lake.", f"{name}."))
        return [tuple(row) for row in found.collect()]

    def ids(self, table: str) -> list[int]:
        """Return the ids of a table, as the embedded engine reads them."""
        rows = deltasql.DeltaTable(self.uri(table)).to_pyarrow_table(columns=["id"])
        return sorted(rows["id"].to_pylist())

    def table(self, ids: int) -> DeltaTable:
        """Create the table `t` with some ids, in two files and versions."""
        for first, end in ((0, ids // 2), (ids // 2, ids)):
            frame = self.spark.range(first, end).selectExpr("id", "id * 10 AS value")
            deltasql.spark.write(frame, self.uri("t"))
        return DeltaTable.forName(self.spark, "t")


def read_and_write(place: Place) -> None:
    place.table(6)
    frame = deltasql.spark.read(place.spark, place.uri("t"), predicate="id >= 4")
    _equal(sorted(row["id"] for row in frame.collect()), [4, 5])
    _equal(place.ids("t"), [0, 1, 2, 3, 4, 5])


def change_rows(place: Place) -> None:
    table = place.table(4)
    table.update("id = 1", {"value": "-1"})
    table.delete("id = 0")
    source = place.spark.range(3, 6).selectExpr("id", "0 AS value")
    merger = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    merger.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    _equal(place.ids("t"), [1, 2, 3, 4, 5])
    _equal(sorted(row["value"] for row in table.toDF().collect()), [-1, 0, 0, 0, 20])


def several_tables(place: Place) -> None:
    with place.catalog.begin() as tx:
        tx.write("one", place.spark.range(2))
        tx.write("two", place.spark.range(3))
    names = deltasql.spark.register(place.spark, place.catalog)
    _equal(names, {"one": "one", "two": "two"})
    joined = place.spark.sql("SELECT count(*) FROM one JOIN two USING (id)")
    _equal(joined.collect()[0][0], 2)


def maintain(place: Place) -> None:
    table = place.table(8)
    table.optimize().executeCompaction()
    table.delete("id > 3")
    table.restoreToVersion(1)
    _equal(table.history().count(), 5)
    _equal(place.ids("t"), list(range(8)))


def data_source(place: Place) -> None:
    frame = place.spark.range(4)
    frame.write.format("deltasql").mode("append").save("t")
    _equal(place.ids("t"), [0, 1, 2, 3])
    _equal(place.spark.read.format("deltasql").load("t").count(), 4)


def streams(place: Place) -> None:
    place.table(4)
    stream = place.spark.readStream.format("deltasql").load("t")
    write = deltasql.spark.stream_writer("copy", app_id="copy", catalog=place.catalog)
    for ids in (4, 6):
        query = (
            stream.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(place.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        _equal(place.ids("copy"), list(range(ids)))
        more = place.spark.range(4, 6).selectExpr("id", "0 AS value")
        deltasql.spark.write(more, place.uri("t"))


def skip_files(place: Place) -> None:
    place.table(6)
    found = deltasql.spark.read(place.spark, place.uri("t")).where("id = 5")
    found.collect()
    plan: Any = found._jdf.queryExecution().executedPlan()
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        plan = plan.executedPlan()
    leaves = plan.collectLeaves()
    _equal([leaves.apply(n).metrics().apply("numFiles").value() for n in range(leaves.size())], [1])


def catalog_tables(place: Place) -> None:
    sql = place.catalog_sql
    sql("CREATE TABLE lake.default.t (id BIGINT NOT NULL, day DATE) PARTITIONED BY (day)")
    sql("INSERT INTO lake.default.t VALUES (1, DATE'2024-05-01'), (2, NULL)")
    sql("INSERT OVERWRITE lake.default.t PARTITION (day = DATE'2024-05-01') VALUES (3)")
    _equal(sql("SELECT id FROM lake.default.t ORDER BY id"), [(2,), (3,)])
    _equal(sql("SELECT sum(id) FROM lake.default.t VERSION AS OF 1"), [(3,)])
    sql("CREATE OR REPLACE TABLE lake.default.copy AS SELECT * FROM lake.default.t WHERE id > 2")
    sql("ALTER TABLE lake.default.copy ADD COLUMNS (name STRING)")
    _equal(sql("SELECT * FROM lake.default.copy")[0][2], None)
    _equal(place.ids("copy"), [3])
    sql("DROP TABLE lake.default.copy")
    _equal([each.name for each in place.catalog.tables()], ["t"])


CHECKS: dict[str, Callable[[Place], None]] = {
    "`deltasql.spark.read` and `write`": read_and_write,
    "`update`, `delete` and `merge`": change_rows,
    "A transaction over two tables, and views of them": several_tables,
    "`optimize`, `restoreToVersion` and `history`": maintain,
    '`format("deltasql")`': data_source,
    "A stream from one table to another": streams,
    "Filters on a DataFrame skip files": skip_files,
    "The Spark catalog: tables and rows": catalog_tables,
}


def _equal(found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"found {found}, expected {expected}")


def main() -> int:
    """Run every check and print the results; return 1 if a check failed."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.jars", deltasql.spark.jar())
        .config("spark.python.authenticate.socketTimeout", "300s")  # for a busy machine
        .getOrCreate()
    )
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, check in CHECKS.items():
            own = Path(folder) / check.__name__
            own.mkdir()
            try:
                check(Place(spark, own))
                results[name] = YES
            except Exception as error:
                results[name] = f"{type(error).__name__}: {error}"
    spark.stop()
    print(json.dumps(results))
    return 0 if set(results.values()) == {YES} else 1


if __name__ == "__main__":
    sys.exit(main())
