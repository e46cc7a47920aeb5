"""The same job as `pipeline`, in SQL: every statement is a part of one transaction."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from data import CUSTOMER_COLUMNS, ORDER_COLUMNS
from pipeline import TABLES, Load, as_batch, cached, check_complete, days_of, is_loaded, raw_rows

import deltasql
import deltasql.spark

if TYPE_CHECKING:
    from data import Batch
    from pyspark.sql import SparkSession

    from deltasql import Catalog

NEW_CUSTOMERS = """
    SELECT *, CASE
        WHEN customer_id IS NULL THEN 'no customer id'
        WHEN updated_at IS NULL THEN 'no time of change'
      END AS problem
    FROM (
      SELECT customer_id, trim(name) AS name, lower(trim(email)) AS email, city,
        try_cast(updated_at AS TIMESTAMP) AS updated_at, raw
      FROM raw_customers
    )
"""
NEW_ORDERS = """
    SELECT o.*, CAST(quantity * unit_price AS DECIMAL(12, 2)) AS amount,
      to_date(ordered_at) AS order_day,
      CASE
        WHEN order_id IS NULL THEN 'no order id'
        WHEN o.customer_id IS NULL THEN 'no customer id'
        WHEN ordered_at IS NULL OR o.updated_at IS NULL THEN 'unreadable time'
        WHEN quantity IS NULL OR quantity <= 0 THEN 'unreadable quantity'
        WHEN unit_price IS NULL OR unit_price < 0 THEN 'impossible price'
        WHEN c.customer_id IS NULL THEN 'unknown customer'
      END AS problem
    FROM (
      SELECT order_id, customer_id, status, sku, raw,
        try_cast(ordered_at AS TIMESTAMP) AS ordered_at,
        try_cast(updated_at AS TIMESTAMP) AS updated_at,
        try_cast(quantity AS INT) AS quantity,
        try_cast(unit_price AS DECIMAL(10, 2)) AS unit_price
      FROM raw_orders
    ) AS o
    LEFT JOIN dim_customers AS c ON o.customer_id = c.customer_id
"""
MERGE = """
    MERGE INTO {table} AS t
    USING (
      SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY updated_at DESC, raw) AS place
        FROM {source} WHERE problem IS NULL
      ) WHERE place = 1
    ) AS s
    ON t.{key} = s.{key}
    WHEN MATCHED AND s.updated_at > t.updated_at THEN UPDATE SET *
    WHEN NOT MATCHED THEN INSERT *
"""
QUARANTINE = """
    INSERT INTO quarantine
    SELECT :batch, 'customers', problem, raw FROM new_customers WHERE problem IS NOT NULL
    UNION ALL
    SELECT :batch, 'orders', problem, raw FROM new_orders WHERE problem IS NOT NULL
"""
SALES = """
    INSERT INTO daily_sales REPLACE WHERE order_day IN ({days})
    SELECT order_day, count(*), count_if(status = 'returned'),
      sum(if(status IN ('placed', 'shipped'), amount, 0))
    FROM fact_orders WHERE order_day IN ({days}) GROUP BY order_day
"""
COUNTS = """
    SELECT count(*) AS received, count_if(problem IS NULL) AS usable,
      count(DISTINCT order_id) FILTER (WHERE problem IS NULL) AS different
    FROM new_orders
"""


def load_batch(spark: SparkSession, catalog: Catalog, batch: Batch) -> Load | None:
    """Load a batch into all tables in one transaction; return None if it was loaded before."""
    load = Load(batch.number)
    with deltasql.begin(catalog) as tx:
        if is_loaded(tx, batch):
            return None
        sql = partial(deltasql.spark.sql, spark, transaction=tx)
        for name, columns in (("customers", CUSTOMER_COLUMNS), ("orders", ORDER_COLUMNS)):
            raw_rows(spark, batch, name, columns).createOrReplaceTempView(f"raw_{name}")
        sql(NEW_CUSTOMERS).createOrReplaceTempView("new_customers")
        merge = MERGE.format(table="dim_customers", source="new_customers", key="customer_id")
        load.customers = sql(merge).first().asDict()

        with cached(sql(NEW_ORDERS)) as orders:
            orders.createOrReplaceTempView("new_orders")
            merge = MERGE.format(table="fact_orders", source="new_orders", key="order_id")
            load.orders = sql(merge).first().asDict()
            load.quarantined = sql(QUARANTINE, {"batch": batch.number}).first().num_affected_rows
            days = ", ".join(f"DATE '{day}'" for day in days_of(orders))
            if days:
                sql(SALES.format(days=days))
            counts = sql(COUNTS).first()
            load.repeated = counts.usable - counts.different
            check_complete(batch, counts.received)
        for table in TABLES:
            tx.set_commit_properties(table, as_batch(batch))
    load.versions = tx.versions
    return load
