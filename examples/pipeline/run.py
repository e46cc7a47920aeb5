"""Run the pipeline from raw files to a plot: `make demo`, or this script with options.

python examples/pipeline/run.py                                  SQLite, in build/demo
python examples/pipeline/run.py --uri deltasql://postgres/…      your own database
spark-submit --master … examples/pipeline/run.py --uri … --root s3://bucket/lake
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from data import Batch, make_batches

import deltasql
import report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from deltasql import Catalog


def main(arguments: list[str] | None = None, spark: SparkSession | None = None) -> int:
    """Run all steps; the exit code is 1 if the readers disagree."""
    options = parsed(arguments)
    if spark is None and not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        print(
            "Java 17 is needed for Spark: install a JDK and put java on PATH, or set JAVA_HOME "
            "(docs/troubleshooting.md#spark).",
            file=sys.stderr,
        )
        return 2
    started = time.monotonic()
    out = options.out.absolute()
    uri = options.uri or fresh_catalog(out / "shop")
    report.heading(f"Raw data: {options.batches} batches of {options.rows} orders, one cut short")
    batches = make_batches(
        out / "raw", batches=options.batches, rows=options.rows, seed=options.seed
    )
    report.line(str(out / "raw"))
    session = spark or new_session()
    try:
        settings = {"table": {"data_root": options.root}} if options.root else {}
        with deltasql.connect(uri, **settings) as catalog:
            agree = Demo(session, catalog).run(batches, out / "sales.png")
    finally:
        if spark is None:
            session.stop()
    report.heading(f"Done in {time.monotonic() - started:.0f} s.")
    if options.uri is None:
        report.line(f"Look at the tables: .venv/bin/deltasql --uri '{uri}' ui --open")
    return 0 if agree else 1


class Demo:
    """The steps of the demo, in order."""

    def __init__(self, spark: SparkSession, catalog: Catalog) -> None:
        self.spark, self.catalog = spark, catalog

    def run(self, batches: list[Batch], plot: Path) -> bool:
        """Load, optimize, read old versions, compare readers; return whether the readers agree."""
        import pipeline

        pipeline.create_tables(self.catalog)
        versions = self.load(batches)
        self.optimize()
        self.look_back(versions, plot)
        return self.let_others_read()

    def load(self, batches: list[Batch]) -> dict[int, dict[str, int]]:
        """Load the batches; return the table versions that each of them committed.

        Both ways to load a batch do the same, so they take turns.
        """
        import pipeline
        import pipeline_sql

        report.heading("Load: one transaction per batch over four tables, in Python and in SQL")
        versions = {}
        for batch in batches:
            before = self.versions()
            language, way = ("SQL", pipeline_sql) if batch.number % 2 else ("Python", pipeline)
            try:
                done = way.load_batch(self.spark, self.catalog, batch)
            except pipeline.IncompleteBatch as error:
                kept = "nothing changed" if self.versions() == before else "TABLES CHANGED"
                report.line(f"{error}: rolled back in all tables, {kept}")
                continue
            if done is None:
                report.line(f"batch {batch.number} was loaded before")
                continue
            report.loaded(done, language)
            versions[batch.number] = done.versions
        return versions

    def optimize(self) -> None:
        """Compact all tables in one commit."""
        import pipeline

        report.heading("Optimize: all tables in one commit")
        for name, metrics in pipeline.optimize(self.catalog).items():
            removed, added = metrics["numFilesRemoved"], metrics["numFilesAdded"]
            report.line(
                f"{name}: {removed} small files became {added}"
                if removed
                else f"{name}: nothing to do"
            )
        described = [self.catalog.table(name).describe() for name in pipeline.TABLES]
        facts = ("name", "version", "num_records", "num_files")
        report.heading("Tables")
        report.table(
            ("table", "version", "rows", "files"), [[each[f] for f in facts] for each in described]
        )

    def look_back(self, versions: dict[int, dict[str, int]], plot: Path) -> None:
        """Read the tables at the versions of each batch, and plot them."""
        import pipeline

        report.heading("Time travel, in SQL and in Python: revenue as known after each batch")
        known: dict[int, report.Sales] = {}
        for batch, made in versions.items():
            sales = self.read(pipeline.SALES, made[pipeline.SALES]).collect()
            known[batch] = {row["order_day"]: float(row["revenue"]) for row in sales}
            counted = "SELECT count(*) AS n FROM fact_orders VERSION AS OF :version"
            orders = self.sql(counted, version=made[pipeline.ORDERS])[0].n
            total = sum(row["revenue"] for row in sales)
            days = "day" if len(sales) == 1 else "days"
            report.line(f"after batch {batch}: {orders} orders, {total} in {len(sales)} {days}")
        found = self.sql(
            "SELECT problem, count(*) AS count FROM quarantine GROUP BY problem ORDER BY count"
        )
        if known:
            drawn = report.plot(known, {row["problem"]: row["count"] for row in found}, plot)
            report.line(f"plot: {drawn}")

    def let_others_read(self) -> bool:
        """Compare the totals that Spark reads with those of stock Delta readers."""
        import pipeline
        from pyspark.sql import functions as F
        from readers import READERS

        report.heading("Any Delta reader sees the same: fact_orders")
        own = self.read(pipeline.ORDERS).agg(F.count("*"), F.sum("amount")).first()
        assert own is not None
        location = self.catalog.table(pipeline.ORDERS).location
        totals = {"deltasql.spark": (own[0], own[1])}
        totals |= {name: ask(location) for name, ask in READERS.items()}
        report.table(
            ("reader", "orders", "amount"), [(name, *each) for name, each in totals.items()]
        )
        report.line(f"in {location}")
        return len(set(totals.values())) == 1

    def read(self, table: str, version: int | None = None) -> DataFrame:
        """Read a table with Spark."""
        import deltasql.spark

        return deltasql.spark.read(self.spark, self.catalog.table(table).uri, version=version)

    def sql(self, statement: str, **parameters: object) -> list[Row]:
        """Run an SQL statement with Spark."""
        import deltasql.spark

        return deltasql.spark.sql(self.spark, statement, parameters, catalog=self.catalog).collect()

    def versions(self) -> dict[str, int]:
        """Return the latest version of every table."""
        return {table.name: table.version() for table in self.catalog.tables()}


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="A pipeline of a web shop on PySpark.")
    parser.add_argument("--uri", help="the catalog; default: SQLite in the folder of --out")
    parser.add_argument("--root", help="where tables are put; default: beside the catalog's file")
    parser.add_argument("--batches", type=int, default=4, help="days of orders (4)")
    parser.add_argument("--rows", type=int, default=20_000, help="orders of a day (20000)")
    parser.add_argument("--seed", type=int, default=7, help="another seed, another shop (7)")
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="(build/demo)")
    return parser.parse_args(arguments)


def fresh_catalog(folder: Path) -> str:
    """Return the URI of a new SQLite catalog; delete the catalog of an earlier run."""
    if (folder / "catalog.db").exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return f"deltasql://sqlite/{folder}/catalog.db"


def new_session() -> SparkSession:
    """Start Spark; settings of spark-submit, such as the master, are kept."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging = Path(__file__).resolve().with_name("log4j2.properties").as_uri()
    # In a short job, the JVM's optimizing compiler costs more time than it saves.
    fast = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{fast} -Dlog4j2.configurationFile={logging}")
    session = (
        SparkSession.builder.appName("orders-pipeline")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    is_local = str(session.conf.get("spark.master", "")).startswith("local")
    if is_local and session.conf.get("spark.sql.shuffle.partitions") == "200":  # Spark's default
        session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


if __name__ == "__main__":
    sys.exit(main())
