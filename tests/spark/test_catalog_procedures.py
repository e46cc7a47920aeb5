"""CALL in the Spark catalog: procedures, and transactions over several statements."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException

import deltasql.spark
from deltasql.serve.service_file import write_service_file
from tests.serve.client import losing_responses, watch_ends
from tests.spark.support import add_catalog, mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.serve import Service

BEYOND = "the Spark catalog with more procedures and transactions"


def new_session(spark: SparkSession, name: str) -> SparkSession:
    """Return another session that has the catalog."""
    found = spark.newSession()
    for key in (f"spark.sql.catalog.{name}", f"spark.sql.catalog.{name}.service"):
        found.conf.set(key, spark.conf.get(key))
    return found


@pytest.fixture
def tables(lake: Catalog, sql: Any) -> Iterator[None]:
    """The tables `stock` and `orders`; an open transaction is rolled back at the end."""
    with lake.begin() as tx:
        tx.write("stock", pa.table({"sku": ["pen"], "n": [9]}))
        tx.write("orders", pa.table({"sku": pa.array([], pa.string())}))
    yield
    with suppress(IllegalArgumentException):  # there is none
        sql("CALL lake.system.rollback()")


def test_procedures_take_named_and_positional_arguments(
    lake: Catalog, sql: Any, tables: None
) -> None:
    sql("INSERT INTO lake.default.stock VALUES ('cup', 1)")
    [(_, metrics)] = sql("CALL lake.system.optimize('default.stock')")
    assert metrics["numFilesRemoved"] == 2
    sql("CALL lake.system.set_properties('stock', map('owner.team', 'x'))")
    sql("CALL lake.system.restore(table => 'stock', version => 0)")
    history = sql("CALL lake.system.history('stock', 3)")
    assert [row[4] for row in history] == ["RESTORE", "SET TBLPROPERTIES", "OPTIMIZE"]
    assert history[1][5] == {"properties": '{"owner.team":"x"}'}
    assert sql("CALL lake.system.vacuum('stock', dry_run => true)") == []
    sql("DROP TABLE lake.default.orders")
    sql("CALL lake.system.undrop(table => 'default.orders')")
    assert lake.exists("orders")


def test_transaction_over_statements_is_one_commit(lake: Catalog, sql: Any, tables: None) -> None:
    sql("CALL lake.system.begin()")
    sql("INSERT INTO lake.default.orders VALUES ('pen')")
    for _ in range(2):  # the second one changes a row that is staged
        sql("UPDATE lake.default.stock SET n = n - 1 WHERE sku = 'pen'")
    sql("CREATE TABLE lake.default.audit AS SELECT sku, n FROM lake.default.stock")
    assert sql("SELECT n FROM lake.default.audit") == [(7,)]
    assert mirrored(lake, "stock") == [{"sku": "pen", "n": 9}]
    assert sql("SELECT n FROM lake.default.stock VERSION AS OF 0") == [(9,)]
    with pytest.raises(IllegalArgumentException, match="DROP TABLE cannot be part of a transac"):
        sql("DROP TABLE lake.default.orders")
    versions = dict(sql("CALL lake.system.commit()"))
    assert versions == {"orders": 1, "stock": 1, "audit": 0}
    assert mirrored(lake, "stock") == [{"sku": "pen", "n": 7}]
    ids = {lake.table(name).history()[0].txn_id for name in versions}
    assert len(ids) == 1


def test_transaction_is_rolled_back_and_belongs_to_its_session(
    spark: SparkSession, lake: Catalog, name: str, sql: Any, tables: None
) -> None:
    sql("CALL lake.system.begin()")
    sql("INSERT INTO lake.default.orders VALUES ('pen')")
    other = new_session(spark, name)
    assert other.sql(f"SELECT count(*) FROM {name}.default.orders").first()[0] == 0
    assert sql("SELECT count(*) FROM lake.default.orders") == [(1,)]
    sql("CALL lake.system.rollback()")
    assert sql("SELECT count(*) FROM lake.default.orders") == [(0,)]
    with pytest.raises(IllegalArgumentException, match="commit without a transaction"):
        sql("CALL lake.system.commit()")
    assert lake.table("orders").version() == 0


@pytest.mark.everything(BEYOND)
def test_failed_write_blocks_the_transaction(lake: Catalog, sql: Any, tables: None) -> None:
    sql("CALL lake.system.begin()")
    sql("INSERT INTO lake.default.orders VALUES ('pen')")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        sql("INSERT INTO lake.default.stock SELECT 'x', CAST(1 / (id - 1) AS INT) FROM range(3)")
    with pytest.raises(IllegalArgumentException, match="a statement of the transaction failed"):
        sql("INSERT INTO lake.default.orders VALUES ('cup')")
    with pytest.raises(IllegalArgumentException, match="was rolled back, because one of its"):
        sql("CALL lake.system.commit()")
    assert lake.table("orders").version() == 0
    sql("INSERT INTO lake.default.orders VALUES ('cup')")
    assert mirrored(lake, "orders") == [{"sku": "cup"}]


@pytest.mark.everything(BEYOND)
def test_commit_whose_response_is_lost_happens_once(
    spark: SparkSession, lake: Catalog, service: Service, tmp_path: Path, tables: None
) -> None:
    with losing_responses(service, "call", times=2, containing=b'"commit"') as (address, lost):
        write_service_file(tmp_path / "proxy.json", {**service.access, "address": address})
        name = add_catalog(spark, service=str(tmp_path / "proxy.json"))
        spark.sql(f"CALL {name}.system.begin()")
        spark.sql(f"INSERT INTO {name}.default.orders VALUES ('pen')")
        assert spark.sql(f"CALL {name}.system.commit()").collect()[0]["version"] == 1
    assert lost == ["call", "call"]
    assert mirrored(lake, "orders") == [{"sku": "pen"}]


STOPPED_INSIDE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config(map={
    "spark.jars": sys.argv[1],
    "spark.ui.enabled": "false",
    "spark.sql.catalog.lake": "io.deltasql.spark.DeltaSqlCatalog",
    "spark.sql.catalog.lake.service": sys.argv[2],
}).getOrCreate()
spark.sql("CALL lake.system.begin()")
spark.sql("INSERT INTO lake.default.orders VALUES ('pen')")
spark.stop()
print("stopped", flush=True)
sys.stdin.read()
"""


