"""The user's Spark session: find or start it, and detect whether it is classic or Connect."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import MissingDriverError, TxnLogEngineError
from deltasql.exceptions.releases import check_release

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_JAVA_HELP = (
    "Spark needs Java 17 or newer: install a JDK and put java on the PATH, or set JAVA_HOME; "
    "see `deltasql docs troubleshooting`."
)


def require_pyspark() -> None:
    """Raise an error that says how to install pyspark if it is missing or not supported."""
    try:
        import pyspark
    except ImportError as error:
        raise MissingDriverError(driver="pyspark", extra="spark") from error
    check_release("PySpark", pyspark.__version__)


def active_session() -> SparkSession:
    """Return the active session of this process."""
    require_pyspark()
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is None:
        raise TxnLogEngineError(
            "there is no Spark session",
            engine="spark",
            help="Pass a Spark DataFrame, or start a session: SparkSession.builder.getOrCreate().",
        )
    return found


@contextmanager
def started_session() -> Iterator[None]:
    """Start a Spark session, and stop it at the end of the block.

    If there is an active session, do nothing. The settings come from Spark's own configuration.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        yield
        return
    session = _start()
    try:
        yield
    finally:
        session.stop()


def _start() -> SparkSession:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if not (shutil.which("java") or {"JAVA_HOME", "SPARK_REMOTE"} & os.environ.keys()):
        raise TxnLogEngineError("java was not found on the PATH", engine="spark", help=_JAVA_HELP)
    builder = SparkSession.builder.appName("deltasql")
    try:
        # Spark's progress bars would overwrite ours, and would appear even without a terminal.
        session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    except PySparkRuntimeError as error:
        raise TxnLogEngineError(
            f"Spark did not start: {error}", engine="spark", help=_JAVA_HELP
        ) from error
    return session


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is a Spark Connect client, which has no py4j gateway."""
    return not hasattr(spark, "_jsparkSession")


def is_same_session(one: Any, other: Any) -> bool:
    """Return whether two Python objects represent the same Spark session."""
    if one is other:
        return True
    if is_connect(one) or is_connect(other):
        return is_connect(one) and is_connect(other) and one.session_id == other.session_id
    return bool(one._jsparkSession.equals(other._jsparkSession))
