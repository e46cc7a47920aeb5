"""Procedures, transactions and the SQL extension of the Spark catalog."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException

import deltasql.spark
from deltasql.serve import requests
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


def test_transaction_is_visible_only_in_its_session_and_can_be_rolled_back(
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
def test_rows_of_a_table_that_changed_after_the_analysis_are_not_read(
    spark: SparkSession, lake: Catalog, sql: Any, name: str
) -> None:
    properties = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    sql(f"CREATE TABLE lake.default.t (a BIGINT, b BIGINT) {properties}")
    sql("INSERT INTO lake.default.t VALUES (1, 2)")
    sql("CALL lake.system.begin()")
    frame = spark.table(f"{name}.default.t")
    assert frame.collect() == [(1, 2)]
    frame = spark.table(f"{name}.default.t")
    sql("INSERT INTO lake.default.t VALUES (3, 4)")
    sql("ALTER TABLE lake.default.t DROP COLUMN a")
    sql("ALTER TABLE lake.default.t ADD COLUMN c BIGINT")
    with pytest.raises(Exception, match="changed after the statement was analysed") as error:
        frame.collect()
    assert "Run the statement again" in str(error.value)
    assert sql("SELECT * FROM lake.default.t ORDER BY b") == [(2, None), (4, None)]
    sql("CALL lake.system.commit()")
    assert lake.sql("SELECT * FROM t ORDER BY b").to_pylist() == [
        {"b": 2, "c": None},
        {"b": 4, "c": None},
    ]


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
def test_transaction_is_committed_once_although_the_response_is_lost(
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


THRIFT_SERVER = """
import os, socket, sys
from pyspark.sql import SparkSession
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
spark = SparkSession.builder.master("local[1]").config(map={
    "spark.jars": sys.argv[1],
    "spark.ui.enabled": "false",
    "spark.sql.catalog.lake": "io.deltasql.spark.DeltaSqlCatalog",
    "spark.sql.catalog.lake.service": sys.argv[2],
    "spark.sql.warehouse.dir": os.getcwd(),
    "spark.hadoop.hive.server2.thrift.port": str(port),
    "spark.hadoop.hive.server2.thrift.bind.host": "127.0.0.1",
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:hive;create=true",
}).enableHiveSupport().getOrCreate()
server = spark._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
server.startWithContext(spark._jsparkSession.sqlContext())

def connect():
    url = f"jdbc:hive2://127.0.0.1:{port}/default"
    return spark._jvm.java.sql.DriverManager.getConnection(url, "user", "")

def run(connection, *statements):
    statement = connection.createStatement()
    for each in statements:
        statement.execute(each)
    statement.close()

first, second = connect(), connect()
for connection in (first, second):
    run(connection, "CALL lake.system.begin()", "INSERT INTO lake.default.orders VALUES ('pen')")
