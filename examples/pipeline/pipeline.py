"""The job: load raw orders and customers into four tables, with one transaction per batch.

    customers.csv ─ clean ─ merge ─▶ dim_customers ─┐
    orders.csv ──── clean ─ known customer? ────────┴─ merge ─▶ fact_orders ─▶ daily_sales
                      └─ invalid rows ─▶ quarantine

Spark processes the rows. A batch is committed to all tables or to none.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from data import CUSTOMER_COLUMNS, ORDER_COLUMNS
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import deltasql
import deltasql.spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from data import Batch
    from pyspark.sql import Column, DataFrame, SparkSession

    from deltasql import Catalog, MultiTableTransaction

JOB = "orders-pipeline"
CUSTOMERS, ORDERS, QUARANTINE, SALES = "dim_customers", "fact_orders", "quarantine", "daily_sales"
TABLES = {
    CUSTOMERS: "customer_id STRING NOT NULL, name STRING, email STRING, city STRING, "
    "updated_at TIMESTAMP",
    ORDERS: "order_id STRING NOT NULL, customer_id STRING NOT NULL, ordered_at TIMESTAMP, "
    "updated_at TIMESTAMP, status STRING, sku STRING, quantity INT, amount DECIMAL(12,2), "
    "order_day DATE",
    QUARANTINE: "batch INT, source STRING, problem STRING, raw STRING",
    SALES: "order_day DATE, orders BIGINT, returned BIGINT, revenue DECIMAL(18,2)",
}
CHECKS = {ORDERS: ", CONSTRAINT paid CHECK (amount >= 0)"}
PARTITIONS = {ORDERS: "PARTITIONED BY (order_day)"}
NEWER = "s.updated_at > t.updated_at"


class IncompleteBatch(Exception):
    """A batch does not have the number of rows in its manifest."""


@dataclass(slots=True)
class Load:
    """The result of loading one batch: merge metrics, counts and new versions."""

    batch: int
    customers: dict[str, int] = field(default_factory=dict)
    orders: dict[str, int] = field(default_factory=dict)
    quarantined: int = 0
    repeated: int = 0
    versions: dict[str, int] = field(default_factory=dict)


def create_tables(catalog: Catalog) -> None:
    """Create the missing tables in one commit, with SQL."""
    with deltasql.begin(catalog) as tx:
        for name, columns in TABLES.items():
            checks, partitions = CHECKS.get(name, ""), PARTITIONS.get(name, "")
            tx.sql(f"CREATE TABLE IF NOT EXISTS {name} ({columns}{checks}) {partitions}")


def load_batch(spark: SparkSession, catalog: Catalog, batch: Batch) -> Load | None:
    """Load a batch into all tables in one transaction; return None if it was loaded before."""
    load = Load(batch.number)
    with deltasql.begin(catalog) as tx:
        if is_loaded(tx, batch):
            return None
        customers = cleaned_customers(raw_rows(spark, batch, "customers", CUSTOMER_COLUMNS))
        load.customers = changes(merge_newer(tx, CUSTOMERS, usable(customers, TABLES[CUSTOMERS])))

        orders = cleaned_orders(raw_rows(spark, batch, "orders", ORDER_COLUMNS))
        known = deltasql.spark.read(spark, CUSTOMERS, columns=["customer_id"], transaction=tx)
        with cached(with_known_customers(orders, known)) as orders:
            metrics = merge_newer(tx, ORDERS, usable(orders, TABLES[ORDERS]))
            rejected = quarantined(batch, customers=customers, orders=orders)
            load.quarantined = tx.write(QUARANTINE, rejected)["num_added_rows"]
            replace_sales(spark, tx, days_of(orders))
            usable_rows = orders.where("problem IS NULL").count()
            load.orders, load.repeated = changes(metrics), usable_rows - metrics["num_source_rows"]
            check_complete(batch, orders.count())
        for table in TABLES:
            tx.set_commit_properties(table, as_batch(batch))
    load.versions = tx.versions
    return load


def is_loaded(tx: MultiTableTransaction, batch: Batch) -> bool:
    """Return whether the log has a commit of this batch; a restarted job skips such batches."""
    last = tx.snapshot(ORDERS).transaction_version(JOB)
    return last is not None and last >= batch.number


def as_batch(batch: Batch) -> deltasql.CommitProperties:
    """Return commit properties with the batch number, which `is_loaded` looks up."""
    return deltasql.CommitProperties(
        custom_metadata={"batch": str(batch.number)},
        app_transactions=[deltasql.Transaction(JOB, batch.number)],
    )


@contextmanager
def cached(rows: DataFrame) -> Iterator[DataFrame]:
    """Cache rows while the block runs, because several steps read them."""
    kept = rows.cache()
    try:
        yield kept
    finally:
        kept.unpersist()


def raw_rows(spark: SparkSession, batch: Batch, name: str, columns: tuple[str, ...]) -> DataFrame:
    """Read a file with every column as a string; the column `raw` has the whole row as JSON."""
    schema = ", ".join(f"{column} STRING" for column in columns)
    frame = spark.read.csv((batch.folder / f"{name}.csv").as_uri(), schema, header=True)
    return frame.withColumn("raw", F.to_json(F.struct(*columns)))


def cleaned_customers(raw: DataFrame) -> DataFrame:
    """Convert the columns to their types; `problem` names the first problem of a row."""
    return raw.select(
        "customer_id",
        F.trim("name").alias("name"),
        F.lower(F.trim("email")).alias("email"),
        "city",
        F.expr("try_cast(updated_at AS TIMESTAMP)").alias("updated_at"),
        "raw",
    ).withColumn(
        "problem",
        first_problem(
            {
                "no customer id": F.col("customer_id").isNull(),
                "no time of change": F.col("updated_at").isNull(),
            }
        ),
    )


def cleaned_orders(raw: DataFrame) -> DataFrame:
    """Convert the columns of orders; `problem` names the first problem of a row."""
    return (
        raw.withColumns(
            {
                "ordered_at": F.expr("try_cast(ordered_at AS TIMESTAMP)"),
                "updated_at": F.expr("try_cast(updated_at AS TIMESTAMP)"),
                "quantity": F.expr("try_cast(quantity AS INT)"),
                "unit_price": F.expr("try_cast(unit_price AS DECIMAL(10,2))"),
            }
        )
        .withColumn("amount", F.expr("CAST(quantity * unit_price AS DECIMAL(12,2))"))
        .withColumn("order_day", F.to_date("ordered_at"))
        .withColumn(
            "problem",
            first_problem(
                {
                    "no order id": F.col("order_id").isNull(),
                    "no customer id": F.col("customer_id").isNull(),
                    "unreadable time": F.expr("ordered_at IS NULL OR updated_at IS NULL"),
                    "unreadable quantity": F.expr("quantity IS NULL OR quantity <= 0"),
                    "impossible price": F.expr("unit_price IS NULL OR unit_price < 0"),
                }
            ),
        )
    )


def first_problem(problems: dict[str, Column]) -> Column:
    """Return a column with the name of the first condition that is true, or null."""
    named = [F.when(condition, F.lit(name)) for name, condition in problems.items()]
    return F.coalesce(*named)


def with_known_customers(orders: DataFrame, known: DataFrame) -> DataFrame:
    """Set `problem` for orders whose customer does not exist."""
    found = orders.join(known.withColumn("is_known", F.lit(True)), "customer_id", "left")
    unknown = F.when(F.col("is_known").isNull(), F.lit("unknown customer"))
    return found.withColumn("problem", F.coalesce("problem", unknown)).drop("is_known")


def usable(rows: DataFrame, columns: str) -> DataFrame:
    """Return the rows without a problem, and only the latest row of each key."""
    names = StructType.fromDDL(columns).names
    newest = Window.partitionBy(names[0]).orderBy(F.desc("updated_at"), "raw")
    numbered = rows.where("problem IS NULL").withColumn("place", F.row_number().over(newest))
    return numbered.where("place = 1").select(*names)


def merge_newer(tx: MultiTableTransaction, table: str, rows: DataFrame) -> dict[str, int]:
    """Insert rows with new keys; update existing rows if the source row is newer."""
    key = StructType.fromDDL(TABLES[table]).names[0]
    return (
        tx.merge(table, rows, f"t.{key} = s.{key}", source_alias="s", target_alias="t")
        .when_matched_update_all(NEWER)
        .when_not_matched_insert_all()
        .execute()
    )


def changes(metrics: dict[str, int]) -> dict[str, int]:
    """Return the metrics of a merge under the names that MERGE has in SQL."""
    return {
        f"num_{kind}_rows": metrics[f"num_target_rows_{kind}"] for kind in ("inserted", "updated")
    }


def quarantined(batch: Batch, **sources: DataFrame) -> DataFrame:
    """Return the rows with a problem, in their raw form."""
    parts = [
        rows.where("problem IS NOT NULL").select(
            F.lit(batch.number).alias("batch"), F.lit(source).alias("source"), "problem", "raw"
        )
        for source, rows in sources.items()
    ]
    return reduce(lambda one, other: one.unionByName(other), parts)


def days_of(orders: DataFrame) -> list[str]:
    """Return the days of the valid orders."""
    days = orders.where("problem IS NULL").select("order_day").distinct().collect()
    return sorted(str(day["order_day"]) for day in days)


def replace_sales(spark: SparkSession, tx: MultiTableTransaction, days: list[str]) -> None:
    """Recompute the sales of some days from the orders, including those of this transaction."""
    if not days:
        return
    listed = ", ".join(f"DATE '{day}'" for day in days)
    touched = f"order_day IN ({listed})"
    orders = deltasql.spark.read(spark, ORDERS, predicate=touched, transaction=tx)
    counts = F.expr("status IN ('placed', 'shipped')")
    sales = orders.groupBy("order_day").agg(
        F.count("*").alias("orders"),
        F.count_if(F.col("status") == "returned").alias("returned"),
        F.sum(F.when(counts, F.col("amount")).otherwise(0)).cast("DECIMAL(18,2)").alias("revenue"),
    )
    tx.write(SALES, sales, mode="overwrite", predicate=touched)


def check_complete(batch: Batch, received: int) -> None:
    """Raise if orders are missing; the exception rolls the transaction back."""
    promised = batch.manifest["orders"]
    if received != promised:
        raise IncompleteBatch(f"batch {batch.number}: {received} of {promised} orders arrived")


def optimize(catalog: Catalog) -> dict[str, dict[str, Any]]:
    """Compact the small files of all tables in one commit."""
    with deltasql.begin(catalog) as tx:
        return {name: tx.optimize(name, engine="spark") for name in TABLES}
