"""Translate Spark's errors into ours."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from deltasql.engine.parquet.file_errors import damaged_file, missing_file
from deltasql.exceptions import TxnLogEngineError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Names of Spark's error conditions.
_FILE_NOT_READ = "FAILED_READ_FILE"  # followed by a subclass that says why
_FILE_MISSING = f"{_FILE_NOT_READ}.FILE_NOT_EXIST"
_FAILED_CASTS = ("CAST_", "NUMERIC_VALUE_OUT_OF_RANGE")  # followed by the kind of the failure
_BLOCK_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
_BLOCK_LOST_HELP = (
    "An executor was lost, with rows that cannot be computed again. Run the operation again."
)


@contextmanager
def spark_errors(action: str) -> Iterator[None]:
    """Raise Spark's errors as `TxnLogEngineError` or `MissingDataFilesError`.

    `action` completes the message "Spark could not …".
    """
    try:
        yield
    except spark_exceptions() as error:
        condition, path = _unread_file(error)
        if condition == _FILE_MISSING:
            raise missing_file(path, None) from error
        if condition is not None:
            raise damaged_file(path, root_message(error), "spark") from error
        raise TxnLogEngineError(
            f"Spark could not {action}: {root_message(error)}",
            engine="spark",
            help=_BLOCK_LOST_HELP if _BLOCK_LOST in _conditions(error) else "",
        ) from error


def spark_exceptions() -> tuple[type[Exception], ...]:
    """Return the exception classes of pyspark and, where it is installed, py4j."""
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    except ImportError:  # a Spark Connect client does not need py4j
        return (PySparkException,)
    return (PySparkException, Py4JError)


def root_message(error: Any) -> str:
    """Return the first line of the root cause's message; Spark wraps it in several errors."""
    root = None
    for cause in _causes(getattr(error, "java_exception", None)):
        # A cause without a message, such as an EOFException, explains less than its wrapper.
        root = cause if root is None or cause.getMessage() else root
    text = str(root.toString() if root is not None else error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def is_result_too_large(error: Any) -> bool:
    """Return whether a result exceeded `spark.driver.maxResultSize`.

    Spark has no error condition for this failure. Here all causes are errors of the driver, which
    cancelled the stage. If a task had failed, its own error would be among the causes.
    """
    causes = _causes(getattr(error, "java_exception", None))
    kinds = {str(cause.getClass().getName()) for cause in causes}
    return kinds == {"org.apache.spark.SparkException"} and not any(_conditions(error))


def is_failed_cast(error: BaseException | None) -> bool:
    """Return whether Spark could not cast a value."""
    return isinstance(error, spark_exceptions()) and any(
        name is not None and name.startswith(_FAILED_CASTS) for name in _conditions(error)
    )


def _unread_file(error: Any) -> tuple[str | None, str]:
    """Return the condition and the path of a data file that could not be read.

    For any other error, return None and an empty string.
    """
    for name, parameters in _named_conditions(error):
        if name is not None and name.startswith(_FILE_NOT_READ):
            return name, parameters.get("path", "")
    return None, ""


def _conditions(error: Any) -> list[str | None]:
    """Return the condition of an error and of each cause; None where there is no condition."""
    return [name for name, _ in _named_conditions(error)]


def _named_conditions(error: Any) -> list[tuple[str | None, dict[str, str]]]:
    """Return the condition and the message parameters of an error and of its causes."""
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


def _causes(error: Any) -> list[Any]:
    """Return a JVM exception and its causes, outermost first."""
    found = []
    while error is not None:
        found.append(error)
        error = error.getCause()
    return found
