"""Helpers for Spark tests."""

from __future__ import annotations

import os
import sys
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from deltasql import Catalog

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


def add_catalog(spark: SparkSession, *, kind: str = "DeltaSqlCatalog", **options: str) -> str:
    """Add a catalog of the class `kind` to the session, and return its name."""
    name = f"lake{uuid.uuid4().hex[:8]}"
    spark.conf.set(f"spark.sql.catalog.{name}", f"io.deltasql.spark.{kind}")
    for key, value in options.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
    return name


def mirrored(lake: Catalog, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table as deltalake reads them from the published log."""
    table = DeltaTable(lake.table(name).location)
    has_vectors = "deletionVectors" in (table.protocol().reader_features or ())
    rows = pa.table(table.scan()) if has_vectors else table.to_pyarrow_table()
    return sorted(rows.to_pylist(), key=str)
