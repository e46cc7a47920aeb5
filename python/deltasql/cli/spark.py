"""A Spark session for one command."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


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
    # Its own bars would be drawn over ours, and where nobody looks.
    builder = SparkSession.builder.appName("deltasql").config(
        "spark.ui.showConsoleProgress", "false"
    )
    session = known or builder.getOrCreate()
    _use_this_python(session)
    try:
        yield
    finally:
        if known is None:
            session.stop()


def _use_this_python(session: SparkSession) -> None:
    """Let workers on this machine run the Python that has deltasql, not the first on the path."""
    from deltasql.engine.spark_session import is_connect

    if is_connect(session) or "PYSPARK_PYTHON" in os.environ:
        return
    if (session.sparkContext.master or "").startswith("local"):
        session.sparkContext.pythonExec = sys.executable
