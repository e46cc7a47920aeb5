"""MultiTableTransaction: stage changes to any number of tables, and commit them atomically."""

from __future__ import annotations

import logging
import uuid
import warnings
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from deltasql import telemetry
from deltasql.api.transaction.commit_properties import check_hooks
from deltasql.api.transaction.staging import Staging, WrittenFiles
from deltasql.engine.inputs import is_rows
from deltasql.exceptions import TransactionClosedError
from deltasql.mirror.publish.write_commit import PostCommit
from deltasql.model.actions import CommitInfo
from deltasql.model.schema.convert import schema_from_any
from deltasql.model.schema.schema import DataType, StructType
from deltasql.operations.alter import columns as columns_of_table
from deltasql.operations.alter import features
from deltasql.operations.alter import fence as fences
from deltasql.operations.alter import properties as table_properties
from deltasql.operations.write_request import WriteRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from types import TracebackType

    import pyarrow as pa
    from deltalake import CommitProperties, PostCommitHookProperties

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.api.catalog.mirror import Mirror
    from deltasql.api.transaction.merger import Merger
    from deltasql.commit.staged import ReadSet
    from deltasql.engine.base import WriteOptions
    from deltasql.model.predicates.parser import Flavour
    from deltasql.model.progress import OnProgress
    from deltasql.model.statements.parameters import Parameters
    from deltasql.operations.clone.clone import CloneReport
    from deltasql.operations.table_stage import TableStage
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.verify.report import DataChecks, DataReport

_log = logging.getLogger(__name__)


