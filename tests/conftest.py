"""Fixtures for a SQLite file, a DuckDB file and a PostgreSQL schema."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

import deltasql
from deltasql.uri import DeltaSqlUri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from deltasql.api.catalog.catalog import Catalog

pytest_plugins = ["tests.s3", "tests.selection"]
# Spark's Python workers run this interpreter, not the first one on the path.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
JARS = Path(__file__).parents[1] / "build" / "jars"
BACKENDS = ("sqlite", "duckdb", "postgres")
# A shell ignores SIGINT in background processes, and child processes inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    if not os.environ.get("TEST_DATABASE_URL") and not hasattr(config, "workerinput"):
        pytest.exit(
            "TEST_DATABASE_URL is not set: run `make test`, which starts an embedded PostgreSQL, "
            "or set it to a PostgreSQL database such as postgresql://user:password@host:5432/db.",
            returncode=2,
        )


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that share an expensive fixture in one process.

    All tests with Spark run in one process, so that there is one JVM. The tests of a file that
    share a fixture run in one process, so that it is made once.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.get_closest_marker("xdist_group") is None and _shares_a_fixture(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def _shares_a_fixture(item: pytest.Item) -> bool:
    used = getattr(item, "_fixtureinfo", None)
    fixtures = used.name2fixturedefs.values() if used is not None else ()
    return any(made.scope == "module" for each in fixtures for made in each)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The database under test; tests/selection.py decides which of them a test runs on."""
    return str(request.param)


@pytest.fixture
def catalog_uri(backend: str, tmp_path: Path) -> Iterator[DeltaSqlUri]:
    """Yield the URI of an empty catalog."""
    yield from new_catalog_uri(backend, tmp_path)


@pytest.fixture
def postgres_uri(tmp_path: Path) -> Iterator[DeltaSqlUri]:
    """Yield the URI of an empty catalog in PostgreSQL."""
    yield from new_catalog_uri("postgres", tmp_path)


@pytest.fixture
def sqlite_uri(tmp_path: Path) -> Iterator[DeltaSqlUri]:
    """Yield the URI of an empty catalog in SQLite."""
    yield from new_catalog_uri("sqlite", tmp_path)


@pytest.fixture
def catalog(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """Yield an open catalog without a mirror; its tables are in the test's folder."""
    with deltasql.connect(
        catalog_uri,
        create=True,
        mirror={"mode": "off"},
        table={"data_root": str(tmp_path / "lake")},
    ) as opened:
        yield opened


def new_catalog_uri(backend: str, folder: Path) -> Iterator[DeltaSqlUri]:
    """Yield the URI of an empty catalog and remove the catalog afterwards."""
    if backend != "postgres":
        yield DeltaSqlUri(backend=backend, database=str(folder / f"meta.{backend}"))
        return
    import psycopg

    address = os.environ["TEST_DATABASE_URL"]
    schema = f"t_{uuid.uuid4().hex[:16]}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        info = connection.info
        uri = DeltaSqlUri(
            backend="postgres",
            database=info.dbname,
            user=info.user,
            password=info.password or None,
            host=info.host,
            port=info.port,
            search_path=schema,
        )
    try:
        yield uri
    finally:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


def add_file(path: str, low: int = 0, high: int = 9, **fields: object) -> deltasql.AddFile:
    """Return an AddFile with ten rows whose column `id` has the bounds low..high."""
    stats = (
        f'{{"numRecords":10,"minValues":{{"id":{low}}},'
        f'"maxValues":{{"id":{high}}},"nullCount":{{"id":0}}}}'
    )
    values = {"partition_values": {}, "size": 100, "modification_time": 0, "stats": stats, **fields}
    return deltasql.AddFile(path=quote(path), **values)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield one local Spark session for all tests of this process, with delta-spark."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Short jobs do not benefit from the C2 compiler: without it they use half the CPU time.
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    jars = sorted(JARS.glob("*.jar"))
    if not jars:
        pytest.fail(f"{JARS} has no delta-spark: run `make jars`")
    jars += Path(deltasql.__file__).parent.glob("spark/*.jar")  # tests of the catalog need it
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.jars", ",".join(str(jar) for jar in jars))
        .config("spark.driver.extraClassPath", f"{JARS}/s3/*")
        .config(
            "spark.sql.extensions",
            "io.delta.sql.DeltaSparkSessionExtension,io.deltasql.spark.DeltaSqlExtension",
        )
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield session
    session.stop()
