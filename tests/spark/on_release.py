"""Checks deltasql with the PySpark of this environment: `python -m tests.spark.on_release`.

`tests.spark.releases` runs it in an environment of every supported release. It prints one JSON
object, with the result of each check: "yes", the first release of Spark that has the feature, or
the error. A process has
classic Spark or Connect, so the checks on Connect are run by a second process with `--connect`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

import deltasql
import deltasql.spark
from deltasql.serve import requests
from deltasql.spark import DeltaTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

YES = "yes"
FROM_4_1, FROM_4_2 = "from 4.1", "from 4.2"
NO_BUILD = "no delta-spark"
RESULTS = (YES, FROM_4_1, FROM_4_2, NO_BUILD)
"""The results of checks that succeeded; others are errors."""
RELEASE = tuple(map(int, pyspark.__version__.split(".")[:2]))
EXTENSIONS = ("io.delta.sql.DeltaSparkSessionExtension", "io.deltasql.spark.DeltaSqlExtension")


class Place:
    """A session, and a catalog with an empty folder of its own for each check."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.catalog = deltasql.connect(f"deltasql://sqlite/{folder}/meta.db", create=True)
        deltasql.spark.register(spark, self.catalog)
        for key, value in deltasql.spark.catalog_options(self.catalog, self.name).items():
            if key != "spark.jars":
                spark.conf.set(key, value)

    @property
    def name(self) -> str:
        """The name of the Spark catalog."""
        return self.folder.name

    def uri(self, table: str) -> str:
        return self.catalog.uri.with_table(table).to_string()

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Run a statement in which `lake` is the Spark catalog, and return its rows."""
        found = self.spark.sql(text.replace("lake.", f"{self.name}."))
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

    def run(self, rows: DataFrame, table: str, mode: str = "append") -> None:
        """Run a stream into a table of the Spark catalog until there are no new rows."""
        query = (
            rows.writeStream.option("checkpointLocation", str(self.folder / f"checkpoint-{table}"))
            .outputMode(mode)
            .trigger(availableNow=True)
            .toTable(f"{self.name}.default.{table}")
        )
        if not query.awaitTermination(120):
            raise TimeoutError(f"the stream into {table} did not end")


# The Python API


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


def statements(place: Place) -> None:
    def sql(text: str) -> list[tuple[Any, ...]]:
        found = deltasql.spark.sql(place.spark, text, catalog=place.catalog)
        return [tuple(row) for row in found.collect()]

    sql("CREATE TABLE t (id BIGINT, value BIGINT)")
    sql("BEGIN")
    sql("INSERT INTO t VALUES (1, 10), (2, 20)")
    sql("UPDATE t SET value = 0 WHERE id = 2")
    _equal(place.ids("t"), [])
    sql("COMMIT")
    _equal(sql("SELECT value FROM t ORDER BY id"), [(10,), (0,)])
    _equal(len(sql("DESCRIBE HISTORY t")), 2)


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


# The Spark catalog


def catalog_tables(place: Place) -> None:
    sql = place.sql
    sql("CREATE TABLE lake.default.t (id BIGINT NOT NULL, day DATE) PARTITIONED BY (day)")
    sql("INSERT INTO lake.default.t VALUES (1, DATE'2024-05-01'), (2, NULL)")
    sql("INSERT OVERWRITE lake.default.t PARTITION (day = DATE'2024-05-01') VALUES (3)")
    _equal(sql("SELECT id FROM lake.default.t ORDER BY id"), [(2,), (3,)])
    _equal(sql("SELECT max(id), count(*) FROM lake.default.t"), [(3, 2)])
    sql("CREATE OR REPLACE TABLE lake.default.copy AS SELECT * FROM lake.default.t WHERE id > 2")
    sql("ALTER TABLE lake.default.copy ADD COLUMNS (name STRING)")
    _equal(sql("SELECT * FROM lake.default.copy")[0][2], None)
    place.spark.range(4, 6).selectExpr("id", "NULL AS day", "'x' AS name").writeTo(
        f"{place.name}.default.copy"
    ).append()
    _equal(place.ids("copy"), [3, 4, 5])
    sql("DROP TABLE lake.default.copy")
    _equal([each.name for each in place.catalog.tables()], ["t"])


def catalog_rows(place: Place) -> None:
    sql = place.sql
    sql(
        "CREATE TABLE lake.default.t (id BIGINT, value BIGINT) "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    sql("INSERT INTO lake.default.t SELECT id, id * 10 FROM range(4)")
    sql("UPDATE lake.default.t SET value = -1 WHERE id = 1")
    sql("DELETE FROM lake.default.t WHERE id IN (SELECT id FROM range(1))")
    sql(
        "MERGE INTO lake.default.t AS t USING (SELECT id, 0L AS value FROM range(3, 6)) AS s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    expected = [(1, -1), (2, 20), (3, 0), (4, 0), (5, 0)]
    _equal(sql("SELECT id, value FROM lake.default.t ORDER BY id"), expected)
    operations = [row.info.operation for row in place.catalog.table("t").history(3)]
    _equal(operations, ["MERGE", "DELETE", "UPDATE"])
    changes = place.catalog.changes("t", 2).read_all().to_pylist()
    found: dict[str, list[int]] = {}
    for row in changes:
        found.setdefault(row["_change_type"], []).append(row["id"])
    updated = {"update_preimage": [1, 3], "update_postimage": [1, 3]}
    expected_changes = {"delete": [0], "insert": [4, 5], **updated}
    _equal({kind: sorted(ids) for kind, ids in found.items()}, expected_changes)


def catalog_rules(place: Place) -> None:
    sql = place.sql
    sql("CREATE TABLE lake.default.t (id BIGINT)")
    sql("CALL lake.system.add_constraint('t', 'positive', 'id > 0')")
    sql("INSERT INTO lake.default.t VALUES (1)")
    for statement in (
        "INSERT INTO lake.default.t VALUES (0)",
        "UPDATE lake.default.t SET id = -id",
    ):
        _raises("rules for: positive", lambda text=statement: sql(text))
    _equal(place.ids("t"), [1])


def catalog_definitions(place: Place) -> None:
    sql = place.sql
    sql("CREATE TABLE lake.default.g (id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2))")
    partial = "INSERT INTO lake.default.g (id) VALUES (4)"
    if RELEASE >= (4, 1):
        sql(partial)
    else:  # Spark 4.0 does not fill columns that an INSERT leaves out
        _raises("CANNOT_FIND_DATA", lambda: sql(partial))
        sql("INSERT INTO lake.default.g VALUES (4, NULL)")
    _equal(sql("SELECT * FROM lake.default.g"), [(4, 8)])
    sql("ALTER TABLE lake.default.g CLUSTER BY (id)")
    sql("INSERT INTO lake.default.g REPLACE WHERE id > 3 SELECT 5L, 10L")
    _equal(place.ids("g"), [5])
    if RELEASE >= (4, 1):  # Spark 4.0 does not have the statements
        sql("CREATE TABLE lake.default.c (id BIGINT, CONSTRAINT low CHECK (id < 9))")
        sql("ALTER TABLE lake.default.c ADD CONSTRAINT high CHECK (id > 0)")
        for value in (0, 9):
            text = f"INSERT INTO lake.default.c VALUES ({value})"
            _raises("rules for: high, low", lambda text=text: sql(text))
        sql("ALTER TABLE lake.default.c DROP CONSTRAINT low")
        sql("INSERT INTO lake.default.c VALUES (9)")
        _equal(place.ids("c"), [9])


def catalog_evolution(place: Place) -> str:
    sql = place.sql
    sql("CREATE TABLE lake.default.t AS SELECT 1L AS id")
    merge = (
        "MERGE WITH SCHEMA EVOLUTION INTO lake.default.t USING (SELECT 1 AS id, 'x' AS name) AS s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
    )
    if RELEASE < (4, 2):
        _raises("needs Spark 4.2", lambda: sql(merge))
        return FROM_4_2
    sql(merge)
    sql("INSERT WITH SCHEMA EVOLUTION INTO lake.default.t BY NAME SELECT 2L AS id, 7 AS n")
    _equal(
        sql("SELECT id, name, n FROM lake.default.t ORDER BY id"), [(1, "x", None), (2, None, 7)]
    )
    _equal(place.catalog.table("t").version(), 2)
    return YES


def catalog_time_travel(place: Place) -> None:
    sql = place.sql
    sql("CREATE TABLE lake.default.t AS SELECT 1L AS id")
    committed = place.catalog.table("t").snapshot().committed_at.isoformat()
    sql("INSERT INTO lake.default.t VALUES (2)")
    _equal(sql("SELECT sum(id) FROM lake.default.t VERSION AS OF 0"), [(1,)])
    _equal(sql(f"SELECT sum(id) FROM lake.default.t TIMESTAMP AS OF '{committed}'"), [(1,)])
    frame = place.spark.read.option("versionAsOf", 0).table(f"{place.name}.default.t")
    _equal(frame.count(), 1)


def catalog_streams(place: Place) -> None:
    sql = place.sql
    sql("CREATE TABLE lake.default.t AS SELECT id, id % 2 AS part FROM range(4)")
    stream = place.spark.readStream.table(f"{place.name}.default.t")
    for ids, odd in ((4, 2), (6, 3)):
        place.run(stream, "copy")
        _equal(place.ids("copy"), list(range(ids)))
        place.run(stream.groupBy("part").count(), "counts", "complete")
        _equal(sql("SELECT count FROM lake.default.counts WHERE part = 1"), [(odd,)])
        sql("INSERT INTO lake.default.t VALUES (4, 0), (5, 1)")


def catalog_procedures(place: Place) -> None:
    sql = place.sql
    sql("CREATE TABLE lake.default.t AS SELECT 1L AS id")
    sql("INSERT INTO lake.default.t VALUES (2)")
    [(_, metrics)] = sql("CALL lake.system.optimize('default.t')")
    _equal(metrics["numFilesRemoved"], 2)
    sql("CALL lake.system.restore(table => 't', version => 0)")
    history = sql("CALL lake.system.history('t', limit => 2)")
    _equal([row[4] for row in history], ["RESTORE", "OPTIMIZE"])
    _equal(place.ids("t"), [1])
    if RELEASE >= (4, 1):  # Spark 4.0 does not have the statement
        listed = {row[-1] for row in sql("SHOW PROCEDURES IN lake.system")}
        _equal({"optimize", "begin"} <= listed, True)


def catalog_transaction(place: Place) -> None:
    sql = place.sql
    for table in ("one", "two"):
        sql(f"CREATE TABLE lake.default.{table} (id BIGINT)")
    sql("CALL lake.system.begin()")
    sql("INSERT INTO lake.default.one VALUES (1), (2)")
    sql("INSERT INTO lake.default.two SELECT id + 10 FROM lake.default.one")
    sql("DELETE FROM lake.default.one WHERE id = 1")
    _equal((place.ids("one"), place.ids("two")), ([], []))
    _equal(dict(sql("CALL lake.system.commit()")), {"one": 1, "two": 1})
    _equal((place.ids("one"), place.ids("two")), ([2], [11, 12]))
    sql("CALL lake.system.begin()")
    sql("DELETE FROM lake.default.two")
    sql("CALL lake.system.rollback()")
    _equal(sql("SELECT count(*) FROM lake.default.two"), [(2,)])


def extension(place: Place) -> None:
    sql = place.sql
    sql("CREATE TABLE lake.default.t AS SELECT 1L AS id")
    sql("INSERT INTO lake.default.t VALUES (2)")
    [(_, metrics)] = sql("OPTIMIZE lake.default.t")
    _equal(metrics["numFilesRemoved"], 2)
    _equal(sql("SELECT count(*) FROM lake.default.t@0"), [(1,)])
    _equal(sql("DESCRIBE HISTORY lake.default.t LIMIT 1")[0][4], "OPTIMIZE")
    sql(f"USE {place.name}.default")
    try:
        sql("BEGIN")
        sql("INSERT INTO t VALUES (3)")
        _equal(place.ids("t"), [1, 2])
        sql("COMMIT")
    finally:
        sql("USE spark_catalog.default")
    _equal(place.ids("t"), [1, 2, 3])


def one_point_in_time(place: Place) -> str:
    """Another writer changes two tables while a statement reads them."""
    if RELEASE < (4, 2):
        class_name = "io.deltasql.spark.TransactionalDeltaSqlCatalog"
        place.spark.conf.set("spark.sql.catalog.chosen", class_name)
        _raises("TransactionalCatalogPlugin", lambda: place.spark.sql("SHOW TABLES IN chosen.x"))
        return FROM_4_2
    sql = place.sql
    for table in ("one", "two", "counts"):
        sql(f"CREATE TABLE lake.default.{table} (id BIGINT)")
    load, changed = requests.REQUESTS["table"], []

    def load_then_change(state: requests.State, body: Any) -> Any:
        found = load(state, body)
        if body["name"] in ("one", "two") and not changed:
            changed.append(body["name"])
            place.catalog.sql("INSERT INTO one VALUES (1)")
            place.catalog.sql("INSERT INTO two VALUES (1)")
        return found

    requests.REQUESTS["table"] = load_then_change
    try:
        sql(
            "INSERT INTO lake.default.counts SELECT (SELECT count(*) FROM lake.default.one) + "
            "(SELECT count(*) FROM lake.default.two)"
        )
    finally:
        requests.REQUESTS["table"] = load
    _equal((len(changed), place.ids("counts")), (1, [0]))
    return YES


def change_feed(place: Place) -> str:
    sql = place.sql
    sql("CREATE TABLE lake.default.t AS SELECT 1L AS id")
    sql("INSERT INTO lake.default.t VALUES (2)")
    sql("DELETE FROM lake.default.t WHERE id = 1")
    expected = [(0, "insert", 1), (1, "insert", 2), (2, "delete", 1)]

    def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
        chosen = frame.select("_commit_version", "_change_type", "id")
        return sorted(tuple(row) for row in chosen.collect())

    feed = place.spark.read.format("deltasql").option("readChangeFeed", True)
    _equal(rows(feed.option("startingVersion", 0).load("t")), expected)
    query = f"SELECT * FROM {place.name}.default.t CHANGES FROM VERSION 0"
    if RELEASE < (4, 2):
        _equal(hasattr(place.spark.read, "changes"), False)
        _raises("PARSE_SYNTAX_ERROR", lambda: place.spark.sql(query))
        return FROM_4_2
    _equal(rows(place.spark.sql(query)), expected)
    stream: Any = place.spark.readStream.option("startingVersion", 0)
    place.run(stream.changes(f"{place.name}.default.t"), "copy")
    _equal(rows(place.spark.table(f"{place.name}.default.copy")), expected)
    return YES


# delta-spark


def delta_spark_reads(place: Place) -> str:
    if not _has_delta(place.spark):
        return NO_BUILD
    sql = place.sql
    sql("CREATE TABLE lake.default.t (id BIGINT, day DATE) PARTITIONED BY (day)")
    sql("INSERT INTO lake.default.t VALUES (1, DATE'2024-05-01'), (2, NULL), (3, NULL)")
    sql("DELETE FROM lake.default.t WHERE id = 2")
    found = place.spark.read.format("delta").load(place.catalog.table("t").location)
    _equal(sorted(row["id"] for row in found.collect()), [1, 3])
    return YES


def delta_spark_commits(place: Place) -> str:
    if not _has_delta(place.spark):
        return NO_BUILD
    place.table(4)
    # Delta reads the class from the configuration of the context.
    configuration: Any = place.spark.sparkContext._jsc.sc().conf()
    for key, value in deltasql.spark.log_store_options(place.catalog).items():
        if key.startswith("spark.hadoop."):
            place.spark.conf.set(key.removeprefix("spark.hadoop."), value)
        elif key == "spark.delta.logStore.file.impl":
            configuration.set(key, value)
    rows = place.spark.range(4, 6).selectExpr("id", "0L AS value")
    rows.write.format("delta").mode("append").save(place.catalog.table("t").location)
    _equal(place.ids("t"), [0, 1, 2, 3, 4, 5])
    info = place.catalog.table("t").history(1)[0].info
    _equal("Delta-Lake" in str(info.engine_info), True)
    return YES


def _has_delta(spark: SparkSession) -> bool:
    return "delta-spark" in str(spark.conf.get("spark.jars"))


# Spark Connect


def connect_python(place: Place) -> str:
    if RELEASE < (4, 1):
        _raises("Use PySpark 4.1 or newer with Spark Connect", lambda: place.table(2))
        _equal(place.catalog.tables(), [])
        return FROM_4_1
    change_rows(place)
    with place.catalog.begin() as tx:
        tx.write("one", place.spark.range(2))
        tx.delete("t", "id = 1", engine="spark")
    _equal((place.ids("one"), place.ids("t")), ([0, 1], [2, 3, 4, 5]))
    return YES


CHECKS: dict[str, Callable[[Place], str | None]] = {
    "`deltasql.spark.read` and `write`": read_and_write,
    "`update`, `delete` and `merge`": change_rows,
    "A transaction over two tables, and views of them": several_tables,
    "`deltasql.spark.sql`, with `BEGIN` and `COMMIT`": statements,
    "`optimize`, `restoreToVersion` and `history`": maintain,
    '`format("deltasql")`': data_source,
    "A stream from one table to another": streams,
    "Filters on a DataFrame skip files": skip_files,
    "Spark catalog: `SELECT`, `INSERT`, `CREATE TABLE AS SELECT`, `writeTo`": catalog_tables,
    "Spark catalog: `UPDATE`, `DELETE`, `MERGE INTO`, with change data": catalog_rows,
    "Spark catalog: constraints": catalog_rules,
    "Spark catalog: rules in table definitions, `REPLACE WHERE`": catalog_definitions,
    "Spark catalog: `MERGE` and `INSERT WITH SCHEMA EVOLUTION`": catalog_evolution,
    "Spark catalog: `VERSION AS OF`, `TIMESTAMP AS OF`": catalog_time_travel,
    "Spark catalog: `readStream.table` and `toTable`": catalog_streams,
    "Spark catalog: `CALL lake.system.…`": catalog_procedures,
    "Spark catalog: `begin` and `commit` over two tables": catalog_transaction,
    "Spark catalog: Delta's statements, by the extension": extension,
    "Spark catalog: a statement reads all tables at one point in time": one_point_in_time,
    "Spark catalog: `changes`, the change feed": change_feed,
    "delta-spark reads the published log": delta_spark_reads,
    "delta-spark commits through the LogStore": delta_spark_commits,
}
ON_CONNECT: dict[str, Callable[[Place], str | None]] = {
    "Spark Connect: read, write, `merge`, a transaction": connect_python,
    "Spark Connect: the Spark catalog, tables": catalog_tables,
    "Spark Connect: the Spark catalog, `UPDATE`, `DELETE`, `MERGE INTO`": catalog_rows,
    "Spark Connect: the Spark catalog, `begin` and `commit`": catalog_transaction,
}


def _equal(found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"found {found}, expected {expected}")


def _raises(text: str, call: Callable[[], object]) -> None:
    """Fail unless the call raises an error whose message contains the text."""
    try:
        call()
    except Exception as error:
        if text not in str(error):
            raise
        return
    raise AssertionError(f"expected an error with the text {text!r}")


def main() -> int:
    """Run the checks and print the results; return 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.on_release")
    parser.add_argument("--connect", action="store_true", help="run the checks on Spark Connect")
    parser.add_argument("--jars", default="", help="the jars of delta-spark, separated by commas")
    chosen = parser.parse_args()
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    spark = new_session({}, chosen.jars, connect=chosen.connect)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, check in (ON_CONNECT if chosen.connect else CHECKS).items():
            own = Path(folder) / check.__name__
            own.mkdir()
            try:
                results[name] = check(Place(spark, own)) or YES
            except Exception as error:
                results[name] = f"{type(error).__name__}: {error}"
            print(f"{name}: {results[name]}", file=sys.stderr)
    spark.stop()
    print(json.dumps(results))
    return 0 if set(results.values()) <= set(RESULTS) else 1


def new_session(
    settings: Mapping[str, str], delta_spark: str = "", *, connect: bool = False
) -> SparkSession:
    """Start a session with the jar of deltasql; with delta-spark, if there are jars of it."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    builder = builder.remote("local[2]") if connect else builder.master("local[2]")
    options = {
        "spark.jars": ",".join(filter(None, (deltasql.spark.jar(), delta_spark))),
        "spark.sql.extensions": ",".join(EXTENSIONS if delta_spark else EXTENSIONS[1:]),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.authenticate.socketTimeout": "300s",  # for a busy machine
        "spark.sql.warehouse.dir": tempfile.mkdtemp(),
        **settings,
    }
    if delta_spark:
        options |= {
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",
        }
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    sys.exit(main())
