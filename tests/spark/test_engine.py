"""The Spark engine keeps the guarantees of every engine, with any session settings."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from deltasql.config import Config
from deltasql.engine.spark.engine import SparkEngine
from tests.engine.protocol import EngineProtocol, sql
from tests.spark.support import ODD, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from deltasql.engine.base import Engine, Relation
    from deltasql.engine.spark.engine import SparkRelation


class TestOnSpark(EngineProtocol):
    """Another time zone, no ANSI mode, case-sensitive names, other defaults for files and types."""

    @pytest.fixture
    def engine(self, spark: SparkSession) -> Iterator[Engine]:
        with settings(spark, ODD), SparkEngine(Config(), spark) as engine:
            yield engine
            assert {name: spark.conf.get(name) for name in ODD} == ODD

    def test_threads_keep_the_session_settings(self, engine: Engine) -> None:
        rows = engine.rows(pa.table({"id": [1, 2]}))

        def count(_: int) -> int:
            return engine.collect(engine.query(sql("SELECT id FROM t"), t=rows)).num_rows

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(count, range(8))) == [2] * 8

    @staticmethod
    def small(engine: Engine, rows: Relation) -> Relation:
        """Store rows whose size is known; Spark counts stored partitions in the background."""
        for _ in range(100):
            kept = engine.keep(rows)
            if cast("SparkRelation", kept).is_small:
                break
        return kept

    def test_small_stored_rows_are_broadcast_in_joins(
        self, engine: Engine, spark: SparkSession
    ) -> None:
        ids = engine.rows(pa.table({"id": [1, 2, 3]}))
        kept = self.small(engine, engine.query(sql("SELECT id FROM r WHERE id > 1"), r=ids))
        large = engine.query(sql("SELECT id FROM r"), r=ids)
        with settings(spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):
            pairs = engine.query(sql("SELECT l.id FROM l JOIN k ON l.id = k.id"), l=large, k=kept)
            assert sorted(engine.collect(pairs)["id"].to_pylist()) == [2, 3]
            frame: Any = cast("SparkRelation", pairs).frame
            plan = str(frame._jdf.queryExecution().executedPlan().toString())
        assert "BroadcastHashJoin" in plan
        assert "SortMergeJoin" not in plan

    def test_results_computed_from_small_rows_are_not_broadcast(
        self, engine: Engine, spark: SparkSession
    ) -> None:
        ids = engine.rows(pa.table({"id": [1, 2, 3]}))
        kept = self.small(engine, engine.query(sql("SELECT id FROM r"), r=ids))
        large = engine.query(sql("SELECT id FROM r"), r=ids)
        made = "SELECT a.id FROM k AS a CROSS JOIN k AS b"
        query = f"SELECT l.id FROM l JOIN ({made}) AS m ON l.id = m.id"
        with settings(spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):
            found = engine.query(sql(query), l=large, k=kept)
            assert sorted(engine.collect(found)["id"].to_pylist()) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
            frame: Any = cast("SparkRelation", found).frame
            plan = str(frame._jdf.queryExecution().executedPlan().toString())
        assert "BroadcastHashJoin" not in plan


def test_stored_rows_are_released_when_the_engine_closes(spark: SparkSession) -> None:
    context: Any = spark.sparkContext

    def stored_rdds() -> set[int]:
        return set(context._jsc.getPersistentRDDs().keySet())

    before = stored_rdds()
    with SparkEngine(Config(), spark) as engine:
        ids = engine.rows(pa.table({"id": [1, 2, 3]}))
        engine.keep(engine.query(sql("SELECT id FROM r"), r=ids))
        assert stored_rdds() - before
    assert stored_rdds() <= before
