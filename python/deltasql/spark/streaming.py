"""`stream_writer`: commits each micro-batch of a stream exactly once, to any number of tables.

After a crash between our commit and Spark's checkpoint, Spark repeats the batch, because it does
not know that the batch was committed. The batch id is therefore part of the commit, in the same SQL
transaction as the rows of every table. A batch whose id is already recorded is skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from deltasql import telemetry
from deltasql.api.catalog.catalog import Catalog
from deltasql.api.catalog.connect import shared
from deltasql.engine.spark.session import require_pyspark
from deltasql.exceptions import CommitConflictError, TxnLogConfigError
from deltasql.model.actions import SetTransaction
from deltasql.model.clock import now_ms
from deltasql.spark.session import catalog_of, open_catalog, required_catalog, target_of_uri
from deltasql.uri import DeltaSqlUri, is_deltasql_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.config import Config

_log = logging.getLogger(__name__)
_ATTEMPTS = 3

Each: TypeAlias = "Callable[[MultiTableTransaction, DataFrame, int], object]"
"""A user's function for a batch: everything that it stages becomes one commit."""
Part: TypeAlias = "Callable[[DataFrame], DataFrame] | None"
"""Selects the rows of a batch for a table; None selects all rows."""


def stream_writer(
    tables: str | Mapping[str, Part] | Each,
    *,
    app_id: str,
    catalog: str | DeltaSqlUri | Catalog | None = None,
    persist: bool | None = None,
    attempts: int = _ATTEMPTS,
    **write: Any,
) -> StreamWriter:
    """Return a function for `writeStream.foreachBatch` that commits each batch exactly once.

    `tables` has one of three forms:

    - the name or URI of a table
    - a mapping from table names to functions, which take the batch and return the rows for that
      table; None instead of a function means all rows
    - a function `each(tx, df, batch_id)` that stages changes in the transaction `tx`

    `write` contains arguments of `tx.write` for the first two forms, such as `schema_mode="merge"`.

    `app_id` is the name of the stream and belongs to one checkpoint. Another checkpoint needs
    another name, because its batch ids start at 0 again. `catalog` is by default the session's
    catalog. With `persist`, a batch is computed once and cached while it is written; this is the
    default for several tables and for a function. A batch that conflicts with another writer is
    tried up to `attempts` times.

        write = deltasql.spark.stream_writer(
            {"good": lambda df: df.where("id > 0"), "bad": lambda df: df.where("id <= 0")},
            app_id="sales",
            catalog=catalog,
        )
        stream = spark.readStream.format("rate").load().selectExpr("value AS id")
        query = stream.writeStream.foreachBatch(write)  # .option("checkpointLocation", …).start()
    """
    require_pyspark()
    if not app_id:
        raise TxnLogConfigError(
            "a stream needs an app_id",
            key="app_id",
            help="Name the stream, for example app_id='orders'. Keep the name with its checkpoint.",
        )
    if callable(tables) and write:
        raise TxnLogConfigError(
            f"{', '.join(sorted(write))} cannot be given with a function",
            help="Give these arguments to tx.write inside the function.",
        )
    known = _sessions_catalog() if catalog is None else catalog
    return StreamWriter(tables, app_id, known, persist, max(1, attempts), write)