@pytest.mark.everything(BEYOND)
def test_transaction_is_rolled_back_when_the_spark_context_stops(
    lake: Catalog, service: Service, tmp_path: Path, tables: None
) -> None:
    ended = watch_ends(service)
    arguments = [deltasql.spark.jar(), str(tmp_path / "service.json")]
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED_INSIDE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "stopped\n"
        assert ended.wait(30)
        process.stdin.close()
    assert lake.table("orders").version() == 0


@pytest.mark.everything(BEYOND)
def test_conflict_is_named_and_ends_the_transaction(lake: Catalog, sql: Any, tables: None) -> None:
    sql("CALL lake.system.begin()")
    sql("INSERT OVERWRITE lake.default.stock VALUES ('pen', 1)")
    with lake.begin() as tx:
        tx.write("stock", pa.table({"sku": ["pen"], "n": [5]}), mode="overwrite")
    with pytest.raises(IllegalArgumentException, match=r"Concurrent.*Error"):
        sql("CALL lake.system.commit()")
    assert sql("SELECT n FROM lake.default.stock") == [(5,)]


@pytest.mark.everything(BEYOND)
def test_wrong_procedures_and_arguments_are_named(sql: Any, tables: None) -> None:
    for statement, message in (
        ("CALL lake.system.fly()", "fly"),
        ("CALL lake.other.optimize('stock')", "optimize"),
        ("CALL lake.system.optimize()", "table"),
        ("CALL lake.system.optimize('nosuch')", "nosuch"),
        ("CALL lake.system.restore('stock')", "needs a version or a timestamp"),
    ):
        with pytest.raises(Exception, match=message):
            sql(statement)
    listed = [row[-1] for row in sql("SHOW PROCEDURES IN lake.system")]
    assert {"optimize", "begin"} <= set(listed)
