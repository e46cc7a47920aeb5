"""A streaming sink that writes each micro-batch to two tables in one commit, exactly once.

The driver "crashes" after the commit of a batch, before Spark records it in its checkpoint. After
the restart Spark sends the batch again, and the sink skips it.
"""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import deltasql
import deltasql.spark

URI = "deltasql://sqlite/lake/meta.db"
EVENTS = (
    [{"id": 1, "amount": 5}, {"id": 2, "amount": -1}],
    [{"id": 3, "amount": 7}, {"id": 4, "amount": 0}],
)


def main(spark: SparkSession) -> None:
    catalog = f"deltasql://sqlite/{Path('lake/meta.db').absolute()}"
    into_tables = deltasql.spark.stream_writer(
        {
            "orders": lambda df: df.where("amount > 0"),
            "quarantine": lambda df: df.where("amount <= 0"),
        },
        app_id="orders",
        catalog=catalog,
    )

    def into_tables_and_die(batch: DataFrame, number: int) -> None:
        into_tables(batch, number)
        raise RuntimeError("the driver died after the commit")

    arrive(0)
    run(spark, into_tables)
    show("first batch", catalog)
    arrive(1)
    try:
        run(spark, into_tables_and_die)
    except Exception:
        show("the driver died after the commit", catalog)
    run(spark, into_tables)
    show("restarted, the repeated batch was skipped", catalog)


def arrive(number: int) -> None:
    Path("in").mkdir(exist_ok=True)
    text = "\n".join(json.dumps(event) for event in EVENTS[number])
    Path(f"in/{number}.json").write_text(text)


def run(spark: SparkSession, write: object) -> None:
    events = spark.readStream.schema("id BIGINT, amount BIGINT").json(str(Path("in").absolute()))
    query = (
        events.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(Path("checkpoint").absolute()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def show(what: str, uri: str) -> None:
    with deltasql.connect(uri) as catalog:
        tables = {each.name: each for each in catalog.tables()}
        rows = {name: table.snapshot().totals().num_records for name, table in tables.items()}
        version = tables["orders"].version()
    print(f"{what}: {rows}, orders@{version}")


if __name__ == "__main__":
    session = SparkSession.builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # hide the stack trace of the deliberate crash
    main(session)