first.close()
print("closed", flush=True)
sys.stdin.readline()
run(second, "CALL lake.system.commit()")
print("committed", flush=True)
sys.stdin.read()
"""


@pytest.mark.everything(BEYOND)
def test_transaction_is_rolled_back_when_a_session_of_the_thrift_server_ends(
    lake: Catalog, service: Service, tmp_path: Path, tables: None
) -> None:
    ended = watch_ends(service)
    arguments = [deltasql.spark.jar(), str(tmp_path / "service.json")]
    with subprocess.Popen(
        [sys.executable, "-c", THRIFT_SERVER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "closed\n"
        assert ended.wait(30)
        # The transaction of the other session is still open.
        process.stdin.write("commit\n")
        process.stdin.flush()
        assert process.stdout.readline() == "committed\n"
        process.stdin.close()
    assert mirrored(lake, "orders") == [{"sku": "pen"}]


@pytest.mark.everything(BEYOND)
def test_conflict_raises_its_error_type_and_ends_the_transaction(
    lake: Catalog, sql: Any, tables: None
) -> None:
    sql("CALL lake.system.begin()")
    sql("INSERT OVERWRITE lake.default.stock VALUES ('pen', 1)")
    with lake.begin() as tx:
        tx.write("stock", pa.table({"sku": ["pen"], "n": [5]}), mode="overwrite")
    with pytest.raises(IllegalArgumentException, match=r"Concurrent.*Error"):
        sql("CALL lake.system.commit()")
    assert sql("SELECT n FROM lake.default.stock") == [(5,)]


@pytest.mark.everything(BEYOND)
def test_error_names_an_unknown_procedure_or_wrong_argument(sql: Any, tables: None) -> None:
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


def test_extension_adds_statements_of_delta(lake: Catalog, sql: Any, tables: None) -> None:
    sql("INSERT INTO lake.default.stock VALUES ('cup', 1)")
    [(_, metrics)] = sql("OPTIMIZE lake.default.stock")
    assert metrics["numFilesRemoved"] == 2
    assert sql("SELECT count(*), '@0' FROM lake.default.stock@0 AS s") == [(1, "@0")]
    sql("-- the first version\nRESTORE TABLE lake.`default`.stock TO VERSION AS OF 0")
    assert sql("DESCRIBE HISTORY lake.default.stock LIMIT 1")[0][4] == "RESTORE"
    assert sql("desc detail lake.default.stock")[0][2] == "stock"
    sql("CREATE TABLE lake.default.copy SHALLOW CLONE lake.default.stock VERSION AS OF 1")
    assert sql("SELECT count(*) FROM lake.default.copy") == [(2,)]


@pytest.mark.everything(BEYOND)
def test_extension_adds_alter_and_reorg_statements_of_delta(lake: Catalog, sql: Any) -> None:
    sql("CREATE TABLE lake.default.t (id BIGINT GENERATED BY DEFAULT AS IDENTITY, v STRING) "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")  # fmt: skip
    sql("INSERT INTO lake.default.t VALUES (70, 'a'), (71, 'b')")
    sql("ALTER TABLE lake.default.t ALTER COLUMN id SYNC IDENTITY")
    sql("INSERT INTO lake.default.t (v) VALUES ('c')")
    assert sql("SELECT max(id) FROM lake.default.t") == [(72,)]
    sql("alter table lake.default.t alter column v set not null")
    assert not lake.table("t").snapshot().schema.fields[1].nullable
    sql("OPTIMIZE lake.default.t")
    sql("DELETE FROM lake.default.t WHERE id = 70")
    sql("REORG TABLE lake.default.t APPLY(PURGE)")
    assert lake.table("t").history(1)[0].info.operation == "REORG"
    sql("ALTER TABLE lake.default.t SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")
    sql("ALTER TABLE lake.default.t DROP FEATURE deletionVectors")
    assert "deletionVectors" not in (lake.table("t").snapshot().protocol.reader_features or ())


@pytest.mark.everything(BEYOND)
def test_extension_runs_transactions_in_the_current_catalog(
    spark: SparkSession, lake: Catalog, name: str, sql: Any, tables: None
) -> None:
    sql(f"USE {name}.default")
    try:
        sql("BEGIN")
        sql("INSERT INTO orders VALUES ('pen')")
        sql("UPDATE stock SET n = 1")
        assert sql("SELECT count(*) FROM orders") == [(1,)]
        sql("COMMIT")
        sql("START TRANSACTION")
        sql("DELETE FROM orders")
        sql("ROLLBACK;")
        assert sql("SELECT count(*) FROM orders@1") == [(1,)]
        assert sql("VACUUM orders DRY RUN") == []
        sql("DROP TABLE orders")
        sql("UNDROP TABLE orders")
    finally:
        sql("USE spark_catalog.default")
    assert mirrored(lake, "orders") == [{"sku": "pen"}]


@pytest.mark.everything(BEYOND)
def test_extension_leaves_other_statements_to_spark_and_delta(
    spark: SparkSession, tmp_path: Path, sql: Any, tables: None
) -> None:
    assert sql("BEGIN SELECT 7; END") == [(7,)]
    with pytest.raises(ParseException):
        sql("SELECT 1 FROM other@3")
    with pytest.raises(AnalysisException):
        sql("DESCRIBE HISTORY nosuch")
    path = str(tmp_path / "delta")
    spark.range(3).write.format("delta").save(path)
    spark.range(3).write.format("delta").mode("append").save(path)
    assert len(sql(f"OPTIMIZE delta.`{path}`")) == 1
    assert len(sql(f"DESCRIBE HISTORY delta.`{path}`")) == 3


def test_statement_reads_all_tables_at_one_point_in_time(
    spark: SparkSession,
    lake: Catalog,
    service: Service,
    tmp_path: Path,
    tables: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another writer changes both tables after the statement has read the first one."""
    name = add_catalog(
        spark, kind="TransactionalDeltaSqlCatalog", service=str(tmp_path / "service.json")
    )
    spark.sql(f"CREATE TABLE {name}.default.counts (a BIGINT, b BIGINT)")
    load, changed = requests.REQUESTS["table"], []

    def load_then_change(state: requests.State, body: Any) -> Any:
        found = load(state, body)
        if body["name"] in ("orders", "stock") and not changed:
            changed.append(body["name"])
            with lake.begin() as tx:
                tx.write("orders", pa.table({"sku": ["pen"]}))
                tx.write("stock", pa.table({"sku": ["cup"], "n": [1]}))
        return found

    monkeypatch.setitem(requests.REQUESTS, "table", load_then_change)
    spark.sql(
        f"INSERT INTO {name}.default.counts SELECT (SELECT count(*) FROM {name}.default.orders), "
        f"(SELECT count(*) FROM {name}.default.stock)"
    )
    assert changed
    assert mirrored(lake, "counts") == [{"a": 0, "b": 1}]


