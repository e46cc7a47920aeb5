"""A Spark session for one command."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def session_for(engine: str | None) -> Iterator[None]:
    """Start Spark where it is the engine, with the settings of its own configuration."""
    if engine != "spark":
        yield
        return
    from deltasql.engine.spark_session import require_pyspark

    require_pyspark()
    from pyspark.sql import SparkSession

    known = SparkSession.getActiveSession()
    session = known or SparkSession.builder.appName("deltasql").getOrCreate()
    try:
        yield
    finally:
        if known is None:
            session.stop()
