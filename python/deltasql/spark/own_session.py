"""A Spark session that deltasql starts itself if there is none."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from deltasql.engine.spark.session import is_connect
from deltasql.exceptions import TxnLogEngineError

if TYPE_CHECKING:
    from collections.abc import Iterator

_JAVA_HELP = (
    "Spark needs Java 17 or newer: install a JDK and put java on the path, or set JAVA_HOME; "
    "docs/troubleshooting.md#spark."
)


@contextmanager
def own_session() -> Iterator[None]:
    """Start a Spark session and stop it at the end, unless there is an active one.

    The settings come from Spark's own configuration.
    """
    known = SparkSession.getActiveSession()
    # Spark's progress bars would overwrite ours, and would appear even without a terminal.
    builder = SparkSession.builder.appName("deltasql").config(
        "spark.ui.showConsoleProgress", "false"
    )
    session = known or _started(builder)
    if known is None:
        _use_this_python(session)
    try:
        yield
    finally:
        if known is None:
            session.stop()


def _started(builder: SparkSession.Builder) -> SparkSession:
    if not (shutil.which("java") or {"JAVA_HOME", "SPARK_REMOTE"} & os.environ.keys()):
        raise TxnLogEngineError("there is no java on the path", engine="spark", help=_JAVA_HELP)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise TxnLogEngineError(
            f"Spark did not start: {error}", engine="spark", help=_JAVA_HELP
        ) from error


def _use_this_python(session: SparkSession) -> None:
    """Make local workers use this Python, which has deltasql, not the first one on the path."""
    if is_connect(session) or "PYSPARK_PYTHON" in os.environ:
        return
    if (session.sparkContext.master or "").startswith("local"):
        session.sparkContext.pythonExec = sys.executable
