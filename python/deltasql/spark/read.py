"""`deltasql.spark.read`: reads a table as a Spark DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from deltasql.engine.base import FILE, ROW
from deltasql.engine.files.live_files import LiveFiles
from deltasql.engine.spark.scan import scan
from deltasql.engine.spark.schema import quoted
from deltasql.engine.spark.session import require_pyspark
from deltasql.engine.spark.sql import spark_text
from deltasql.model.features.row_tracking import ROW_COMMIT_VERSION, ROW_ID
from deltasql.operations.read import read_relation
from deltasql.operations.row_ids import FIRST_ID, FIRST_VERSION, check_tracked, first_ids
from deltasql.operations.sql.expressions import with_semantics
from deltasql.spark.session import resolve
from deltasql.uri import DeltaSqlUri, is_deltasql_uri, parse_uri

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.config import Config
    from deltasql.engine.spark.engine import SparkRelation
    from deltasql.model.predicates.predicate import Predicate
    from deltasql.snapshot.snapshot import Snapshot


def read(
    spark: SparkSession,
    uri: str | DeltaSqlUri,
    version: int | None = None,
    timestamp: datetime | None = None,
    columns: Sequence[str] | None = None,
    predicate: object = None,
    *,
    row_ids: bool = False,
    transaction: MultiTableTransaction | None = None,
) -> DataFrame:
    """Read a table at its latest version, at an older version, or as of a timestamp.

    `predicate` is SQL or a filter list of deltalake. It is also used for data skipping with the
    statistics in the database, so that fewer files are read than with a filter on the result.

    With `row_ids`, the columns `_row_id` and `_row_commit_version` of a table with row tracking are
    added: the id of each row, and the version of the commit that last changed it.

    Instead of a URI, pass the name or the location of a table in the session's catalog.

    With a transaction, pass a table name instead of a URI. The result has the rows that the
    transaction sees, including its own changes, and can be used until the transaction ends.

        deltasql.spark.read(spark, f"{catalog}?table=sales", predicate="day >= '2024-05-01'")
        deltasql.spark.read(spark, f"{catalog}?table=sales", version=0, columns=["id"])
        with deltasql.begin(catalog) as tx:
            tx.delete("sales", "id = 9")
            deltasql.spark.read(spark, "sales", transaction=tx).count()
    """
    require_pyspark()
    if transaction is not None:
        return _read_staged(spark, transaction, str(uri), columns, predicate, row_ids=row_ids)
    if version is None and timestamp is None and is_deltasql_uri(uri):
        parsed = parse_uri(uri) if isinstance(uri, str) else uri
        version, timestamp = parsed.version, parsed.timestamp
    catalog, name = resolve(spark, uri)
    snapshot = catalog.table(name).snapshot(version, timestamp=timestamp)
    if row_ids:
        frame = _with_ids(spark, snapshot, catalog.config, predicate)
    else:
        frame = read_snapshot(spark, snapshot, catalog.config, predicate)
    if columns is None:
        return frame
    ids = (ROW_ID, ROW_COMMIT_VERSION) if row_ids else ()
    return frame.select(*[quoted(name) for name in (*columns, *ids)])


def _read_staged(
    spark: SparkSession,
    transaction: MultiTableTransaction,
    table: str,
    columns: Sequence[str] | None,
    predicate: object,
    *,
    row_ids: bool,
) -> DataFrame:
    """Read a table as a transaction sees it."""
    target = transaction.target(table, spark.range(0), engine="spark")
    found = read_relation(target, columns, predicate, flavour="spark", row_ids=row_ids)
    return cast("SparkRelation", found).frame


def _with_ids(
    spark: SparkSession, snapshot: Snapshot, config: Config, predicate: object
) -> DataFrame:
    """Return the rows of a snapshot with their ids and commit versions."""
    from pyspark.sql import functions as F

    wanted = None if predicate is None else snapshot.predicate(predicate, flavour="spark")
    scanned = snapshot.scan(wanted)
    files = LiveFiles(snapshot.table.location, snapshot.metadata, scanned.arrow, config.storage)
    check_tracked(files)
    first = F.broadcast(spark.createDataFrame(first_ids(files)))
    row_id, version = (F.col(quoted(each.name)) for each in files.row_columns)
    frame = (
        scan(spark, files.with_row_columns(), positions=True)
        .join(first, FILE)
        .select(
            *(F.col(quoted(name)) for name in files.schema.names),
            F.coalesce(row_id, F.col(FIRST_ID) + F.col(ROW)).alias(ROW_ID),
            F.coalesce(version, F.col(FIRST_VERSION)).alias(ROW_COMMIT_VERSION),
        )
    )
    if scanned.predicate is None:
        return frame
    return frame.where(_spark_condition(scanned.predicate))


def read_snapshot(
    spark: SparkSession,
    snapshot: Snapshot,
    config: Config,
    predicate: object = None,
    *,
    described: bool = False,
) -> DataFrame:
    """Return the rows of a snapshot for which a predicate is true.

    With `described`, the schema has the comments of columns and, on classic Spark, marks columns
    that are not nullable.
    """
    wanted = None if predicate is None else snapshot.predicate(predicate, flavour="spark")
    scanned = snapshot.scan(wanted)
    location = snapshot.table.location
    files = LiveFiles(location, snapshot.metadata, scanned.to_read, config.storage)
    frame = scan(spark, files, prune=lambda text: _matching(snapshot, text), required=described)
    if described:
        frame = _commented(frame, snapshot)
    if scanned.predicate is None:
        return frame
    return frame.where(_spark_condition(scanned.predicate))


def _commented(frame: DataFrame, snapshot: Snapshot) -> DataFrame:
    """Add the column metadata of users to the schema; metadata of Delta (`delta.…`) is left out."""
    found = frame
    for field in snapshot.schema.fields:
        shown = {k: v for k, v in field.metadata.items() if not k.startswith("delta.")}
        if shown:
            found = found.withMetadata(field.name, shown)
    return found


def _matching(snapshot: Snapshot, condition: str) -> pa.ChunkedArray:
    """Return the paths of the files that may match a filter of the query."""
    return snapshot.scan(condition).arrow["path"]


def _spark_condition(predicate: Predicate) -> str:
    """Return the SQL of a predicate for `DataFrame.where`.

    If a timestamp column is compared with a literal without a time zone, the literal is in UTC.
    Data skipping uses UTC too, while Spark would use the time zone of the session.

    >>> from deltasql.model.predicates.predicate import parse_predicate
    >>> from deltasql.model.schema.schema import StructField, StructType
    >>> table = StructType((StructField("at", "timestamp"), StructField("s", "string")))
    >>> _spark_condition(parse_predicate("at < '2024-05-01' AND s = '2024-05-01'", table))
    "`at` < CAST('2024-05-01T00:00:00Z' AS TIMESTAMP_LTZ) AND `s` = '2024-05-01'"
    """
    return spark_text(with_semantics(predicate.expression.copy(), predicate.flavour))