@pytest.mark.everything(BEYOND)
def test_every_statement_ends_its_own_transaction(
    spark: SparkSession, lake: Catalog, service: Service, tmp_path: Path, tables: None
) -> None:
    name = add_catalog(
        spark, kind="TransactionalDeltaSqlCatalog", service=str(tmp_path / "service.json")
    )
    for statement in (
        f"CREATE TABLE {name}.default.c AS SELECT * FROM {name}.default.stock",
        f"INSERT INTO {name}.default.c SELECT sku, n + 1 FROM {name}.default.c",
        f"UPDATE {name}.default.c SET n = n + 1 WHERE n > 9",
        f"MERGE INTO {name}.default.c USING {name}.default.stock s ON c.n = s.n "
        "WHEN MATCHED THEN DELETE",
        f"INSERT OVERWRITE {name}.default.c SELECT sku, n FROM {name}.default.c",
        f"CREATE OR REPLACE TABLE {name}.default.c AS SELECT n FROM {name}.default.c",
    ):
        spark.sql(statement)
    assert mirrored(lake, "c") == [{"n": 11}]
    assert lake.table("c").version() == 5
    for statement, message in (
        (f"CREATE TABLE {name}.default.d AS SELECT 1 / (id - 1) AS x FROM range(3)", "DIVIDE"),
        # Spark reports every arithmetic error in the values of an INSERT as an overflow.
        (f"INSERT INTO {name}.default.c SELECT 1 / (id - 1) FROM range(3)", "OVERFLOW"),
        (f"INSERT INTO {name}.default.c SELECT nosuch", "nosuch"),
    ):
        with pytest.raises(Exception, match=message):
            spark.sql(statement)
    assert not service._state.transactions._open
    assert not lake.exists("d")


@pytest.mark.everything(BEYOND)
def test_begin_is_rejected_if_it_could_mean_several_catalogs(
    spark: SparkSession, service: Service, tmp_path: Path, name: str
) -> None:
    """Other tests have added catalogs to the session, and this one at least two."""
    add_catalog(spark, service=str(tmp_path / "service.json"))
    with pytest.raises(IllegalArgumentException, match=r"there are several: .*Choose one with USE"):
        spark.sql("BEGIN")
