"""A published table that deltasql and delta-spark change in turn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltasql.spark
from tests.migrate.spark_tables import forget, run
from tests.oracles.readers import DeltaSpark, Place
from tests.oracles.states import arrow_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql import Catalog


class Alternation:
    """The table `t` of a catalog. Commits of delta-spark by its path are adopted."""

    def __init__(self, spark: SparkSession, lake: Catalog) -> None:
        self.spark, self.lake = spark, lake

    @property
    def path(self) -> Path:
        return Path(self.lake.table("t").location)

    def ours(self, *statements: str) -> None:
        """Run statements on the embedded engine."""
        for statement in statements:
            self.lake.sql(statement)

    def on_spark(self, *statements: str) -> None:
        """Run statements of deltasql on Spark."""
        for statement in statements:
            deltasql.spark.sql(self.spark, statement, catalog=self.lake)

    def theirs(self, *statements: str) -> None:
        """Run statements of delta-spark on `{t}`, and adopt its commits."""
        forget(self.spark)
        run(self.spark, self.path, *statements)
        self.lake.mirror.adopt("t")

    def rows(self) -> tuple[str, ...]:
        """Return the rows that delta-spark reads; both of our engines must read the same."""
        forget(self.spark)
        version = self.lake.table("t").snapshot().version
        found = DeltaSpark(self.spark).rows(Place(str(self.path)), version)
        frame: Any = deltasql.spark.read(self.spark, self.lake.table("t").uri)
        assert arrow_rows(frame.toArrow()) == found
        assert arrow_rows(self.lake.query("SELECT * FROM t").read_all()) == found
        return found.rows
