"""`deltasql.spark.read`: a table as a Spark DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.api.connect import shared
from deltasql.config import Config
from deltasql.engine.live_files import LiveFiles
from deltasql.engine.spark import scan
from deltasql.engine.spark_schema import quoted
from deltasql.exceptions import TxnLogUriError
from deltasql.spark.condition import spark_condition
from deltasql.uri import DeltaSqlUri, parse_uri

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from deltasql.snapshot.snapshot import Snapshot


def read(
    spark: SparkSession,
    uri: str | DeltaSqlUri,
    version: int | None = None,
    timestamp: datetime | None = None,
    columns: Sequence[str] | None = None,
    predicate: object = None,
) -> DataFrame:
    """Read a table at its head, at a version, or as it was at a moment.

    `predicate` is SQL or deltalake's filter lists. It also decides, by the statistics in the
    database, which files are looked at, so it saves more than a filter on the result.
    """
    parsed = parse_uri(uri) if isinstance(uri, str) else uri
    if parsed.table_name is None:
        raise TxnLogUriError(
            f"{parsed} names a catalog, not a table",
            help="Add ?table=name, or /table for PostgreSQL.",
        )
    catalog = shared(parsed, Config.load())
    at_version = parsed.version if version is None and timestamp is None else version
    at_time = parsed.timestamp if version is None and timestamp is None else timestamp
    table = catalog.table(parsed.table_name)
    snapshot = table.snapshot(at_version, timestamp=at_time)
    frame = read_snapshot(spark, snapshot, catalog.config, predicate)
    return frame if columns is None else frame.select(*[quoted(name) for name in columns])


def read_snapshot(
    spark: SparkSession, snapshot: Snapshot, config: Config, predicate: object = None
) -> DataFrame:
    """Read the rows of a snapshot for which a predicate is true."""
    scanned = snapshot.scan(predicate)
    location = snapshot.table.location
    files = LiveFiles(location, snapshot.metadata, scanned.arrow, config.storage)
    frame = scan(spark, files, prune=lambda text: _matching(snapshot, text))
    if scanned.predicate is None:
        return frame
    return frame.where(spark_condition(scanned.predicate))


def _matching(snapshot: Snapshot, condition: str) -> set[str]:
    """Return the paths of files that can match a filter of the query."""
    return set(snapshot.scan(condition).arrow["path"].to_pylist())