class MultiTableTransaction:
    """A transaction over any number of tables: it commits all changes or none.

    The commit runs when the `with` block ends without an error. Without `with`, call `commit` or
    `rollback`; if neither is called, nothing is committed, and a ResourceWarning and a log message
    say so. No table is locked before the commit, and others see no change until it is ratified.
    With `one_table`, the transaction uses only one table, and does not look up the versions of the
    other tables.

    >>> import tempfile, deltasql, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"deltasql://sqlite/{folder.name}/catalog.db"
    >>> with deltasql.begin(uri) as tx:
    ...     metrics = tx.write("stock", pa.table({"sku": ["pen"], "left": [9]}))
    >>> with deltasql.begin(uri) as tx:
    ...     metrics = tx.write("orders", pa.table({"sku": ["pen"]}))
    ...     metrics = tx.update("stock", {"left": "left - 1"}, predicate="sku = 'pen'")
    ...     tx.read("stock").to_pylist()  # includes the changes of this transaction
    [{'sku': 'pen', 'left': 8}]
    >>> tx.versions
    {'orders': 0, 'stock': 1}
    """

    def __init__(self, catalog: BaseCatalog, mirror: Mirror, *, one_table: bool = False) -> None:
        self.catalog, self._mirror = catalog, mirror
        self.versions: dict[str, int] = {}
        self.written_files = WrittenFiles(catalog, str(uuid.uuid4()))
        self._staging = Staging(catalog, self.written_files, one_table=one_table)
        self._post_commit = PostCommit()
        self._state = "open"

    def __repr__(self) -> str:
        return (
            f"MultiTableTransaction({self.txn_id!r}, {self._state}, tables={self._staging.names})"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None and self._state == "open":
            self.commit()
        elif self._state == "open":
            self.rollback()

    def __del__(self) -> None:
        """Warn about changes that were neither committed nor rolled back; they are lost."""
        if getattr(self, "_state", "") != "open" or not self.tables:
            return
        tables = ", ".join(self.tables)
        with suppress(Exception):  # logging may not work any more when the process ends
            telemetry.log(
                _log,
                logging.WARNING,
                "transaction not committed",
                txn_id=self.txn_id,
                tables=tables,
            )
        warnings.warn(
            f"the transaction {self.txn_id} was neither committed nor rolled back: its changes to "
            f"{tables} are lost. Use `with deltasql.begin(…) as tx:`, or call tx.commit().",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )

    @property
    def txn_id(self) -> str:
        """The id of the transaction, which its commits record."""
        return self.written_files.txn_id

    @property
    def _open(self) -> Staging:
        """The staging area; raises TransactionClosedError after the end of the transaction."""
        if self._state != "open":
            raise TransactionClosedError(
                f"this transaction is {self._state}",
                txn_id=self.txn_id,
                help="Start another one with deltasql.begin().",
            )
        return self._staging

    # The end of the transaction

    def commit(self) -> dict[str, int]:
        """Ratify all staged changes and publish them; returns the new versions by table name."""
        changes = self._open.changes()
        self._state = "failed"
        try:
            ratified = self._staging.ratify([*changes.values()])
        finally:
            self._end()
        self._state = "committed"
        self.written_files.discard_superseded(changes.values())
        self.versions = {name: each.version for name, each in zip(changes, ratified, strict=True)}
        self._mirror.after_commit(ratified, self._post_commit)
        return self.versions

    def rollback(self) -> None:
        """Discard all staged changes, and delete the data files that were written for them."""
        self._open.clear()
        self._state = "rolled back"
        self._end()
        self.written_files.discard()

    def _end(self) -> None:
        self._staging.close_engines()
        self._staging.release_files()

    def set_commit_properties(self, table: str, properties: CommitProperties | None) -> None:
        """Apply deltalake's CommitProperties: custom metadata and application transactions.

        They belong to the changes that are staged for the table. As in deltalake, they have no
        effect on a table without changes.
        """
        self._staging.set_commit_properties(table, properties)

    def set_post_commit(self, properties: PostCommitHookProperties | None) -> None:
        """Apply deltalake's PostCommitHookProperties: checkpoint and log cleanup after commit."""
        if properties is None:
            self._post_commit = PostCommit(counts_commits=True)
        else:
            check_hooks(properties)
            self._post_commit = PostCommit(
                properties.create_checkpoint, properties.cleanup_expired_logs, counts_commits=True
            )

    # Tables

    @property
    def tables(self) -> list[str]:
        """The tables that the commit would change, by the names that the caller used for them."""
        return [*self._staging.changes()]

    def creates(self, table: str) -> bool:
        """Return whether this transaction creates the table."""
        return self._staging.creates(table)

    def has_table(self, table: str) -> bool:
        """Return whether the transaction sees the table, or creates it."""
        return self._open.has_table(table)

    def snapshot(self, table: str) -> Snapshot:
        """Return the table as this transaction sees it: the same version at every call.

        All tables are seen as they were at the first read of any table.
        """
        self._open.was_read = True
        return self._open.snapshot(table)

    def pin(self, table: str, snapshot: Snapshot) -> None:
        """Read this snapshot of a table; the commit checks later commits for conflicts."""
        self._open.was_read = True
        self._open.pin(table, snapshot)

    def target(self, table: str, data: object = None, *, engine: str | None = None) -> TableStage:
        """Return a table for an operation, with the changes that are staged so far.

        The operation runs on the engine named `engine`, by default on the engine for `data`.
        """
        return self._open.target(table, data, engine=engine)

    def target_to_change(
        self, table: str, data: object = None, *, engine: str | None = None
    ) -> TableStage:
        """Return a table for an operation that changes rows, and prevent its auto compaction."""
        self._open.hold_files(table)
        return self._open.target(table, data, engine=engine)

    def create_table(
        self,
        name: str,
        schema: object,
        *,
        location: str | None = None,
        partition_by: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        title: str | None = None,
        cluster_by: Sequence[str] = (),
        allow_nested_location: bool = False,
    ) -> None:
        """Stage a new table: the commit creates it.

        `title` is the name in the table's metadata, by default the name of the table. OPTIMIZE
        sorts rows by the columns of `cluster_by`, so that rows with similar values are in the same
        files. With `allow_nested_location`, the location may be inside another table's folder, or
        contain one.
        """
        self._open.create(
            name,
            schema,
            location=location,
            partition_by=partition_by,
            properties=properties,
            description=description,
            title=title,
            cluster_by=cluster_by,
            allow_nested_location=allow_nested_location,
        )

    def create_missing(self, name: str, schema: object, **options: Any) -> None:
        """Stage a new table for a write that could also go to an existing table.

        The options are those of `create_table`. If another commit creates the table first, the two
        commits conflict, like two writes to an existing table.
        """
        self._open.create_missing(name, schema, **options)

    def clone(
        self,
        source: str,
        target: str,
        *,
        shallow: bool = False,
        version: int | None = None,
        timestamp: datetime | None = None,
        replace: bool = False,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        on_progress: OnProgress | None = None,
    ) -> CloneReport:
        """Stage a new table with the rows, schema and properties of a version of another table.

        A deep clone copies the data files. A `shallow` clone refers to the files of the source. A
        vacuum of the source in this catalog keeps them, but other programs may delete them. With
        `replace`, the clone replaces an existing table, which keeps its history. `properties`
        overwrite those of the source. `on_progress` is called with a `Progress` that counts copied
        files.
        """
        from deltasql.api.transaction.definition import clone_table  # lazy import: few are cloned

        return clone_table(
            self,
            source,
            target,
            shallow=shallow,
            version=version,
            timestamp=timestamp,
            replaces=replace,
            location=location,
            properties=properties or {},
            on_progress=on_progress,
        )

    def stage_table(
        self,
        table: str,
        actions: object,
        *,
        read_version: int | None = None,
        reads: ReadSet | None = None,
        operation: str | None = None,
        operation_parameters: Mapping[str, Any] | None = None,
        operation_metrics: Mapping[str, Any] | None = None,
        user_metadata: str | None = None,
    ) -> None:
        """Stage Delta actions for a table.

        `actions` are deltasql's action classes, JSON dicts, JSON lines, or deltalake's AddAction.
        They can also be rows, as Arrow or a data frame, which are written and appended.

        `read_version` is the version from which the actions were computed; later commits are
        checked for conflicts. Without it, actions that only add files are a blind append, which is
        valid after any version. Other actions are checked against the version that this
        transaction sees.
        """
        if is_rows(actions):
            self.write(table, actions)
            actions = ()
        info = CommitInfo(
            operation=operation,
            operation_parameters=operation_parameters,
            operation_metrics=operation_metrics,
            user_metadata=user_metadata,
        )
        self._open.add_actions(table, actions, info, read_version, reads)

    # Rows

    def write(
        self,
        table: str,
        data: object,
        *,
        mode: str = "append",
        schema_mode: str | None = None,
        predicate: str | None = None,
        partition_by: Sequence[str] | str | None = None,
        options: WriteOptions | None = None,
        engine: str | None = None,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        title: str | None = None,
        description: str | None = None,
    ) -> dict[str, Any]:
        """Write rows to data files now, and stage the files; the commit makes the rows visible.

        With the mode `overwrite`, the rows replace all rows, or those that match `predicate`.
        `options` define how the files are written; `engine` is `duckdb` or `spark`. A table that
        does not exist is created, with `location`, `properties`, `title` and `description`.
        Returns deltalake's metrics.
        """
        request = WriteRequest(
            mode=mode,
            schema_mode=schema_mode,
            predicate=predicate,
            partition_by=partition_by,
            options=options,
            engine=engine,
            location=location,
            properties=properties,
            title=title,
            description=description,
        )
        return self.write_rows(table, data, request)

    def write_rows(self, table: str, data: object, request: WriteRequest) -> dict[str, Any]:
        """Write rows like `write`, with the options in one object."""
        if request.mode == "overwrite":
            self._open.hold_files(table)
        return self._open.write(table, data, request)

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        *,
        row_ids: bool = False,
        engine: str | None = None,
    ) -> pa.Table:
        """Return rows as this transaction sees them, its own changes included.

        If this transaction also changes the table, a concurrent commit that changes the rows that
        were read is a conflict. With `row_ids`, the columns `_row_id` and `_row_commit_version` of
        a table with row tracking are added; they are null for rows that are not committed yet.
        """
        found = self.read_batches(table, columns, predicate, row_ids=row_ids, engine=engine)
        return found.read_all()

    def read_batches(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        *,
        row_ids: bool = False,
        engine: str | None = None,
    ) -> pa.RecordBatchReader:
        """Return the rows of `read` in batches, which must be read before the transaction ends."""
        from deltasql.operations.read import read_rows  # lazy import: loads the SQL parser

        target = self.target(table, engine=engine)
        return read_rows(target, columns, predicate, row_ids=row_ids)

    def sql(self, statement: str, parameters: Parameters = None) -> pa.Table:
        """Run one SQL statement as a part of this transaction; returns its rows.

        `parameters` are the values of `:name` (a dict) or of `?` (a list). See
        `deltasql docs sql`.
        """
        from deltasql.api.sql.statements import run_in_transaction  # lazy import: loads the parser

        found: pa.Table = run_in_transaction(self, statement, parameters)
        return found

    def delete(
        self,
        table: str,
        predicate: str | None = None,
        *,
        options: WriteOptions | None = None,
        engine: str | None = None,
        flavour: Flavour = "datafusion",
    ) -> dict[str, int]:
        """Delete the rows that match a predicate, or all rows; returns metrics."""
        from deltasql.operations.delete import stage_delete  # lazy import: loads the SQL parser

        target = self.target_to_change(table, engine=engine)
        return stage_delete(target, predicate, options=options, flavour=flavour)

    def update(
        self,
        table: str,
        updates: Mapping[str, str] | None = None,
        new_values: Mapping[str, Any] | None = None,
        predicate: str | None = None,
        *,
        error_on_type_mismatch: bool = True,
        options: WriteOptions | None = None,
        engine: str | None = None,
        flavour: Flavour = "datafusion",
    ) -> dict[str, int]:
        """Set columns of the rows that match a predicate, or of all rows; returns metrics.

        `updates` contains SQL expressions by column, `new_values` Python values by column.
        """
        # lazy import: both load the SQL parser
        from deltasql.operations.sql.assignments import expressions_of
        from deltasql.operations.update import stage_update

        return stage_update(
            self.target_to_change(table, engine=engine),
            expressions_of(updates, new_values, escapes=flavour == "spark"),
            predicate,
            safe_cast=not error_on_type_mismatch,
            options=options,
            flavour=flavour,
        )

    def merge(
        self,
        table: str,
        source: object,
        predicate: str,
        source_alias: str | None = None,
        target_alias: str | None = None,
        *,
        merge_schema: bool = False,
        error_on_type_mismatch: bool = True,
        source_schema: StructType | None = None,
        options: WriteOptions | None = None,
        engine: str | None = None,
        flavour: Flavour = "datafusion",
    ) -> Merger:
        """Return a Merger for rows: add clauses to it, then call its `execute`."""
        # lazy import: both load the SQL parser
        from deltasql.api.transaction.merger import start_merge
        from deltasql.operations.merge.plan import MergeSpec

        spec = MergeSpec(
            predicate, source_alias, target_alias, merge_schema, not error_on_type_mismatch, flavour
        )
        target = partial(self.target_to_change, table, engine=engine)
        return start_merge(target, source, spec, source_schema=source_schema, options=options)

    # Schema and properties

    def add_columns(self, table: str, fields: object) -> None:
        """Add columns: deltalake's fields, or a schema of any library."""
        columns_of_table.add_columns(self.target(table), _struct(fields))

    def drop_column_not_null(self, table: str, column: str) -> None:
        """Remove the NOT NULL constraint of a column."""
        columns_of_table.drop_column_not_null(self.target(table), column)

    def set_column_not_null(self, table: str, column: str, *, engine: str | None = None) -> None:
        """Make a column NOT NULL; the existing rows must not have nulls there."""
        columns_of_table.set_column_not_null(self.target(table, engine=engine), column)

    def set_column_type(self, table: str, column: str, data_type: object) -> None:
        """Change a column to a wider type, without rewriting data files.

        The table needs the property `delta.enableTypeWidening`. The type is SQL text such as
        `BIGINT` or `DECIMAL(12, 4)`, or a type of deltalake.
        """
        columns_of_table.set_column_type(self.target(table), column, _type(data_type))

    def set_column_metadata(self, table: str, column: str, metadata: Mapping[str, str]) -> None:
        """Add entries to a column's metadata."""
        columns_of_table.set_column_metadata(self.target(table), column, metadata)

    def set_column_default(self, table: str, column: str, default: str | None) -> None:
        """Set the default value of a column, an expression in Spark's SQL; None drops it.

        New rows without a value for the column get the default. Existing rows stay as they are.
        """
        columns_of_table.set_column_default(self.target(table), column, default)

    def sync_identity(self, table: str, column: str, *, engine: str | None = None) -> None:
        """Let an identity column continue after the largest value that its rows have."""
        from deltasql.operations.alter import identity  # lazy import: loads the SQL parser

        identity.sync_identity(self.target(table, engine=engine), column)

    def rename_column(self, table: str, column: str, new_name: str) -> None:
        """Rename a column with column mapping, without rewriting data files."""
        columns_of_table.rename_column(self.target(table), column, new_name)

    def drop_columns(self, table: str, names: str | Sequence[str]) -> None:
        """Drop columns with column mapping, without rewriting data files."""
        columns_of_table.drop_columns(self.target(table), _list(names))

    def add_constraint(
        self, table: str, checks: Mapping[str, str], *, engine: str | None = None
    ) -> None:
        """Add CHECK constraints by name; the existing rows must meet them."""
        from deltasql.operations.alter import constraints  # lazy import: loads the SQL parser

        constraints.add_constraints(self.target(table, engine=engine), checks)

    def drop_constraint(self, table: str, name: str, *, raise_if_not_exists: bool = True) -> None:
        """Drop a CHECK constraint."""
        from deltasql.operations.alter import constraints  # lazy import: loads the SQL parser

        constraints.drop_constraint(
            self.target(table), name, raise_if_not_exists=raise_if_not_exists
        )

    def add_feature(
        self,
        table: str,
        names: str | Sequence[str],
        *,
        allow_protocol_versions_increase: bool = False,
    ) -> None:
        """Add table features by their names in Delta's protocol."""
        features.add_feature(
            self.target(table),
            _list(names),
            allow_protocol_versions_increase=allow_protocol_versions_increase,
        )

    def fence(self, table: str) -> bool:
        """Add the feature that makes other engines fail; returns whether the table changes.

        See `Catalog.fence`.
        """
        return fences.fence(self.target(table))

    def unfence(self, table: str) -> bool:
        """Remove the fence of a table; returns whether the table changes."""
        return fences.unfence(self.target(table))

    def drop_feature(self, table: str, name: str, *, truncate_history: bool = False) -> None:
        """Remove a table feature from the protocol; the table must not use it any more."""
        features.drop_feature(self.target_to_change(table), name, truncate_history=truncate_history)

    def set_table_properties(
        self, table: str, properties: Mapping[str, str], *, raise_if_not_exists: bool = True
    ) -> None:
        """Set table properties."""
        table_properties.set_table_properties(
            self.target_to_change(table), properties, raise_if_not_exists=raise_if_not_exists
        )

    def set_table_name(self, table: str, name: str) -> None:
        """Set the name in the table's metadata; `catalog.rename` changes the catalog's name."""
        table_properties.set_table_name(self.target(table), name)

    def set_table_description(self, table: str, description: str) -> None:
        """Set the description in the table's metadata."""
        table_properties.set_table_description(self.target(table), description)

    # Maintenance

    def optimize(
        self,
        table: str,
        *,
        partition_filters: Sequence[Any] | None = None,
        target_size: int | None = None,
        options: WriteOptions | None = None,
        engine: str | None = None,
        on_progress: OnProgress | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Rewrite small files as fewer, larger ones; returns deltalake's metrics.

        In a clustered table, the rows of files that are not clustered yet are also sorted.

        `on_progress` is called with a `Progress` that counts bins: groups of files that are
        rewritten together. With `dry_run`, nothing is staged, and the result is what would be
        rewritten.
        """
        from deltasql.operations.optimize.optimize import (
            optimize,  # lazy import: loads the SQL parser
        )

        return optimize(
            self.target_to_change(table, engine=engine),
            partition_filters=partition_filters,
            target_size=target_size,
            options=options,
            on_progress=on_progress,
            dry_run=dry_run,
        )

    def z_order(
        self,
        table: str,
        columns: Sequence[str],
        *,
        partition_filters: Sequence[Any] | None = None,
        target_size: int | None = None,
        options: WriteOptions | None = None,
        engine: str | None = None,
        on_progress: OnProgress | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Rewrite files so that rows with similar values in the columns share files.

        Returns metrics. `on_progress` and `dry_run` are those of `optimize`.
        """
        from deltasql.operations.optimize.optimize import (
            optimize,  # lazy import: loads the SQL parser
        )

        return optimize(
            self.target_to_change(table, engine=engine),
            z_order=columns,
            partition_filters=partition_filters,
            target_size=target_size,
            options=options,
            on_progress=on_progress,
            dry_run=dry_run,
        )

    def purge(
        self,
        table: str,
        *,
        partition_filters: Sequence[Any] | str | None = None,
        target_size: int | None = None,
        options: WriteOptions | None = None,
        engine: str | None = None,
        on_progress: OnProgress | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Rewrite the files that have a deletion vector, and no others; returns metrics.

        Afterwards, readers without deletion vectors read all rows, and a vacuum deletes the old
        files with their deleted rows. `on_progress` and `dry_run` are those of `optimize`.
        """
        from deltasql.operations.optimize.optimize import purge  # lazy import: loads the SQL parser

        return purge(
            self.target_to_change(table, engine=engine),
            partition_filters=partition_filters,
            target_size=target_size,
            options=options,
            on_progress=on_progress,
            dry_run=dry_run,
        )

    def restore(
        self,
        table: str,
        to: int | str | datetime,
        *,
        ignore_missing_files: bool = False,
        protocol_downgrade_allowed: bool = False,
        or_first_version: bool = False,
    ) -> dict[str, int]:
        """Restore a table to a version or a timestamp; returns metrics.

        A timestamp before the first commit raises VersionNotFoundError. With `or_first_version`, it
        selects version 0.
        """
        from deltasql.operations.restore import restore  # lazy import: loads the SQL parser

        return restore(
            self.target_to_change(table),
            self.snapshot(table),
            to,
            ignore_missing_files=ignore_missing_files,
            protocol_downgrade_allowed=protocol_downgrade_allowed,
            or_first_version=or_first_version,
        )

    def undo(self, table: str) -> dict[str, int]:
        """Undo the last commit of a table; a second undo reverts the first."""
        from deltasql.operations.restore import undo  # lazy import: loads the SQL parser

        return undo(self.target_to_change(table), self.snapshot(table))

    def verify_data(
        self,
        table: str,
        *,
        checks: DataChecks = "counts",
        engine: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> DataReport:
        """Compare the data files of a table, and their rows, with the log; nothing is changed."""
        from deltasql.verify.verify_data import verify_data  # lazy import: needed only to read rows

        return verify_data(
            self.target(table, engine=engine), checks=checks, on_progress=on_progress
        )

    def repair(self, table: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Remove files from the log that are missing in storage; returns their names."""
        from deltasql.operations import repair  # lazy import: needed only for a repair

        return repair.repair(self.target_to_change(table), dry_run=dry_run)


def _list(names: str | Sequence[str]) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


def _struct(fields: object) -> StructType:
    """Convert columns, given as a schema or as a list of deltalake's fields, to a struct."""
    if not isinstance(fields, list | tuple):
        return schema_from_any(fields)
    schemas = [schema_from_any(_schema_of_field(each)) for each in fields]
    return StructType(tuple(member for schema in schemas for member in schema.fields))


def _schema_of_field(field: object) -> object:
    to_json = getattr(field, "to_json", None)  # only deltalake's Field has it
    return f'{{"type":"struct","fields":[{to_json()}]}}' if callable(to_json) else field


def _type(data_type: object) -> DataType:
    """Convert a type, given as SQL text or as a type of deltalake, to a type of our schemas."""
    if isinstance(data_type, str):
        # lazy import: both load the SQL parser
        from deltasql.model.statements.definition import read_type
        from deltasql.model.statements.tokens import Reader

        reader = Reader(data_type)
        found = read_type(reader)
        if not reader.at_end:
            raise reader.error("expected the end of the type")
        return found
    to_json = getattr(data_type, "to_json", None)
    if not callable(to_json):
        return cast("DataType", data_type)
    field = f'{{"name":"c","type":{to_json()},"nullable":true,"metadata":{{}}}}'
    return schema_from_any(f'{{"type":"struct","fields":[{field}]}}').fields[0].type
