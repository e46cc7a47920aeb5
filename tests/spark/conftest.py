"""Fixtures for Spark tests: an empty catalog whose commits are published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import deltasql.spark
from deltasql.serve import Service
from deltasql.spark import DeltaTable
from deltasql.spark.catalog import LOG_STORE_CLASS
from deltasql.spark.session import set_catalog
from tests.mirror.support import open_mirrored
from tests.spark.support import ROWS, add_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri


LOG_STORE = "spark.delta.logStore.file.impl"
SERVICE = "deltasql.logStore.service"


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def table(spark: SparkSession, lake: Catalog) -> DeltaTable:
    """A table of four rows in the catalog of the session."""
    set_catalog(spark, lake)
    with lake.begin() as tx:
        tx.write("t", spark.createDataFrame(ROWS, ["key", "value"]).coalesce(1))
    return DeltaTable.forName(spark, "t")


@pytest.fixture
def source(spark: SparkSession) -> DataFrame:
    """Rows to merge: two keys of the table and two new ones."""
    rows = [("a", -1), ("b", 0), ("e", -5), ("f", -6)]
    return spark.createDataFrame(rows, ["k", "v"]).coalesce(1)


@pytest.fixture
def service(lake: Catalog, tmp_path: Path) -> Iterator[Service]:
    deltasql.spark.jar()  # raises if the jar is not built
    started = Service(lake).start(tmp_path / "service.json")
    yield started
    started.stop()


@pytest.fixture
def bridge(spark: SparkSession, lake: Catalog, tmp_path: Path) -> Iterator[Service]:
    """Let delta-spark in this session commit through the catalog; yield the service."""
    deltasql.spark.jar()  # raises if the jar is not built
    service = Service(lake).start(tmp_path / "service.json")
    # Delta reads the class from the configuration of the context, which is set at its start.
    configuration = spark.sparkContext._jsc.sc().conf()
    configuration.set(LOG_STORE, LOG_STORE_CLASS)
    spark.conf.set(SERVICE, str(tmp_path / "service.json"))
    yield service
    configuration.remove(LOG_STORE)
    spark.conf.unset(SERVICE)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    service.stop()


@pytest.fixture
def name(spark: SparkSession, service: Service, tmp_path: Path) -> str:
    """The name of the catalog in the session."""
    return add_catalog(spark, service=str(tmp_path / "service.json"))


@pytest.fixture
def sql(spark: SparkSession, name: str) -> Callable[[str], list[Any]]:
    """Run SQL, in which `lake` is the catalog, and return the rows as tuples."""

    def run(text: str) -> list[Any]:
        return [tuple(row) for row in spark.sql(text.replace("lake.", f"{name}.")).collect()]

    return run
