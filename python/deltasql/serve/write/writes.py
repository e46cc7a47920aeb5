"""Requests that write: begin a transaction, commit the files that Spark wrote, or abort.

A write is a transaction with one table. Its id is the transaction id of the commit. A client that
lost the response to a commit sends the commit again. The service then has the response in memory,
or looks up the id in the database. So the files are never added twice.

A write in a transaction over several statements has an id of its own, and its commit only stages
the files.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from deltasql.engine.parquet.file_shape import file_shape
from deltasql.engine.parquet.partitions import partition_text
from deltasql.engine.parquet.writer import escape_name
from deltasql.engine.spark.file_columns import stored_field
from deltasql.engine.spark.session_copy import QUERY_SETTINGS
from deltasql.engine.spark.sql import spark_text
from deltasql.engine.spark.write import parquet_options
from deltasql.exceptions import (
    CommitConflictError,
    TableExistsError,
    TransactionClosedError,
    TxnLogConfigError,
)
from deltasql.model.clock import Stopwatch
from deltasql.model.partition_values import parse_partition_value
from deltasql.model.schema.convert import schema_from_spark
from deltasql.model.schema.identity import identity_columns
from deltasql.model.schema.schema import StructType, column_mapping_mode
from deltasql.operations.alter.cluster_by import cluster_by
from deltasql.operations.create import record_create, replace_table
from deltasql.operations.deletion_vectors import can_mark_any_file
from deltasql.operations.external_writes.files import (
    Overwrite,
    WrittenFile,
    new_folder,
    reject_materialized,
    reject_nested_ids,
    reject_row_tracking,
    reject_unchecked_rules,
    stage_written,
)
from deltasql.operations.external_writes.rows import RowsWritten, stage_rows
from deltasql.operations.rules.identity import (
    given_value_error,
    reject_identity,
    updated_value_error,
)
from deltasql.operations.rules.row_checks import (
    broken_condition,
    generated_value,
    help_of,
    reject_append_only,
    rules_of,
)
from deltasql.operations.sql.expressions import condition_of as as_condition
from deltasql.operations.table_stage import adds_table_to_errors
from deltasql.serve.errors import described_error
from deltasql.serve.names import snapshot_of, table_name
from deltasql.serve.read.filters import condition_of, skipping_condition
from deltasql.serve.tables import (
    reject_types_that_spark_lacks,
    shown_schema,
    unchanged_stage,
)
from deltasql.serve.write.row_changes import change_plan, operation_parameters, rows_written
from deltasql.serve.write.stream_writes import StreamBatch, replace_latest, stream_positions
from deltasql.storage import absolute_location
from deltasql.storage.location import address_url, root_address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import exp

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.model.schema.schema import DataType
    from deltasql.operations.table_stage import TableStage
    from deltasql.serve.transactions import Transactions


@dataclass(slots=True)
class _Write:
    """One transaction, from `write_begin` until the service ends."""

    table: str
    folder: str
    operation: str
    """The operation that the commit records; UPDATE, DELETE or MERGE if rows change."""
    tx: MultiTableTransaction | None
    """The open transaction; None after its end."""
    is_part: bool = False
    """Whether the transaction has other statements, too."""
    overwrite: Mapping[str, Any] | None = None
    """The rows to replace, if the client checks that the new rows match the condition."""
    clock: Stopwatch = field(default_factory=Stopwatch)
    response: dict[str, Any] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_REMEMBERED = 10_000
"""How many writes a service remembers; older ones are looked up in the database."""


class Writes:
    """The writes of a service, by transaction id."""

    def __init__(self, catalog: Catalog, transactions: Transactions) -> None:
        self._catalog, self._transactions = catalog, transactions
        self._writes: dict[str, _Write] = {}

    def begin(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a write to a table, or to a table that the commit creates or replaces."""
        with self._transactions.joined(body) as shared:
            return self._begin(body, shared)

    def _begin(
        self, body: Mapping[str, Any], shared: MultiTableTransaction | None
    ) -> dict[str, Any]:
        name = table_name(body)
        tx = shared or self._catalog.begin(one_table=True)
        try:
            create = body.get("create")
            if create is not None:
                if shared is not None and create["mode"] != "create" and tx.has_table(name):
                    # Hold the files first: this may read a later version of the table. The rows
                    # must come from the same version that the statement replaces.
                    before = tx.target_to_change(name)
                    replaced = before.live(before.files())
                    self._transactions.keep_replaced(tx, name, replaced)
                operation = _stage_create(self._catalog, tx, name, create)
            else:
                if not tx.creates(name):
                    self._catalog.writable(name)
                if shared is None:
                    tx.pin(name, snapshot_of(self._catalog, body))
                operation = str(body.get("command", "WRITE"))
                if operation != "WRITE" or body.get("overwrite") is not None:
                    tx.target_to_change(name)
            stage = unchanged_stage(tx, body)
            reject_types_that_spark_lacks(stage.schema)
            if operation != "DELETE" and not body.get("reserves_numbers"):
                reject_identity(stage.schema, "This client", "the jar of this release")
            if not body.get("checks_rules"):
                reject_unchecked_rules(stage)
            reject_materialized(stage)
            reject_nested_ids(stage)
            positions = stream_positions(stage, body)
            folder = new_folder(stage)
            overwrite = body.get("overwrite")
            plan = _write_plan(stage, folder, overwrite)
            if operation != "DELETE":
                plan["identity"] = _identity_plan(stage)
            if body.get("command") is not None:
                reject_append_only(stage)
                if not body.get("keeps_row_ids"):
                    reject_row_tracking(stage)
                plan["row_columns"] = _row_columns(stage)
                plan["change_data"] = change_plan(stage, folder)
                plan["marks_rows"] = can_mark_any_file(stage)
        except BaseException:
            if shared is None:
                tx.rollback()
            raise
        self._forget_oldest()
        write_id = tx.txn_id if shared is None else str(uuid.uuid4())
        is_part = shared is not None
        self._writes[write_id] = _Write(name, folder, operation, tx, is_part, overwrite)
        return {"txn_id": write_id, **plan, **positions}

    def commit(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Commit the files of a write; a second request gets the response of the first."""
        with self._transactions.joined(body) as shared:
            return self._commit(body, shared)

    def _commit(
        self, body: Mapping[str, Any], shared: MultiTableTransaction | None
    ) -> dict[str, Any]:
        txn_id = str(body["txn_id"])
        write = self._writes.get(txn_id)
        if write is None:
            return self._committed_before(txn_id, table_name(body))
        with write.lock:
            if write.response is not None:
                return write.response
            if write.tx is None:
                return self._committed_before(txn_id, write.table)
            if write.is_part and shared is not write.tx:
                raise _not_committed(write.table, txn_id)
            tx, write.tx = write.tx, None
            try:
                batch = StreamBatch.of(body)
                if batch is not None and body.get("overwrite") == {}:
                    tx.target_to_change(write.table)
                    replace_latest(tx, write.table, self._catalog.table(write.table).snapshot())
                if batch is not None and batch.needs_no_commit(tx, write.table, body):
                    tx.rollback()
                    write.response = {"version": None}
                    return write.response
                _stage_files(tx, write, body)
                if batch is not None:
                    tx.stage_table(write.table, [batch.action()])
            except BaseException:
                if shared is None:
                    tx.rollback()
                raise
            try:
                versions = tx.commit() if shared is None else {}
                if shared is not None:
                    self._transactions.forget_replaced(shared, write.table)
            except CommitConflictError:
                # An earlier driver of the stream may still run and have committed this batch.
                if batch is None or not batch.is_in(self._catalog.table(write.table).snapshot()):
                    raise
                versions = {}
            write.response = {"version": versions.get(write.table)}
            return write.response

    def reserve_numbers(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Reserve a range of identity values for the rows of a write; return the first value."""
        with self._transactions.joined(body):
            txn_id = str(body["txn_id"])
            write = self._writes.get(txn_id)
            if write is None:
                raise _not_committed(str(body.get("name")), txn_id)
            with write.lock:
                if write.tx is None:
                    raise _not_committed(write.table, txn_id)
                stage = write.tx.target(write.table)
                first = stage.reserve_numbers(str(body["column"]), int(body["count"]))
        return {"first": first}

    def abort(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Roll back a write and delete its files; a write that ended is left as it is."""
        write = self._writes.get(str(body["txn_id"]))
        if write is not None:
            with write.lock:
                if write.tx is not None:
                    tx, write.tx = write.tx, None
                    if write.is_part:
                        self._transactions.fail(tx)
                    else:
                        tx.rollback()
        return {}

    def close(self) -> None:
        """Roll back all open writes."""
        for txn_id in list(self._writes):
            self.abort({"txn_id": txn_id})

    def _forget_oldest(self) -> None:
        if len(self._writes) < _REMEMBERED:
            return
        ended = (txn_id for txn_id, write in list(self._writes.items()) if write.tx is None)
        oldest = next(ended, None)
        if oldest is not None:
            self._writes.pop(oldest, None)

    def _committed_before(self, txn_id: str, table: str) -> dict[str, Any]:
        """Look up a transaction that this service does not have, or whose commit failed."""
        store = self._catalog.store
        rows = store.query("group_members", txn_id=txn_id)
        if not rows and self._catalog.exists(table):
            # The lock makes this wait until a running commit to the table has ended.
            with store.change([self._catalog.resolve(table, fresh=True).table_id]) as (session, _):
                rows = session.query("group_members", txn_id=txn_id)
        if not rows:
            raise _not_committed(table, txn_id)
        return {"version": rows[0][2]}


def _not_committed(table: str, txn_id: str) -> TransactionClosedError:
    return TransactionClosedError(
        f"the write to {table} was not committed: its transaction ended before",
        txn_id=txn_id,
        help="Run the statement again.",
    )


def _stage_create(
    catalog: Catalog, tx: MultiTableTransaction, name: str, create: Mapping[str, Any]
) -> str:
    """Stage the creation or the replacement of a table; return the operation for its commit."""
    mode = create["mode"]
    schema = schema_from_spark(create["schema"])
    reject_types_that_spark_lacks(schema)
    location, properties = create.get("location"), dict(create.get("properties") or {})
    partitions, clusters = create.get("partition_by") or [], create.get("cluster_by") or []
    checks = create.get("constraints")
    if not tx.has_table(name):
        if mode == "replace":
            catalog.resolve(name, fresh=True)  # raises
        tx.create_table(
            name,
            schema,
            location=location,
            partition_by=partitions,
            properties=properties,
            description=create.get("comment"),
            cluster_by=clusters,
        )
        if checks:
            tx.add_constraint(name, checks)
            record_create(tx.target(name), "ErrorIfExists")
        return "CREATE TABLE AS SELECT"
    if mode == "create":
        raise TableExistsError(f"table {name} already exists", table=name)
    catalog.writable(name)
    stage = tx.target_to_change(name)
    if location is not None and absolute_location(location) != stage.location:
        raise TxnLogConfigError(
            f"{name} cannot move to {location}: its files are in {stage.location}",
            key="location",
            help="Leave out LOCATION, or drop the table and create it again.",
        )
    replace_table(stage, schema, partitions, properties, description=create.get("comment"))
    if clusters:
        cluster_by(stage, clusters)
    if checks:
        tx.add_constraint(name, checks)
    record_create(stage, "CreateOrReplace", replaces=True)
    return "CREATE OR REPLACE TABLE AS SELECT"


def _write_plan(
    stage: TableStage, folder: str, overwrite: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return where and how Spark writes files of the table."""
    plan, mode = stage.plan(), column_mapping_mode(stage.configuration)
    stored = [f for f in stage.schema.fields if f.name not in stage.partition_columns]
    return {
        "folder": address_url(f"{root_address(stage.location).rstrip('/')}/{folder}"),
        "schema": shown_schema(stage.schema).to_json(),
        "stored_schema": StructType(tuple(stored_field(each, mode) for each in stored)).to_json(),
        "partition_columns": list(stage.partition_columns),
        "partition_folders": [
            escape_name(field.physical_name(mode))
            for name in stage.partition_columns
            if (field := stage.schema.find(name)) is not None
        ],
        "options": parquet_options(plan, file_shape(plan)),
        "rules": _rules_plan(stage, overwrite),
    }


def _identity_plan(stage: TableStage) -> list[dict[str, Any]]:
    """Return the identity columns, and the errors that a client must raise for invalid rows."""
    return [
        {
            "column": name,
            "step": identity.step,
            "given": None
            if identity.allows_explicit
            else described_error(given_value_error(stage.name, name)),
            "updated": described_error(updated_value_error(name)),
        }
        for name, identity in identity_columns(stage.schema).items()
    ]


def _row_columns(stage: TableStage) -> str:
    """Return the columns that files have for the ids of rows; none without row tracking."""
    mode = column_mapping_mode(stage.configuration)
    return StructType(tuple(stored_field(each, mode) for each in stage.row_columns)).to_json()


def _stage_files(tx: MultiTableTransaction, write: _Write, body: Mapping[str, Any]) -> None:
    stage = tx.target(write.table)
    if body.get("files") is None:
        return  # CREATE TABLE without rows
    files = _written_files(stage, body["files"])
    reads = [skipping_condition(each["filters"]) for each in body.get("reads", ())]
    parameters = operation_parameters(body.get("statement"), stage.schema.names)
    rows = body.get("rows")
    if rows is not None:
        changes = _written_files(stage, rows["change_data"])
        written = rows_written(write.operation, write.folder, files, changes, rows, reads)
        stage_rows(stage, written, parameters, write.clock)
        return
    if "mergePredicate" in parameters:  # Spark plans a MERGE that only inserts as an append
        written = RowsWritten("MERGE", write.folder, files, (), reads=reads)
        stage_rows(stage, written, parameters, write.clock)
        return
    overwrite = body.get("overwrite")
    wanted = None
    if overwrite is not None:
        wanted = Overwrite(
            predicate=condition_of(overwrite.get("filters") or ()),
            same_partitions=bool(overwrite.get("same_partitions")),
            rows_match=overwrite == write.overwrite,
        )
    stage_written(stage, write.folder, files, wanted, operation=write.operation, reads=reads)


def _written_files(stage: TableStage, files: Sequence[Mapping[str, Any]]) -> list[WrittenFile]:
    """Return the files of a request, with partition values as the log has them."""
    found = []
    for each in files:
        partition = {}
        for name, text in zip(stage.partition_columns, each.get("partition") or (), strict=True):
            column = stage.schema.find(name)
            assert column is not None
            partition[name] = partition_text(_partition_value(text, column.type))
        found.append(WrittenFile(str(each["name"]), partition))
    return found


def _partition_value(text: str | None, data_type: DataType) -> Any:
    """Parse a partition value of a request: a string, in which dates and timestamps are numbers."""
    if text is None or data_type not in ("date", "timestamp", "timestamp_ntz"):
        return parse_partition_value(text, data_type)
    if data_type == "date":
        return date(1970, 1, 1) + timedelta(days=int(text))
    zone = UTC if data_type == "timestamp" else None
    return datetime(1970, 1, 1, tzinfo=zone) + timedelta(microseconds=int(text))


@adds_table_to_errors
def _rules_plan(stage: TableStage, overwrite: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return how a client computes generated columns and finds rows that break a rule.

    A row that does not match the condition of the overwrite also breaks a rule. Return None if
    there are no rules, or NOT NULL only, which Spark checks itself.
    """
    rules, wanted = rules_of(stage), _row_condition(stage, overwrite)
    if not (rules.conditions or rules.generated or wanted is not None):
        return None
    broken = broken_condition(rules, wanted)
    assert broken is not None
    advice = help_of(rules)
    if wanted is not None:
        advice = f"New rows must match the condition of the overwrite. {advice}"
    return {
        "settings": QUERY_SETTINGS,
        "generated": {
            name: spark_text(generated_value(stage.schema, rules, name)) for name in rules.generated
        },
        "broken": spark_text(broken.copy()),
        "help": advice,
    }


def _row_condition(stage: TableStage, overwrite: Mapping[str, Any] | None) -> exp.Expr | None:
    """Return the condition of an overwrite, unless the partition of a file decides it."""
    text = None if overwrite is None else condition_of(overwrite.get("filters") or ())
    if text is None:
        return None
    predicate = stage.predicate(text, flavour="spark")
    return None if predicate.partition_only else as_condition(predicate)
