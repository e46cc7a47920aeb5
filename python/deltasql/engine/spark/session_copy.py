"""Copies of a user's Spark session with settings of our own.

Settings of the user's session are never changed: other threads run queries in it at the same time.
A copy shares the Spark context, its executors and cached data, and starts with the user's settings,
functions and temporary views; what is set or created in it is invisible to the user.

Spark decides what a query means (time zone, ANSI mode, case of names) when it analyses it, and an
analysed plan keeps its meaning in every session. So a query of ours is analysed in a copy and run
in the user's session, and a user's DataFrame means here what it means there.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

from deltasql.engine.spark.session import is_connect
from deltasql.exceptions import TxnLogEngineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

MEANING = {
    # A value that does not fit is an error, never a null.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Settings by which a query of ours means the same for every user."""

WRITING = {
    # INT96 has neither an order nor statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.fieldId.write.enabled": "true",
}
"""Settings by which files are written as Delta wants them."""


class SessionCopy(Protocol):
    """A session with settings of ours, beside the user's session."""

    def view(self, frame: DataFrame) -> str:
        """Create a view of a user's DataFrame in the copy and return its name as SQL."""
        ...

    def sql(self, text: str) -> tuple[DataFrame, str | None]:
        """Analyse a query in the copy and return it as a DataFrame of the user's session.

        The second value is the name of its view in the copy, when it has one.
        """
        ...

    def bring(self, frame: DataFrame) -> DataFrame:
        """Return a user's DataFrame as one that runs in the copy."""
        ...

    def close(self) -> None:
        """Remove the copy; DataFrames that came out of a classic one can still be used."""
        ...


def copy_session(spark: SparkSession, settings: Mapping[str, str]) -> SessionCopy:
    """Copy a user's session, classic or Connect, and change settings of the copy."""
    return _ConnectCopy(spark, settings) if is_connect(spark) else _ClassicCopy(spark, settings)


class _ClassicCopy:
    """A copy in the JVM: analysed plans are handed from session to session.

    The copy has no SparkSession in Python, whose constructor would change what `RDD.toDF` does.
    """

    def __init__(self, spark: Any, settings: Mapping[str, str]) -> None:
        self._spark = spark
        self._copy = spark._jsparkSession.cloneSession()
        for name, value in settings.items():
            self._copy.conf().set(name, value)

    def view(self, frame: Any) -> str:
        # It stays until the copy goes: dropping it would also drop the cache of the user's rows.
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
    """A copy on the server: plans go from session to session as global temporary views.

    A view holds the plan as the session that created it has analysed it.
    """

    def __init__(self, spark: Any, settings: Mapping[str, str]) -> None:
        if not hasattr(spark, "cloneSession"):
            raise TxnLogEngineError(
                "this client of Spark Connect cannot copy a session",
                engine="spark",
                help="Use PySpark 4.1 or newer with Spark Connect, or classic Spark.",
            )
        self._spark = spark
        self._database = spark.conf.get("spark.sql.globalTempDatabase")
        self._copy = spark.cloneSession()
        self._cleaning = ExitStack()
        self._cleaning.callback(self._copy.client.close)
        self._cleaning.callback(self._copy.client.release_session)
        for name, value in settings.items():
            self._copy.conf.set(name, value)

    def view(self, frame: DataFrame) -> str:
        name = _new_name()
        frame.createGlobalTempView(name)
        full_name = f"{self._database}.{name}"
        # Not by the catalog's method, which would also drop the cache of the user's rows.
        self._cleaning.callback(lambda: self._spark.sql(f"DROP VIEW IF EXISTS {full_name}"))
        return full_name

    def sql(self, text: str) -> tuple[DataFrame, str | None]:
        name = self.view(self._copy.sql(text))
        return self._spark.table(name), name

    def bring(self, frame: DataFrame) -> DataFrame:
        found: DataFrame = self._copy.table(self.view(frame))
        return found

    def close(self) -> None:
        self._cleaning.close()


def _new_name() -> str:
    return f"deltasql_{uuid.uuid4().hex}"
