"""The engine on Spark keeps the guarantees of every engine, whatever the session's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deltasql.config import Config
from deltasql.engine.spark_engine import SparkEngine
from tests.engine.protocol import EngineProtocol
from tests.spark.support import ODD, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from deltasql.engine.base import Engine


class TestOnSpark(EngineProtocol):
    """Another zone, no ANSI mode, case-sensitive names, other defaults for files and types."""

    @pytest.fixture
    def engine(self, spark: SparkSession) -> Iterator[Engine]:
        with settings(spark, ODD), SparkEngine(Config(), spark) as engine:
            yield engine
            assert {name: spark.conf.get(name) for name in ODD} == ODD
