"""`deltasql.spark.read`: a table as a Spark DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from deltasql.api.deltalake_compat.handle.opening import catalog_with
from deltasql.config import Config
from deltasql.engine.files.live_files import LiveFiles
from deltasql.engine.spark.scan import scan
from deltasql.engine.spark.schema import quoted
from deltasql.exceptions import TxnLogUriError
from deltasql.operations.read import read_relation
from deltasql.spark.delta_table.condition import in_datafusion_words, spark_condition
from deltasql.uri import DeltaSqlUri, parse_uri

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.engine.spark.engine import SparkRelation
    from deltasql.snapshot.snapshot import Snapshot


def read(
    spark: SparkSession,
    uri: str | DeltaSqlUri,
    version: int | None = None,
    timestamp: datetime | None = None,
    columns: Sequence[str] | None = None,
    predicate: object = None,
    *,
    transaction: MultiTableTransaction | None = None,
) -> DataFrame:
    """Read a table at its head, at a version, or as it was at a moment.

    `predicate` is SQL or deltalake's filter lists. It also decides, by the statistics in the
    database, which files are looked at, so it saves more than a filter on the result.

    With a transaction, give a table's name instead of a URI: the rows are those that the
    transaction sees, its own changes included, and can be used until it ends.

        deltasql.spark.read(spark, f"{catalog}?table=sales", predicate="day >= '2024-05-01'")
        deltasql.spark.read(spark, f"{catalog}?table=sales", version=0, columns=["id"])
        with deltasql.begin(catalog) as tx:
            tx.delete("sales", "id = 9")
            deltasql.spark.read(spark, "sales", transaction=tx).count()
    """
    if transaction is not None:
        return _read_staged(spark, transaction, str(uri), columns, predicate)
    parsed = parse_uri(uri) if isinstance(uri, str) else uri
    if parsed.table_name is None:
        raise TxnLogUriError(
            f"{parsed} names a catalog, not a table",
            help="Add ?table=name, or /table for PostgreSQL.",
        )
    catalog = catalog_with(parsed, Config.load())
    at_version = parsed.version if version is None and timestamp is None else version
    at_time = parsed.timestamp if version is None and timestamp is None else timestamp
    table = catalog.table(parsed.table_name)
    snapshot = table.snapshot(at_version, timestamp=at_time)
    frame = read_snapshot(spark, snapshot, catalog.config, predicate)
    return frame if columns is None else frame.select(*[quoted(name) for name in columns])


def _read_staged(
    spark: SparkSession,
    transaction: MultiTableTransaction,
    table: str,
    columns: Sequence[str] | None,
    predicate: object,
) -> DataFrame:
    """Read a table as a transaction sees it."""
    condition = None if predicate is None else in_datafusion_words(str(predicate))
    target = transaction.target(table, spark.range(0), engine="spark")
    return cast("SparkRelation", read_relation(target, columns, condition)).frame


def read_snapshot(
    spark: SparkSession,
    snapshot: Snapshot,
    config: Config,
    predicate: object = None,
    *,
    described: bool = False,
) -> DataFrame:
    """Read the rows of a snapshot for which a predicate is true.

    With `described`, the schema tells the comments of columns and, on classic Spark, which are
    never null.
    """
    wanted = in_datafusion_words(predicate) if isinstance(predicate, str) else predicate
    scanned = snapshot.scan(wanted)
    location = snapshot.table.location
    files = LiveFiles(location, snapshot.metadata, scanned.to_read, config.storage)
    frame = scan(spark, files, prune=lambda text: _matching(snapshot, text), required=described)
    if described:
        frame = _commented(frame, snapshot)
    if scanned.predicate is None:
        return frame
    return frame.where(spark_condition(scanned.predicate))


def _commented(frame: DataFrame, snapshot: Snapshot) -> DataFrame:
    """Tell Spark what users wrote about columns; what Delta itself keeps there is left out."""
    told = frame
    for field in snapshot.schema.fields:
        shown = {k: v for k, v in field.metadata.items() if not k.startswith("delta.")}
        if shown:
            told = told.withMetadata(field.name, shown)
    return told


def _matching(snapshot: Snapshot, condition: str) -> pa.ChunkedArray:
    """Return the paths of files that can match a filter of the query."""
    return snapshot.scan(condition).arrow["path"]
