"""The systems that are compared on Spark, in one session.

They are deltasql's Python functions, deltasql's Spark catalog, delta-spark and Parquet.
"""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from abc import ABC, abstractmethod
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltasql
import deltasql.spark
from benchmarks.workspace import ROOT
from deltasql.api.catalog.connect import close_all
from deltasql.serve import Service
from deltasql.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

JARS = ROOT / "build" / "jars"


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """Start Spark with deltasql and delta-spark, on all cores of this machine."""
    from pyspark.sql import SparkSession

    jars = sorted(JARS.glob("*.jar"))
    if not jars:
        raise RuntimeError(f"{JARS} has no delta-spark: run `make jars`")
    jars.append(Path(deltasql.spark.jar()))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cores = os.cpu_count() or 2
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "6g")
        .config("spark.sql.shuffle.partitions", str(2 * cores))
        .config("spark.default.parallelism", str(2 * cores))
        .config("spark.jars", ",".join(str(jar) for jar in jars))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        # The default of 50 is for clusters and would only slow down delta-spark here.
        .config("spark.databricks.delta.snapshotPartitions", str(2 * cores))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


def spark_rows(spark: SparkSession, first: int, count: int, *, parts: int = 4) -> DataFrame:
    """Return `count` rows of six columns, with ids that start at `first`."""
    return spark.range(first, first + count, 1, parts).selectExpr(
        "id",
        "CAST(id * 2654435761 % 100003 AS INT) AS key",
        "CAST(id * 31 % 10007 AS DOUBLE) * 0.5D AS amount",
        "concat('label ', CAST(id * 7919 % 1000 AS STRING)) AS label",
        "timestamp_seconds(1760000000 + id) AS at",
        "id % 3 = 0 AS flag",
    )


class SparkSystem(ABC):
    """A table format for Spark; `place` is a folder or a URI."""

    name: str
    backend: str

    def __init__(self, spark: SparkSession, place: str) -> None:
        self.spark, self.place = spark, place

    @abstractmethod
    def read(self) -> DataFrame:
        """Open the table."""

    @abstractmethod
    def append(self, frame: DataFrame) -> None:
        """Append rows; the first append creates the table."""

    def aggregate(self) -> tuple[Any, ...]:
        """Open the table and aggregate all rows."""
        found = (
            self.read()
            .groupBy("flag")
            .agg({"amount": "sum", "key": "max", "at": "min", "label": "max", "id": "count"})
            .collect()
        )
        return tuple(sorted(tuple(row) for row in found))

    def sum(self) -> tuple[int, float]:
        """Return the number of rows and the sum of `amount`."""
        row = self.read().selectExpr("count(*)", "sum(amount)").collect()[0]
        return row[0], row[1]

    def plan(self, where: str | None) -> int:
        """Plan a query down to its tasks and return their number."""
        frame = self.read().select("id", "amount")
        planned: Any = frame if where is None else frame.where(where)
        return int(planned._jdf.queryExecution().toRdd().getNumPartitions())


class Parquet(SparkSystem):
    """A folder of Parquet files without a log."""

    name = "parquet"
    backend = "path"

    def read(self) -> DataFrame:
        return self.spark.read.parquet(self.place)

    def append(self, frame: DataFrame) -> None:
        frame.write.mode("append").parquet(self.place)


class DeltaSpark(SparkSystem):
    """delta-spark with its defaults, on a path."""

    name = "delta-spark"
    backend = "path"

    def read(self) -> DataFrame:
        return self.spark.read.format("delta").load(self.place)

    def append(self, frame: DataFrame) -> None:
        frame.write.format("delta").mode("append").save(self.place)

    def forget(self) -> None:
        """Clear the caches, so that the next read is like the first."""
        session: Any = self.spark
        session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def merge(self, source: DataFrame) -> None:
        self.spark.sql(
            f"MERGE INTO delta.`{self.place}` t USING {{source}} s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            source=source,
        )

    def delete(self, where: str) -> None:
        self.spark.sql(f"DELETE FROM delta.`{self.place}` WHERE {where}")

    def update(self, where: str) -> None:
        self.spark.sql(f"UPDATE delta.`{self.place}` SET amount = amount + 1 WHERE {where}")

    def restore(self, version: int) -> None:
        self.spark.sql(f"RESTORE TABLE delta.`{self.place}` TO VERSION AS OF {version}")


