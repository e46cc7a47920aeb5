"""Helpers for Spark tests."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

# Workers use the Python of the tests, which has Arrow.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

ROWS = [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
"""Key and value of the rows in the fixture `table`."""
ODD = {
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.compression.codec": "gzip",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
}
"""Settings of a session that must not change any result."""


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session within a block."""
    before = {name: str(spark.conf.get(name)) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
