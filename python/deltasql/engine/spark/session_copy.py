"""Private copies of the user's Spark session, with settings of our own.

The settings of the user's session (`session.py`) are never changed, because other threads may run
queries in it at the same time. A copy shares the Spark context, its executors and cached data, and
starts with the user's settings, functions and temporary views. The user does not see the settings
and views of the copy.

Spark applies settings such as the time zone, ANSI mode and case sensitivity when it analyses a
query. The analysed plan keeps these settings, even if it runs in another session. Our queries are
therefore analysed in a copy and run in the user's session. A user's DataFrame was analysed in the
user's session and keeps the settings of that session.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

from deltasql.engine.spark.session import is_connect
from deltasql.exceptions import TxnLogEngineError
from deltasql.exceptions.releases import check_release

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

QUERY_SETTINGS = {
    # With ANSI mode, a value that overflows is an error. Without ANSI mode, it would become null.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Settings that give our queries the same result in every session."""

WRITE_SETTINGS = {
    # Do not write INT96, which has neither a sort order nor statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.fieldId.write.enabled": "true",
}
"""Settings for writing files as Delta requires them."""


class SessionCopy(Protocol):
    """A copy of the user's session with other settings."""

    def view(self, frame: DataFrame) -> str:
        """Create a view of a user's DataFrame in the copy and return its name as SQL."""
        ...

    def sql(self, text: str) -> tuple[DataFrame, str | None]:
        """Analyse a query in the copy and return it as a DataFrame of the user's session.

        The second value is the name of the query's view in the copy; None if it has no view.
        """
        ...

    def bring(self, frame: DataFrame) -> DataFrame:
        """Convert a DataFrame of the user's session to a DataFrame that runs in the copy."""
        ...

    def close(self) -> None:
        """Remove the copy; DataFrames from a classic copy remain usable."""
        ...


def copy_session(spark: SparkSession, settings: Mapping[str, str]) -> SessionCopy:
    """Copy a session, classic or Connect, and apply settings to the copy."""
    return _ConnectCopy(spark, settings) if is_connect(spark) else _ClassicCopy(spark, settings)


class _ClassicCopy:
    """A copy in the JVM. Analysed plans are moved between the two sessions.

    The copy has no Python `SparkSession`, because its constructor would change `RDD.toDF`.
    """

    def __init__(self, spark: Any, settings: Mapping[str, str]) -> None:
        self._spark = spark
        self._copy = spark._jsparkSession.cloneSession()
        conf = self._copy.conf()
        for name, value in settings.items():
            if conf.get(name) != value:  # Spark warns about some settings
                conf.set(name, value)

    def view(self, frame: Any) -> str:
        # The view exists until the copy is closed: dropping it would uncache the user's DataFrame.
        name = _new_name()
        self._moved(frame._jdf, self._copy).createTempView(name)
        return name

    def sql(self, text: str) -> tuple[DataFrame, str | None]:
        from pyspark.sql import DataFrame

        found = self._moved(self._copy.sql(text), self._spark._jsparkSession)
        return DataFrame(found, self._spark), None

    def bring(self, frame: Any) -> DataFrame:
        from pyspark.sql import DataFrame

        return DataFrame(self._moved(frame._jdf, self._copy), self._spark)

    def close(self) -> None:
        self._copy = None

    def _moved(self, rows: Any, session: Any) -> Any:
        datasets = self._spark._sc._jvm.org.apache.spark.sql.classic.Dataset
        return datasets.ofRows(session, rows.queryExecution().analyzed())


class _ConnectCopy:
    """A copy on the Connect server. Plans are moved between the sessions as global temporary views.

    A view contains the plan as analysed by the session that created the view.
    """

    def __init__(self, spark: Any, settings: Mapping[str, str]) -> None:
        check_release("Spark", spark.version)  # the client can have another release
        if not hasattr(spark, "cloneSession"):
            raise TxnLogEngineError(
                "this Spark Connect client cannot copy a session",
                engine="spark",
                help="Use PySpark 4.1 or newer with Spark Connect, or classic Spark.",
            )
        self._spark = spark
        self._database = spark.conf.get("spark.sql.globalTempDatabase")
        self._copy = spark.cloneSession()
        self._cleanup = ExitStack()
        self._cleanup.callback(self._copy.client.close)
        self._cleanup.callback(self._copy.client.release_session)
        for name, value in settings.items():
            if self._copy.conf.get(name) != value:  # Spark warns about some settings
                self._copy.conf.set(name, value)

    def view(self, frame: DataFrame) -> str:
        name = _new_name()
        frame.createGlobalTempView(name)
        full_name = f"{self._database}.{name}"
        # Use SQL: the method of the Spark catalog would also uncache the user's DataFrame.
        self._cleanup.callback(lambda: self._spark.sql(f"DROP VIEW IF EXISTS {full_name}"))
        return full_name

    def sql(self, text: str) -> tuple[DataFrame, str | None]:
        name = self.view(self._copy.sql(text))
        return self._spark.table(name), name

    def bring(self, frame: DataFrame) -> DataFrame:
        found: DataFrame = self._copy.table(self.view(frame))
        return found

    def close(self) -> None:
        self._cleanup.close()


def _new_name() -> str:
    return f"deltasql_{uuid.uuid4().hex}"
