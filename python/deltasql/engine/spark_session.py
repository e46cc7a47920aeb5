"""What depends on the session of a Spark user: its kind, its settings, its errors."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import MissingDriverError, TxnLogEngineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

MEANING = {
    # A value that does not fit is an error, never a null.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Settings by which a query of ours means the same in every session."""

WRITING = {
    # INT96 has neither an order nor statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.fieldId.write.enabled": "true",
}
"""Settings by which files are written as Delta wants them."""

_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"  # the name of a condition of Spark
_LOST_HELP = "An executor is gone with rows that are computed only once: run it again."
_guard = threading.Lock()
_held: dict[tuple[int, str], _Held] = {}
"""What the settings of a session were, while several threads may have changed them."""


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
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Set what the session has otherwise, and set it back when the last thread is done."""
    held = []
    try:
        for name, value in wanted.items():
            _hold(spark, name, value)
            held.append(name)
        yield
    finally:
        for name in held:
            _let_go(spark, name)


def deviations(spark: SparkSession, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a session has otherwise, with its own values."""
    with _guard:
        kept = {name: _held[id(spark), name].own for name in wanted if (id(spark), name) in _held}
    found = {name: kept.get(name) or str(spark.conf.get(name)) for name in wanted}
    return {name: value for name, value in found.items() if _differ(value, wanted[name])}


@dataclass(slots=True)
class _Held:
    own: str
    ours: str
    users: int = 1


def _hold(spark: SparkSession, name: str, value: str) -> None:
    with _guard:
        known = _held.get((id(spark), name))
        if known is not None:
            known.users += 1
            return
        own = str(spark.conf.get(name))
        if _differ(own, value):
            spark.conf.set(name, value)
        _held[id(spark), name] = _Held(own, value)


def _let_go(spark: SparkSession, name: str) -> None:
    with _guard:
        known = _held[id(spark), name]
        known.users -= 1
        if not known.users:
            del _held[id(spark), name]
            if _differ(known.own, known.ours):
                spark.conf.set(name, known.own)


def _differ(one: str, other: str) -> bool:
    return one.casefold() != other.casefold()


@contextmanager
def spark_errors(doing: str) -> Iterator[None]:
    """Raise what Spark reports as an error of ours, with Spark's own words and the cause."""
    try:
        yield
    except failures() as error:
        told = reason(error)
        raise TxnLogEngineError(
            f"Spark could not {doing}: {told}",
            engine="spark",
            help=_LOST_HELP if _LOST in told else "",
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
    cause = getattr(error, "java_exception", None)
    telling = cause
    while cause is not None:
        if cause.getMessage():  # a stream that ended says nothing of the worker that died
            telling = cause
        cause = cause.getCause()
    text = str(telling.toString() if telling is not None else error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
