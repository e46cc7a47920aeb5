"""A killed service or driver leaves a statement of the Spark catalog without an effect."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException

import deltasql.spark
from tests.serve.client import watch_ends
from tests.spark.support import add_catalog, mirrored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.serve import Service

pytestmark = pytest.mark.everything("processes that are killed while Spark writes")


def test_statement_fails_if_its_service_is_killed_before_the_commit(
    spark: SparkSession, lake: Catalog
) -> None:
    with lake.begin() as tx:
        tx.write("t", pa.table({"id": [1]}))
    name = add_catalog(spark, uri=lake.uri.to_string())  # the jar starts a service
    assert spark.table(f"{name}.default.t").count() == 1
    jvm = psutil.Process(spark.sparkContext._jvm.ProcessHandle.current().pid())
    services = [each.pid for each in jvm.children() if is_service(each)]
    assert services

    def kill(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for pid in services:
            os.kill(pid, signal.SIGKILL)
        yield from batches

    rows = spark.range(2, 3, 1, 1).mapInArrow(kill, "id long")
    with pytest.raises(IllegalArgumentException, match="was not committed"):
        rows.writeTo(f"{name}.default.t").append()
    assert mirrored(lake, "t") == [{"id": 1}]
    # The jar has started another service.
    spark.sql(f"INSERT INTO {name}.default.t VALUES (3)")
    assert mirrored(lake, "t") == [{"id": 1}, {"id": 3}]


def is_service(process: psutil.Process) -> bool:
    is_running = process.status() != psutil.STATUS_ZOMBIE
    return is_running and "deltasql.serve" in process.cmdline()


DRIVER = """
import os, signal, sys
from pyspark.sql import SparkSession
jar, service, *statements = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config(map={
    "spark.jars": jar,
    "spark.ui.enabled": "false",
    "spark.sql.catalog.lake": "io.deltasql.spark.DeltaSqlCatalog",
    "spark.sql.catalog.lake.service": service,
}).getOrCreate()
for statement in statements:
    spark.sql(statement)
jvm = spark._jvm.ProcessHandle.current().pid()

def kill(batches):
    os.kill(jvm, signal.SIGKILL)
    yield from batches

print("writing", flush=True)
spark.range(5, 6, 1, 1).mapInArrow(kill, "id long").writeTo("lake.default.t").append()
print("written", flush=True)
"""
TRANSACTION = ["CALL lake.system.begin()", "INSERT INTO lake.default.t VALUES (4)"]


@pytest.mark.parametrize("statements", [[], TRANSACTION], ids=["statement", "transaction"])
def test_killed_driver_commits_nothing(
    lake: Catalog, service: Service, sql: Any, tmp_path: Path, statements: list[str]
) -> None:
    ended = watch_ends(service)
    sql("CREATE TABLE lake.default.t (id BIGINT)")
    arguments = [deltasql.spark.jar(), str(tmp_path / "service.json"), *statements]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert done.stdout == "writing\n"
    if statements:
        assert ended.wait(30)
    sql("INSERT INTO lake.default.t VALUES (6)")
    assert mirrored(lake, "t") == [{"id": 6}]
    assert lake.table("t").version() == 1
