"""The user's Spark session: find it, and detect whether it is classic or Connect.

`session_copy` makes private copies of it; `errors` translates what it raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.exceptions import MissingDriverError, TxnLogEngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_pyspark() -> None:
    """Raise `MissingDriverError`, which says how to install it, if pyspark is not installed."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise MissingDriverError(driver="pyspark", extra="spark") from error


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


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is a Spark Connect client, which has no py4j gateway."""
    return not hasattr(spark, "_jsparkSession")


def is_same_session(one: Any, other: Any) -> bool:
    """Return whether two Python objects stand for the same session."""
    if one is other:
        return True
    if is_connect(one) or is_connect(other):
        return is_connect(one) and is_connect(other) and one.session_id == other.session_id
    return bool(one._jsparkSession.equals(other._jsparkSession))