def _sessions_catalog() -> Catalog | None:
    """Return the session's catalog now: the stream runs in a copy of the session without it."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    return None if session is None else catalog_of(session)


@dataclass(frozen=True, slots=True)
class _CatalogAddress:
    """The URI and the configuration with which another process opens a catalog."""

    uri: DeltaSqlUri
    config: Config


@dataclass(slots=True)
class StreamWriter:
    """Commits a micro-batch in each call."""

    tables: str | Mapping[str, Part] | Each
    app_id: str
    catalog: str | DeltaSqlUri | Catalog | _CatalogAddress | None = field(repr=False, default=None)
    persist: bool | None = None
    attempts: int = _ATTEMPTS
    write: Mapping[str, Any] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        # With Spark Connect, this object runs on the server, which opens the catalog itself.
        place: object = self.catalog
        if isinstance(self.catalog, Catalog):
            if self.catalog.uri.is_memory:
                raise TxnLogConfigError(
                    f"{self.catalog.uri} is in the memory of this process: a stream in another "
                    "process cannot write to it",
                    key="catalog",
                    help="Use a catalog in PostgreSQL, or in a file that both processes can open.",
                )
            place = _CatalogAddress(self.catalog.uri, self.catalog.config)
        given = (self.tables, self.app_id, place, self.persist, self.attempts, self.write)
        return StreamWriter, given

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        catalog = self._catalog(df)
        if self._is_done(catalog, batch_id):
            return
        with self._computed_once(df):
            for attempt in range(1, self.attempts + 1):
                try:
                    self._commit(catalog, df, batch_id)
                except CommitConflictError:
                    # An earlier driver of the stream may still run and have committed this batch.
                    if self._is_done(catalog, batch_id):
                        return
                    if attempt == self.attempts:
                        raise
                else:
                    return

    def _commit(self, catalog: Catalog, df: DataFrame, batch_id: int) -> None:
        with catalog.begin() as tx:
            self._stage(tx, df, batch_id)
            for table in tx.tables:
                # The snapshot shows whether the batch is committed; a later commit is a conflict.
                if not tx.creates(table) and self._has(tx, table, batch_id):
                    tx.rollback()
                    return
                tx.stage_table(table, [SetTransaction(self.app_id, batch_id, now_ms())])
        telemetry.log(
            _log, logging.INFO, "batch committed", app_id=self.app_id, batch=batch_id, **tx.versions
        )

    def _stage(self, tx: MultiTableTransaction, df: DataFrame, batch_id: int) -> None:
        if callable(self.tables):
            self.tables(tx, df, batch_id)
            return
        for name, part in self._parts().items():
            tx.write(name, df if part is None else part(df), **self.write)

    def _parts(self) -> Mapping[str, Part]:
        if isinstance(self.tables, str):
            is_uri = is_deltasql_uri(self.tables)
            return {target_of_uri(self.tables)[1] if is_uri else self.tables: None}
        assert isinstance(self.tables, Mapping)
        return self.tables

    def _has(self, tx: MultiTableTransaction, table: str, batch_id: int) -> bool:
        done = tx.snapshot(table).transaction_version(self.app_id)
        return done is not None and done >= batch_id

    def _is_done(self, catalog: Catalog, batch_id: int) -> bool:
        """Return whether the batch is in any table; its rows may decide which tables it changes."""
        [[done]] = catalog.store.query("txn_version_in_catalog", app_id=self.app_id)
        if done is None or done < batch_id:
            return False
        telemetry.log(
            _log, logging.INFO, "committed batch skipped", app_id=self.app_id, batch=batch_id
        )
        return True

    def _catalog(self, df: DataFrame) -> Catalog:
        if isinstance(self.tables, str) and is_deltasql_uri(self.tables):
            return target_of_uri(self.tables)[0]
        if isinstance(self.catalog, _CatalogAddress):
            # A file on the sender's machine may not exist here, so do not create a new catalog.
            sent = shared(self.catalog.uri, self.catalog.config)
            sent.store.check_exists()
            return sent
        if self.catalog is not None:
            catalog = open_catalog(self.catalog)
        else:
            catalog = required_catalog(df.sparkSession, f"the tables of the stream {self.app_id}")
        catalog.store.create()
        return catalog

    @contextmanager
    def _computed_once(self, df: DataFrame) -> Iterator[None]:
        several = callable(self.tables) or len(self._parts()) > 1
        if not (several if self.persist is None else self.persist):
            yield
            return
        df.persist()
        try:
            yield
        finally:
            df.unpersist()