class DeltasqlSpark(SparkSystem):
    """deltasql in the same session; every commit is also published to `_delta_log`."""

    name = "deltasql-sqlite"
    backend = "sqlite"

    @property
    def table(self) -> str:
        """The name of the table in the catalog."""
        return "t0"

    def read(self) -> DataFrame:
        return deltasql.spark.read(self.spark, self.place)

    def append(self, frame: DataFrame) -> None:
        deltasql.spark.write(frame, self.place)

    def forget(self) -> None:
        """Close the catalog, so that the next read is like the first."""
        close_all()

    def merge(self, source: DataFrame) -> None:
        with deltasql.begin(self.place) as tx:
            merger = tx.merge(self.table, source, "t.id = s.id", "s", "t", flavour="spark")
            merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self, where: str) -> None:
        with deltasql.begin(self.place) as tx:
            tx.delete(self.table, where, engine="spark", flavour="spark")

    def update(self, where: str) -> None:
        with deltasql.begin(self.place) as tx:
            changes = {"amount": "amount + 1"}
            tx.update(self.table, changes, predicate=where, engine="spark", flavour="spark")

    def restore(self, version: int) -> None:
        with deltasql.begin(self.place) as tx:
            tx.restore(self.table, version)


class DeltasqlCatalog(SparkSystem):
    """deltasql through SQL: the Spark catalog of the jar, and a service in this process."""

    name = "deltasql-catalog"
    backend = "sqlite"

    def __init__(self, spark: SparkSession, place: str) -> None:
        super().__init__(spark, place)
        self._folder = Path(tempfile.mkdtemp(prefix="deltasql-bench-"))
        self._service: Service | None = None
        self.forget()

    def forget(self) -> None:
        """Start another service, with a catalog of its own, so that the next read is the first."""
        if self._service is not None:
            self._service.stop()
        # Spark keeps a catalog until the session ends, so every service needs a new catalog name.
        self._catalog = f"bench{uuid.uuid4().hex}"
        file = self._folder / f"{self._catalog}.json"
        self._service = Service(parse_uri(self.place).catalog().to_string()).start(file)
        self.spark.conf.set(
            f"spark.sql.catalog.{self._catalog}", "io.deltasql.spark.DeltaSqlCatalog"
        )
        self.spark.conf.set(f"spark.sql.catalog.{self._catalog}.service", str(file))

    @property
    def table(self) -> str:
        """The name of the table in the session."""
        return f"{self._catalog}.default.t0"

    def read(self) -> DataFrame:
        return self.spark.sql(f"SELECT * FROM {self.table}")

    def append(self, frame: DataFrame) -> None:
        if self.spark.catalog.tableExists(self.table):
            self.spark.sql(f"INSERT INTO {self.table} SELECT * FROM {{new}}", new=frame)
        else:
            self.spark.sql(f"CREATE TABLE {self.table} AS SELECT * FROM {{new}}", new=frame)

    def merge(self, source: DataFrame) -> None:
        self.spark.sql(
            f"MERGE INTO {self.table} t USING {{source}} s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            source=source,
        )

    def delete(self, where: str) -> None:
        self.spark.sql(f"DELETE FROM {self.table} WHERE {where}")

    def update(self, where: str) -> None:
        self.spark.sql(f"UPDATE {self.table} SET amount = amount + 1 WHERE {where}")

    def restore(self, version: int) -> None:
        with deltasql.begin(self.place) as tx:
            tx.restore("t0", version)
