"""`deltasql.spark.write`: writes a Spark DataFrame to a table in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.api.catalog.connect import open_for_writing
from deltasql.api.deltalake_compat.create import table_properties
from deltasql.engine.inputs import is_spark_frame
from deltasql.engine.spark.session import require_pyspark
from deltasql.exceptions import TxnLogEngineError
from deltasql.operations.write_request import WriteRequest
from deltasql.spark.session import new_table_target
from deltasql.uri import is_deltasql_uri

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import CommitProperties
    from pyspark.sql import DataFrame

    from deltasql.engine.base import WriteOptions
    from deltasql.uri import DeltaSqlUri


def write(
    df: DataFrame,
    uri: str | DeltaSqlUri,
    mode: str = "append",
    partition_by: Sequence[str] | str | None = None,
    schema_mode: str | None = None,
    replace_where: str | None = None,
    *,
    properties: Mapping[str, str | None] | None = None,
    description: str | None = None,
    app_id: str | None = None,
    app_version: int | None = None,
    user_metadata: str | None = None,
    options: WriteOptions | None = None,
) -> int | None:
    """Write rows and return the version of the commit, or None if nothing was committed.

    Instead of a URI, pass the name of a table in the session's catalog.

    `mode` is append, overwrite, error or ignore. A table that does not exist is created with
    `properties`. `schema_mode` is merge or overwrite. With the mode overwrite, `replace_where`
    selects the rows to replace. With `app_id` and `app_version`, a write that was already
    committed is skipped, so that it can be repeated after a crash.

        deltasql.spark.write(sales, f"{catalog}?table=copy", partition_by="day")
        deltasql.spark.write(
            sales, f"{catalog}?table=copy", mode="overwrite", replace_where="day = '2024-05-01'"
        )
        deltasql.spark.write(sales, f"{catalog}?table=copy", app_id="nightly", app_version=1)
    """
    require_pyspark()
    if not is_spark_frame(df):
        raise TxnLogEngineError(
            f"expected a Spark DataFrame, got {type(df).__name__}",
            engine="spark",
            help="Use deltasql.write_deltalake for Arrow, pandas and polars.",
        )
    if isinstance(uri, str) and not is_deltasql_uri(uri):
        catalog, table, location = new_table_target(df.sparkSession, uri)
    else:
        parsed, catalog, table = open_for_writing(uri, None)
        location = parsed.location
    with catalog.begin() as tx:
        exists = tx.has_table(table)
        if app_id is not None and app_version is not None and exists:
            done = tx.snapshot(table).transaction_version(app_id)
            if done is not None and done >= app_version:
                return None
        request = WriteRequest(
            mode=mode,
            schema_mode=schema_mode,
            predicate=replace_where,
            flavour="spark",
            partition_by=partition_by,
            options=options,
            location=location,
            properties=None if exists else table_properties(properties, strict=False),
            description=description,
        )
        tx.write_rows(table, df, request)
        tx.set_commit_properties(table, _commit_properties(app_id, app_version, user_metadata))
    return tx.versions.get(table)


def _commit_properties(
    app_id: str | None, app_version: int | None, user_metadata: str | None
) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    known = app_id is not None and app_version is not None
    return CommitProperties(
        custom_metadata=None if user_metadata is None else {"userMetadata": user_metadata},
        app_transactions=[Transaction(str(app_id), int(app_version or 0))] if known else None,
    )
