"""The Spark catalog in `spark-sql`, on S3, and with a service that the jar starts itself."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

import deltasql
import deltasql.spark
from deltasql.engine.spark.s3 import bucket_options
from deltasql.serve import Service
from deltasql.spark.catalog import CATALOG_CLASS
from tests.conftest import JARS
from tests.mirror.support import open_mirrored
from tests.spark.support import add_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

BEYOND = "the Spark catalog in more places"


@contextmanager
def served(lake: Catalog, file: Path) -> Iterator[str]:
    """Run the service of a catalog, and yield its service file."""
    service = Service(lake).start(file)
    try:
        yield str(file)
    finally:
        service.stop()


@pytest.fixture
def bucket(
    spark: SparkSession, sqlite_uri: DeltaSqlUri, s3_location: str, s3_options: dict[str, str]
) -> Iterator[Catalog]:
    """A catalog whose tables are in S3; the session has the credentials of the bucket."""
    with open_mirrored(sqlite_uri, s3_location, storage={"options": s3_options}) as lake:
        options = bucket_options(spark, s3_location, lake.config.storage)
        for name, value in options.items():
            spark.conf.set(name, value)
        yield lake
        for name in options:
            spark.conf.unset(name)


@pytest.mark.everything(BEYOND)
def test_tables_in_s3_are_created_changed_and_read(
    spark: SparkSession, bucket: Catalog, s3_options: dict[str, str], tmp_path: Path
) -> None:
    with served(bucket, tmp_path / "service.json") as file:
        name = add_catalog(spark, service=file)
        table = f"{name}.crm.t"
        spark.sql(f"CREATE TABLE {table} (id BIGINT, p STRING) PARTITIONED BY (p)")
        spark.sql(f"INSERT INTO {table} VALUES (1, 'a b'), (2, 'a/b=%41'), (3, NULL)")
        spark.sql(f"INSERT OVERWRITE {table} PARTITION (p = 'a b') VALUES (10)")
        spark.sql(f"CREATE TABLE {name}.crm.copy AS SELECT * FROM {table} WHERE id > 2")
        found = spark.sql(f"SELECT id, p FROM {table} ORDER BY id").collect()
        assert [tuple(row) for row in found] == [(2, "a/b=%41"), (3, None), (10, "a b")]
        assert spark.sql(f"SELECT sum(id) FROM {table} VERSION AS OF 1").first()[0] == 6
    for short, ids in (("t", [2, 3, 10]), ("copy", [3, 10])):
        location = bucket.table(f"crm.{short}").location
        assert location.startswith("s3://")
        stock = deltalake.DeltaTable(location, storage_options=s3_options)
        assert sorted(stock.to_pyarrow_table()["id"].to_pylist()) == ids


def spark_sql(*statements: str, **options: str) -> subprocess.CompletedProcess[str]:
    """Run statements in Spark's SQL shell, in which `lake` is a catalog with these options."""
    from pyspark.find_spark_home import _find_spark_home

    home: str = _find_spark_home()  # type: ignore[no-untyped-call]
    settings = {
        "spark.jars": deltasql.spark.jar(),
        "spark.ui.enabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.catalog.lake": CATALOG_CLASS,
        **{f"spark.sql.catalog.lake.{name}": value for name, value in options.items()},
    }
    conf = [part for each in settings.items() for part in ("--conf", "=".join(each))]
    return subprocess.run(
        [f"{home}/bin/spark-sql", "--master", "local[1]", *conf, "-e", "; ".join(statements)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.everything(BEYOND)
@pytest.mark.timeout(400)
def test_sql_shell_uses_a_service_that_the_jar_starts(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with deltasql.connect(sqlite_uri, table={"data_root": str(tmp_path / "lake")}) as catalog:
        with catalog.begin() as tx:
            tx.write("t", pa.table({"id": [1, 2]}))
        done = spark_sql(
            "USE lake",
            "INSERT INTO t VALUES (3)",
            "CREATE TABLE crm.sums AS SELECT sum(id) AS total FROM default.t",
            "SHOW TABLES IN crm",
            "SELECT total FROM crm.sums",
            uri=sqlite_uri.to_string(),
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.split()[-1] == "6"
        assert catalog.sql("SELECT total FROM crm.sums").to_pylist() == [{"total": 6}]


@pytest.mark.everything(BEYOND)
@pytest.mark.timeout(400)
def test_sql_shell_uses_deltasql_serve_and_names_wrong_options(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with (
        open_mirrored(sqlite_uri, tmp_path / "lake") as lake,
        served(lake, tmp_path / "service.json") as file,
    ):
        lake.sql("CREATE TABLE t AS SELECT 7 AS id")
        done = spark_sql("SELECT id FROM lake.default.t", service=file)
        assert done.stdout.split() == ["7"], done.stderr[-3000:]
    done = spark_sql("SELECT id FROM lake.default.t", service=str(tmp_path / "none.json"))
    assert done.returncode != 0
    assert f"The service file {tmp_path / 'none.json'} cannot be read: start" in done.stderr


OTHER_RELEASE = """
import sys
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

jars, classes, service = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config(map={
    "spark.jars": jars,
    "spark.driver.extraClassPath": classes,
    "spark.ui.enabled": "false",
    "spark.sql.catalog.lake": "io.deltasql.spark.DeltaSqlCatalog",
    "spark.sql.catalog.lake.service": service,
}).getOrCreate()
jvm = spark._jvm
conf = jvm.org.apache.hadoop.conf.Configuration()
log = jvm.org.apache.hadoop.fs.Path("/nowhere/_delta_log/0.json")
for use in (
    lambda: spark.sql("CREATE TABLE lake.default.t AS SELECT 1 AS id"),
    lambda: jvm.io.deltasql.spark.DeltaSqlExtension().apply(None),
    lambda: jvm.io.deltasql.spark.DeltaSqlLogStore(conf).listFrom(log, conf),
):
    try:
        use()
    except IllegalArgumentException as error:
        print(error)
"""


@pytest.mark.everything(BEYOND)
@pytest.mark.timeout(400)
@pytest.mark.parametrize("release", ["3.5.7", "5.0.0"])
def test_unsupported_release_of_spark_is_refused_before_a_change(
    sqlite_uri: DeltaSqlUri, tmp_path: Path, release: str
) -> None:
    """Spark and the jar read the release from this file."""
    classes = tmp_path / "classes"
    classes.mkdir()
    (classes / "spark-version-info.properties").write_text(f"version={release}\n")
    jars = [deltasql.spark.jar(), *map(str, JARS.glob("delta-storage-*.jar"))]
    with (
        open_mirrored(sqlite_uri, tmp_path / "lake") as lake,
        served(lake, tmp_path / "service.json") as file,
    ):
        done = subprocess.run(
            [sys.executable, "-c", OTHER_RELEASE, ",".join(jars), str(classes), file],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert lake.tables() == []
    rest = (
        f"runs on Spark 4.0 to 4.3, this is Spark {release}: use another release of Spark, or of "
        "deltasql."
    )
    assert done.stdout.splitlines() == [
        f"The catalog lake {rest}",
        f"The SQL extension of deltasql {rest}",
        f"The LogStore of deltasql {rest}",
    ], done.stderr[-3000:]
