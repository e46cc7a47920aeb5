"""What depends on the session of a Spark user: its kind and its errors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from deltasql.engine.parquet.file_errors import damaged_file, missing_file
from deltasql.exceptions import MissingDriverError, TxnLogEngineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_UNREAD = "FAILED_READ_FILE"  # and a name of what is wrong with the file
_NOT_THERE = f"{_UNREAD}.FILE_NOT_EXIST"
_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"  # the name of a condition of Spark
_LOST_HELP = "An executor is gone with rows that are computed only once: run it again."


def require_pyspark() -> None:
    """Refuse to go on without pyspark, and tell how to get it."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise MissingDriverError(driver="pyspark", extra="spark") from error


def active_session() -> SparkSession:
    """Return the session of this process, or say how to start one."""
    require_pyspark()
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is None:
        raise TxnLogEngineError(
            "there is no Spark session",
            engine="spark",
            help="Hand in a Spark DataFrame, or start one: SparkSession.builder.getOrCreate().",
        )
    return found


def is_connect(spark: SparkSession) -> bool:
    """Tell whether a session talks to a server; nothing there goes through py4j."""
    return not hasattr(spark, "_jsparkSession")


def is_same_session(one: Any, other: Any) -> bool:
    """Tell whether two handles are of one session."""
    if one is other:
        return True
    if is_connect(one) or is_connect(other):
        return is_connect(one) and is_connect(other) and one.session_id == other.session_id
    return bool(one._jsparkSession.equals(other._jsparkSession))


@contextmanager
def spark_errors(doing: str) -> Iterator[None]:
    """Raise what Spark reports as an error of ours, with Spark's own words and the cause."""
    try:
        yield
    except failures() as error:
        condition, path = _unread_file(error)
        if condition == _NOT_THERE:
            raise missing_file(path, None) from error
        if condition is not None:
            raise damaged_file(path, reason(error), "spark") from error
        raise TxnLogEngineError(
            f"Spark could not {doing}: {reason(error)}",
            engine="spark",
            help=_LOST_HELP if _LOST in conditions(error) else "",
        ) from error


def failures() -> tuple[type[Exception], ...]:
    """Return what Spark and the way to it raise."""
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    except ImportError:  # a client of Spark Connect needs no JVM
        return (PySparkException,)
    return (PySparkException, Py4JError)


def reason(error: Any) -> str:
    """Return the line of an error that tells most: Spark wraps the first one several times."""
    telling = None
    for cause in _causes(getattr(error, "java_exception", None)):
        # A stream that ended says nothing of the worker that died.
        telling = cause if telling is None or cause.getMessage() else telling
    text = str(telling.toString() if telling is not None else error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def conditions(error: Any) -> list[str | None]:
    """Return the names that Spark has for an error and its causes; None for one without a name."""
    return [name for name, _ in _named(error)]


def _unread_file(error: Any) -> tuple[str | None, str]:
    """Return why a data file could not be read and which one; None for any other error."""
    for name, parameters in _named(error):
        if name is not None and name.startswith(_UNREAD):
            return name, parameters.get("path", "")
    return None, ""


def _named(error: Any) -> list[tuple[str | None, dict[str, str]]]:
    """Return the name and the parameters of an error and of its causes."""
    from pyspark.errors import PySparkException

    first = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if first is None:
        if not isinstance(error, PySparkException):
            return [(None, {})]
        return [(error.getCondition(), dict(error.getMessageParameters() or {}))]
    from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    names = gateway.jvm.org.apache.spark.api.python.PythonErrorUtils
    return [
        (names.getCondition(cause), dict(names.getMessageParameters(cause)))
        if is_instance_of(gateway, cause, "org.apache.spark.SparkThrowable")
        else (None, {})
        for cause in _causes(first)
    ]


def is_too_large(error: Any) -> bool:
    """Tell whether the driver refused to take rows that are too many for it.

    Spark has no name for it (`spark.driver.maxResultSize`). When a task fails, its own error is
    among the causes; here there are only errors of the driver, which gave the stage up.
    """
    causes = _causes(getattr(error, "java_exception", None))
    kinds = {str(cause.getClass().getName()) for cause in causes}
    return kinds == {"org.apache.spark.SparkException"} and not any(conditions(error))


def _causes(error: Any) -> list[Any]:
    """Return an exception of the JVM and its causes, the first one last."""
    found = []
    while error is not None:
        found.append(error)
        error = error.getCause()
    return found
