"""Helpers that create tables with delta-spark."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.mirror.support import LOG, commit_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

_DAY_S = 86_400


@contextmanager
def configured(spark: SparkSession, wanted: dict[str, str]) -> Iterator[None]:
    """Change settings of the session temporarily, also settings without a value."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            if known is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, known)


def run(spark: SparkSession, place: Path, *statements: str) -> None:
    """Run statements of delta-spark on the table `{t}`."""
    for statement in statements:
        spark.sql(statement.format(t=f"delta.`{place}`"))


def delta_log(spark: SparkSession, place: Path) -> Any:
    """Return delta-spark's DeltaLog of a table."""
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(place))


def forget(spark: SparkSession) -> None:
    """Clear delta-spark's cache, so that it reads logs again."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def clean_up(spark: SparkSession, place: Path) -> None:
    """Make a log years old and write a checkpoint, so that delta-spark cleans the log up."""
    now = time.time()
    _set_times(place, now - 1000 * _DAY_S)
    delta_log(spark, place).checkpoint()
    assert not commit_path(place, 0).exists(), "delta-spark cleaned nothing up"
    _set_times(place, now - 60)  # delta-spark refuses to read versions that are too old


def _set_times(place: Path, first_s: float) -> None:
    for number, file in enumerate(sorted((place / LOG).iterdir())):
        os.utime(file, (first_s + number, first_s + number))


def set_domain(spark: SparkSession, place: Path, configuration: str, *, removed: bool) -> None:
    """Commit a metadata domain of a user, for which there is no SQL statement."""
    jvm: Any = spark._jvm
    delta = jvm.org.apache.spark.sql.delta
    domain = delta.actions.DomainMetadata("etl.état", configuration, removed)
    operation = getattr(getattr(delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
    log, none = delta_log(spark, place), jvm.scala.Option.empty()
    actions = jvm.PythonUtils.toSeq([domain])
    log.startTransaction(none, none).commit(actions, operation)


def commit_times(spark: SparkSession, place: Path) -> dict[int, int]:
    """Return the commit timestamps in delta-spark's history, in milliseconds."""
    rows = spark.sql(f"DESCRIBE HISTORY delta.`{place}`").selectExpr(
        "version", "unix_millis(timestamp) AS at"
    )
    return {row["version"]: row["at"] for row in rows.collect()}
