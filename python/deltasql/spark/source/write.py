"""Writing with `format("deltasql")`: workers write files, the driver commits them once.

Spark creates the writer in one process and commits in another. Both use the same plan: the version
and the metadata that the files are written for, and a folder that only this write uses. Tasks that
are retried or run twice may leave other files there, but the commit contains only the files of the
tasks that Spark counts as successful. The intent for the folder is recorded in the database before
the first file is written.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from deltasql.api.catalog.connect import connect
from deltasql.commit.staged import Staged
from deltasql.engine.choose import open_engine
from deltasql.engine.spark.schema import reject_nanoseconds
from deltasql.exceptions import (
    CommitConflictError,
    InvalidActionError,
    TableChangedError,
    TableExistsError,
    TxnLogConfigError,
    TxnLogEngineError,
    TxnLogSchemaError,
)
from deltasql.model.actions import SetTransaction
from deltasql.model.clock import now_ms
from deltasql.model.schema.convert import schema_from_any
from deltasql.model.schema.schema import StructType
from deltasql.operations.rules.identity import reject_identity
from deltasql.operations.rules.schema_merge import nullable
from deltasql.operations.table_stage import TableStage
from deltasql.operations.write import arrow_of, stage_write
from deltasql.operations.write_request import WriteRequest
from deltasql.storage import join_location, open_storage
from deltasql.storage.deletion import Deletable, delete_data

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType as SparkStruct

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.config import Config
    from deltasql.model.actions import AddFile, Metadata, Protocol
    from deltasql.spark.source.options import SourceOptions
    from deltasql.store.records import TableRow
    from deltasql.uri import DeltaSqlUri


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """The options and the schema of one write."""

    options: SourceOptions = field(repr=False)
    overwrite: bool
    schema: StructType
    schema_mode: str | None
    predicate: str | None
    partition_by: tuple[str, ...] | None
    txn: tuple[str, int] | None
    user_metadata: str | None

    @classmethod
    def of(cls, options: SourceOptions, schema: SparkStruct, *, overwrite: bool) -> WriteSpec:
        """Read the options of a write, and raise if they cannot be combined."""
        predicate = options.text("replaceWhere")
        if predicate is not None and not overwrite:
            raise TxnLogConfigError(
                "replaceWhere cannot be used with an append",
                key="replaceWhere",
                help="Use .mode('overwrite').",
            )
        app_id, version = options.text("txnAppId"), options.number("txnVersion")
        if (app_id is None) != (version is None):
            raise TxnLogConfigError(
                "txnAppId and txnVersion must be used together",
                key="txnVersion" if version is None else "txnAppId",
                help="Give both or neither.",
            )
        replaces_schema = options.flag("overwriteSchema") and overwrite
        schema_mode = "merge" if options.flag("mergeSchema") else None
        partition_by = options.names("partitionBy")
        return cls(
            options=options,
            overwrite=overwrite,
            # Spark marks computed columns as not nullable, which the user did not ask for.
            schema=nullable(schema_from_any(schema), StructType()),
            schema_mode="overwrite" if replaces_schema else schema_mode,
            predicate=predicate,
            partition_by=tuple(partition_by) if partition_by else None,
            txn=None if app_id is None or version is None else (app_id, version),
            user_metadata=options.text("userMetadata"),
        )

    @property
    def uri(self) -> DeltaSqlUri:
        """The URI of the table; variables in it, such as a password, are replaced only here."""
        return self.options.table()

    @property
    def table(self) -> str:
        return str(self.uri.table_name)

    @property
    def task_schema_mode(self) -> str | None:
        """The schema mode for the rows of a task; its table already has the planned columns."""
        return None if self.schema_mode is None else "merge"

    def rows(self) -> pa.RecordBatchReader:
        """Return a reader without rows, with the columns of the data."""
        return pa.RecordBatchReader.from_batches(arrow_of(self.schema), [])


@dataclass(frozen=True, slots=True)
class Plan:
    """The table state that files are written for; the driver creates it, and all tasks use it."""

    txn_id: str
    folder: str
    table: TableRow
    version: int | None
    """The version that the driver read; None for a table that the write creates."""
    metadata: Metadata
    protocol: Protocol
    changes_schema: bool
    is_done: bool = False
    """Whether a write with this `txnAppId` and `txnVersion` is already committed."""

    @classmethod
    def make(cls, catalog: Catalog, spec: WriteSpec) -> Plan:
        """Read the table, apply the schema changes of the write, and record an intent."""
        tx = catalog.begin()
        try:
            exists = tx.has_table(spec.table)
            if not exists:
                _create(tx, spec, spec.uri.location)
            elif tx.snapshot(spec.table).table.is_following:
                catalog.writable(spec.table)  # raises before a worker writes a file
            # Stage a write without rows, so that columns that do not fit raise an error now.
            replaces_schema = spec.schema_mode == "overwrite" and spec.predicate is None
            request = WriteRequest(
                mode="overwrite" if replaces_schema else "append",
                schema_mode="overwrite" if replaces_schema else spec.task_schema_mode,
                predicate=spec.predicate,
                flavour="spark",
                partition_by=spec.partition_by,
            )
            tx.write_rows(spec.table, spec.rows(), request)
            target = tx.target(spec.table)
            reject_nanoseconds(target.schema)
            reject_identity(target.schema, "The data source", "deltasql.spark.write")
            snapshot = tx.snapshot(spec.table) if exists else None
            is_done = False
            if snapshot is not None and spec.txn is not None:
                app_id, app_version = spec.txn
                done = snapshot.transaction_version(app_id)
                is_done = done is not None and done >= app_version
            plan = cls(
                txn_id=str(uuid.uuid4()),
                folder=uuid.uuid4().hex[:12],
                table=target.staged.table,
                version=None if snapshot is None else snapshot.version,
                metadata=target.metadata,
                protocol=target.protocol,
                changes_schema=snapshot is not None and target.metadata != snapshot.metadata,
                is_done=is_done,
            )
        finally:
            tx.rollback()
        if not plan.is_done:
            place = f"{plan.table.location}/{plan.folder}/"
            catalog.store.record_intents(plan.txn_id, plan.table.table_id, [place])
        return plan


@dataclass
class Written(WriterCommitMessage):
    """The files and the number of rows that one task wrote."""

    adds: list[AddFile]
    rows: int


class TableWriter(DataSourceArrowWriter):
    """Writes rows with one task per partition of the DataFrame, and commits them once."""

    def __init__(self, spec: WriteSpec, plan: Plan, config: Config) -> None:
        self.spec, self.plan, self.config = spec, plan, config

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task to the folder; runs in a worker, without the database."""
        first = None if self.plan.is_done else next(iterator, None)
        if first is None:
            return Written([], 0)
        reader = pa.RecordBatchReader.from_batches(first.schema, chain([first], iterator))
        plan, spec = self.plan, self.spec
        place = replace(plan.table, location=join_location(plan.table.location, plan.folder))
        staged = Staged(place, creates=True, metadata=plan.metadata, protocol=plan.protocol)
        with open_engine(self.config, name="duckdb") as engine:
            target = TableStage(
                staged, None, config=self.config, engine=lambda: engine, intend=_skip_intents
            )
            request = WriteRequest(
                predicate=spec.predicate, flavour="spark", schema_mode=spec.task_schema_mode
            )
            metrics = stage_write(target, reader, request)
        if staged.metadata != plan.metadata:
            raise TxnLogSchemaError(
                "the columns of the rows differ from those that the write to "
                f"{plan.table.full_name} was planned with",
                table=plan.table.full_name,
            )
        adds = [replace(add, path=f"{plan.folder}/{add.path}") for add in staged.adds]
        return Written(adds, metrics["num_added_rows"])

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the files of all tasks; runs on the driver."""
        if self.plan.is_done:
            return
        written = [each for each in messages if isinstance(each, Written)]
        adds = [add for each in written for add in each.adds]
        with connect(self.spec.uri, self.config) as catalog:
            try:
                with catalog.begin() as tx, ExitStack() as failing:
                    failing.callback(self._delete, set())
                    self._stage(tx, adds, sum(each.rows for each in written))
                    failing.pop_all()
            except (CommitConflictError, InvalidActionError, TableExistsError):
                self._delete(set())  # these errors prove that nothing was committed
                raise
            self._delete({unquote(add.path) for add in adds})

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the files of the tasks, unless a commit was tried: it may have succeeded.

        The intent is kept, because a task that is still running may write another file.
        """
        if any(message is None for message in messages):
            self._delete(set())

    def _stage(self, tx: MultiTableTransaction, adds: list[AddFile], rows: int) -> None:
        spec, plan = self.spec, self.plan
        tx.written_files.continue_transaction(plan.txn_id, intents=1)  # the folder's intent
        if plan.version is None:
            _create(tx, spec, plan.table.location)
            tx.target(spec.table).staged.table = plan.table
        else:
            table = tx.catalog.table(spec.table)
            if table.row.table_uuid != plan.table.table_uuid:
                raise TableChangedError(
                    f"{spec.table} was replaced by another table while rows were written",
                    table=spec.table,
                )
            tx.pin(spec.table, table.snapshot(plan.version))
        target = tx.target(spec.table)
        if plan.version is None or plan.changes_schema:
            # Use the plan's metadata, because the files have the physical names of its new columns.
            target.change_metadata(plan.metadata, plan.protocol)
        nothing = pa.RecordBatchReader.from_batches(arrow_of(target.schema), [])
        mode = "overwrite" if spec.overwrite else "append"
        request = WriteRequest(mode=mode, predicate=spec.predicate, flavour="spark")
        metrics = tx.write_rows(spec.table, nothing, request)
        if target.staged.cdc:
            raise TxnLogEngineError(
                f"replaceWhere would replace only some rows of a file of {spec.table}, and this "
                "data source cannot write the change data that the table records",
                engine="spark",
                help="Use deltasql.spark.write(df, uri, mode='overwrite', replace_where=…), "
                "which also writes the change data.",
            )
        if adds:
            target.plan().intend([unquote(add.path) for add in adds])
            target.add(adds)
        metrics["num_added_files"] += len(adds)
        metrics["num_added_rows"] = rows
        parameters = target.staged.info.operation_parameters
        target.set_commit_info("WRITE", parameters, metrics)
        txns = [] if spec.txn is None else [SetTransaction(*spec.txn, now_ms())]
        tx.stage_table(spec.table, txns, user_metadata=spec.user_metadata)

    def _delete(self, kept: set[str]) -> None:
        """Delete all files in the folder except those in `kept`."""
        storage = open_storage(self.plan.table.location, self.config.storage)
        folder = f"{self.plan.folder}/"
        found = [info.name for info in storage.list(folder)]
        own = Deletable(storage, partition_columns=None, engine_folders=[folder])
        delete_data(storage, [name for name in found if name not in kept], own)


def _create(tx: MultiTableTransaction, spec: WriteSpec, location: str | None) -> None:
    tx.create_missing(
        spec.table, spec.schema, location=location, partition_by=list(spec.partition_by or ())
    )


def _skip_intents(staged: Staged, names: list[str]) -> None:
    """Do nothing, because the driver has recorded the intent for the folder."""
