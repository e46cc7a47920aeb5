"""The uncommitted state of a transaction: staged changes, the snapshots it reads, written files."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltasql import telemetry
from deltasql.api.catalog.registry import stage_create
from deltasql.api.transaction.commit_properties import (
    check_commit_properties,
    with_custom_metadata,
)
from deltasql.commit.staged import ReadSet, Staged, actions_from
from deltasql.commit.stale import created_by_other
from deltasql.engine.choose import open_engine
from deltasql.engine.inputs import is_spark_frame
from deltasql.exceptions import (
    CommitConflictError,
    InvalidActionError,
    LogAheadError,
    TableChangedError,
    TableExistsError,
    TableFollowsError,
    TxnLogError,
)
from deltasql.exceptions.prefixes import GENERIC_ERROR
from deltasql.model.actions import CommitInfo, SetTransaction
from deltasql.model.clock import now_ms
from deltasql.model.deletion_vector import vector_file
from deltasql.model.properties import TableProperties
from deltasql.operations.alter import cluster_by as clustering
from deltasql.operations.table_stage import TableStage
from deltasql.phases import reached
from deltasql.snapshot.snapshot import CatalogSnapshot, Snapshot, open_snapshot
from deltasql.storage import open_storage
from deltasql.storage.deletion import Deletable, delete_data
from deltasql.storage.location import location_url
from deltasql.store.leases import hold_files, release_files
from deltasql.uri import join_table_name, split_table_name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from deltalake import CommitProperties

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.commit.ratified import Ratified
    from deltasql.engine.base import Engine
    from deltasql.operations.write_request import WriteRequest

    Key = tuple[str, str]  # namespace and name

_log = logging.getLogger(__name__)


class WrittenFiles:
    """The data files of one transaction. A name that ends with `/` is an engine's folder."""

    def __init__(self, catalog: BaseCatalog, txn_id: str) -> None:
        self.txn_id = txn_id
        self._catalog = catalog
        self._earlier_intents = 0
        self._files: list[tuple[str, str]] = []

    def continue_transaction(self, txn_id: str, *, intents: int) -> None:
        """Continue the transaction of another process, which recorded this number of intents."""
        self.txn_id, self._earlier_intents = txn_id, intents

    @property
    def intents(self) -> int:
        """The number of intents that are recorded under the id of the transaction."""
        return self._earlier_intents + len(set(self._files))

    def record(self, staged: Staged, names: list[str]) -> None:
        """Record intents for files of a table; called before the files are written."""
        if staged.table.is_following:  # there may have been a cutover: read the row again
            table = staged.table
            staged.table = self._catalog.writable(join_table_name(table.namespace, table.name))
        location = staged.table.location
        self._catalog.store.record_intents(
            self.txn_id, staged.table.table_id, [f"{location}/{name}" for name in names]
        )
        self._files += [(location, name) for name in names]
        reached("intended")

    def discard(self) -> None:
        """Delete the files of a transaction that is certain not to be committed.

        A file that cannot be deleted now keeps its intent, so that a vacuum can delete it later.
        """
        try:
            for location in dict.fromkeys(location for location, _ in self._files):
                self._delete(location, [name for place, name in self._files if place == location])
            if self._files:
                self._catalog.store.clear_intents(self.txn_id)
        except (OSError, TxnLogError) as error:
            telemetry.log(
                _log, logging.WARNING, "files not discarded", txn_id=self.txn_id, error=str(error)
            )
        self._files.clear()

    def discard_superseded(self, committed: Collection[Staged]) -> None:
        """Delete files that a later operation of the transaction replaced; no reader saw them."""
        if not self._files:
            return
        kept = {
            (each.table.location, unquote(path))
            for each in committed
            for path in (*(f.path for f in each.adds), *(f.path for f in each.cdc))
        }
        kept |= {
            (each.table.location, name)
            for each in committed
            for file in each.adds
            if file.deletion_vector and (name := vector_file(file.deletion_vector)) is not None
        }
        # Skip folders, because the files in them were also recorded one by one.
        self._files = [
            each for each in self._files if each not in kept and not each[1].endswith("/")
        ]
        self.discard()

    def _delete(self, location: str, names: list[str]) -> None:
        storage = open_storage(location, self._catalog.config.storage)
        folders = [name for name in names if name.endswith("/")]
        inside = [info.name for folder in folders for info in storage.list(folder)]
        files = [*(name for name in names if not name.endswith("/")), *inside]
        deletable = Deletable(storage, partition_columns=None, engine_folders=folders)
        delete_data(storage, files, deletable)


class Staging:
    """The tables of one transaction: its staged changes and the version it sees of each table.

    The transaction sees all tables as they were at its first read, so that it sees a commit to
    several tables completely or not at all. With `one_table`, other tables are not looked up.
    """

    def __init__(self, catalog: BaseCatalog, files: WrittenFiles, *, one_table: bool) -> None:
        self._catalog, self._files, self._one_table = catalog, files, one_table
        self._began_ms = now_ms()
        self._heads: CatalogSnapshot | None = None
        self._snapshots: dict[Key, Snapshot] = {}
        self._staged: dict[Key, Staged] = {}
        self._names: dict[Key, str] = {}
        self._held: dict[Key, int] = {}
        self.was_read = False
        """Whether the caller got a snapshot, so that later reads must use the same versions."""
        self.engines: dict[str, Engine] = {}

    # Staged changes

    @property
    def names(self) -> list[str]:
        """All tables that the transaction changes, by the names that the caller used."""
        return sorted(self._names.values())

    def changes(self) -> dict[str, Staged]:
        """Return what a commit would ratify, by table name."""
        return {
            self._names[key]: each
            for key, each in self._staged.items()
            if each.creates or not each.is_empty
        }

    def ratify(self, changes: Sequence[Staged]) -> list[Ratified]:
        """Commit the changes of all tables with one SQL COMMIT; return one result for each table.

        The data files are deleted if an error proves that nothing was committed.
        """
        if not changes:
            return []
        commit = partial(
            self._catalog.committer.commit,
            txn_id=self._files.txn_id,
            intents=self._files.intents,
            discard=self._files.discard,
        )
        try:
            for each in changes:
                if not each.creates:
                    self._catalog.log_ahead.check(each.table)
            try:
                return commit(changes)
            except TableChangedError:
                if not self._resolve_again(changes):
                    raise
            return commit(changes)
        except (
            CommitConflictError,
            InvalidActionError,
            LogAheadError,
            TableExistsError,
            TableFollowsError,
        ):
            self._files.discard()
            raise

    def _resolve_again(self, changes: Sequence[Staged]) -> bool:
        """Look up cached names of tables again; returns whether the commit can be retried.

        If a name belongs to another table by now, a blind append may go to that table, unless it
        was created after the transaction began. Other changes cannot be retried, because they were
        made for the replaced table.
        """
        found = False
        for each in changes:
            if each.creates:
                continue
            row = self._catalog.store.find_table(each.table.namespace, each.table.name, fresh=True)
            if row is None or row.table_id == each.table.table_id:
                continue
            replaced_since = row.created_at_ms >= self._began_ms
            if replaced_since or each.read_version is not None or not each.is_plain_append:
                return False
            each.table, found = row, True
        return found

    def hold_files(self, table: str) -> None:
        """Prevent auto compaction of a table, if it is enabled, until the transaction ends.

        Call this before an operation reads the rows that it changes. Otherwise, a compaction of the
        files with these rows could make the commit fail.
        """
        key = split_table_name(table)
        if key in self._held or self.creates(table):
            return
        if not self.has_table(table):
            return
        seen = self.snapshot(table)
        if not TableProperties(seen.metadata.configuration).auto_compact:
            return
        version = hold_files(self._catalog.store, seen.table, self._files.txn_id)
        self._held[key] = seen.table.table_id
        if version != seen.version and not (self.was_read or self._has_work()):
            # Read the table again, because a compaction may have committed before this call
            # prevented it.
            self._snapshots.clear()
            self._heads = None

    def _has_work(self) -> bool:
        """Return whether an operation has read rows or staged a change."""
        return any(
            each.creates or each.reads or not each.is_empty or each.read_version is not None
            for each in self._staged.values()
        )

    def release_files(self) -> None:
        """Allow auto compaction again for the tables of this transaction."""
        for table_id in self._held.values():
            release_files(self._catalog.store, table_id, self._files.txn_id)
        self._held.clear()

    def clear(self) -> None:
        """Drop all staged changes."""
        self._staged.clear()

    def staged(self, table: str) -> Staged:
        """Return the staged changes of a table; a table without changes gets an empty record."""
        key = split_table_name(table)
        found = self._staged.get(key)
        if found is None:
            # Change the table that was read, even if another table has its name by now.
            seen = self._snapshots.get(key)
            if seen is None and self._heads is not None:
                seen = self._at_first_read(key)
            row = self._catalog.resolve(table) if seen is None else seen.table
            found = self._staged[key] = Staged(row)
            self._names[key] = table
        return found

    def creates(self, table: str) -> bool:
        """Return whether this transaction creates the table."""
        staged = self._staged.get(split_table_name(table))
        return staged is not None and staged.creates

    def create(
        self,
        name: str,
        schema: object,
        *,
        location: str | None = None,
        cluster_by: Sequence[str] = (),
        **options: Any,
    ) -> None:
        """Stage a new table; the other options are those of `registry.stage_create`."""
        key = split_table_name(name)
        if key in self._staged:
            raise TableExistsError(f"table {name} is already part of this transaction", table=name)
        self._staged[key] = stage_create(self._catalog, name, schema, location, **options)
        self._names[key] = name
        if cluster_by:
            clustering.cluster_by(self.target(name), cluster_by)

    def create_missing(self, name: str, schema: object, **options: Any) -> None:
        """Stage a new table; if another commit creates the table first, the commit conflicts."""
        try:
            self.create(name, schema, **options)
        except TableExistsError as error:
            found = self._catalog.store.find_table(*split_table_name(name), fresh=True)
            if found is None:
                raise
            raise created_by_other(self._catalog.store.query, name, found) from error
        self._staged[split_table_name(name)].must_be_new = False

    def add_actions(
        self,
        table: str,
        actions: object,
        info: CommitInfo,
        read_version: int | None,
        reads: ReadSet | None,
    ) -> None:
        """Stage Delta actions that were computed from `read_version`.

        If `info` has an operation, metrics or user metadata, they replace those staged before.
        """
        staged = self.staged(table)
        staged.extend(actions_from(actions))
        if reads is not None:
            staged.reads = staged.reads.merge(reads)
        if read_version is not None:
            # Conflicts are checked from the oldest version that one of the changes depends on.
            known = staged.read_version
            staged.read_version = read_version if known is None else min(known, read_version)
        elif staged.read_version is None and not staged.creates and not staged.is_plain_append:
            staged.read_version = self.snapshot(table).version
        staged.info = _merged(staged.info, info)

    def set_commit_properties(self, table: str, properties: CommitProperties | None) -> None:
        """Add deltalake's CommitProperties to the staged changes of a table, if there are any."""
        if properties is None:
            return
        check_commit_properties(properties)
        staged = self._staged.get(split_table_name(table))
        if staged is None or (staged.is_empty and not staged.creates):
            return
        staged.txns += [
            SetTransaction(each.app_id, each.version, each.last_updated)
            for each in properties.app_transactions or ()
        ]
        staged.info = with_custom_metadata(staged.info, properties.custom_metadata)
        if properties.max_commit_retries == 0 and not staged.creates:
            staged.must_be_next = True
            if staged.read_version is None:
                staged.read_version = self.snapshot(table).version

    # Tables as the transaction sees them

    def has_table(self, table: str) -> bool:
        """Return whether the transaction sees the table, or creates it."""
        key = split_table_name(table)
        if key in self._staged or key in self._snapshots:
            return True
        catalog = self._catalog
        if not catalog.store.exists():
            return False
        found = self._at_first_read(key)
        if found is None:
            now = catalog.store.find_head(*key)
            if now is None:
                return False
            row, head = now
            found = Snapshot(catalog.store, row, catalog.cache, head)
        self._snapshots[key] = found
        return True

    def pin(self, table: str, snapshot: Snapshot) -> None:
        """Use this snapshot of a table instead of the latest version."""
        self._snapshots[split_table_name(table)] = snapshot

    def snapshot(self, table: str) -> Snapshot:
        """Return the table as this transaction sees it."""
        key = split_table_name(table)
        found = self._snapshots.get(key) or self._at_first_read(key)
        if found is None:  # the table is newer than the first read, or does not exist
            catalog = self._catalog
            row = catalog.resolve(table, fresh=True)
            found = open_snapshot(catalog.store, row, catalog.cache)
        self._snapshots[key] = found
        return found

    def _at_first_read(self, key: Key) -> Snapshot | None:
        """Return a table as it was at the transaction's first read of any table."""
        if self._one_table:
            return None
        if self._heads is None:
            self._heads = CatalogSnapshot(self._catalog.store, self._catalog.cache)
        return self._heads.snapshot(*key)

    # Operations on a table

    def target(self, table: str, data: object = None, *, engine: str | None = None) -> TableStage:
        """Return a table for an operation, with the changes that are staged so far."""
        if split_table_name(table) not in self._staged:
            self.snapshot(table)
        staged = self.staged(table)
        return TableStage(
            staged,
            None if staged.creates else self.snapshot(table),
            config=self._catalog.config,
            engine=partial(self._engine, data, engine),
            intend=self._files.record,
        )

    def write(self, table: str, data: object, request: WriteRequest) -> dict[str, Any]:
        """Write rows as data files and stage them, and create the table if it does not exist.

        Returns deltalake's metrics. The mode `ignore` writes nothing if the table exists, and
        returns no metrics.
        """
        # lazy import: loads Parquet and the SQL parser
        from deltasql.operations import write

        write.check_modes(request.mode, request.schema_mode)
        rows = data
        if not self.has_table(table):
            rows = write.rows_to_write(data)
            must_be_new = request.mode in ("error", "ignore")
            create = self.create if must_be_new else self.create_missing
            create(
                table,
                write.schema_to_create(rows),
                location=request.location,
                partition_by=request.partition_by,
                properties=request.properties,
                title=request.title,
                description=request.description,
            )
        elif request.mode == "error":
            raise TableExistsError(
                f"A table already exists at: {location_url(self.target(table).location)}/",
                prefix=GENERIC_ERROR,
                table=table,
                help="Use mode='append' or mode='overwrite', or choose another name.",
            )
        elif request.mode == "ignore":
            return {}
        return write.stage_write(self.target(table, data, engine=request.engine), rows, request)

    def _engine(self, data: object, name: str | None) -> Engine:
        """Return the engine with this name, or the engine for this data; each is started once."""
        key = name or ("spark" if is_spark_frame(data) else "default")
        found = self.engines.get(key)
        if found is None:
            found = self.engines[key] = open_engine(self._catalog.config, data=data, name=name)
            found.__enter__()
        return found

    def close_engines(self) -> None:
        """Stop all engines that operations started."""
        for engine in self.engines.values():
            engine.__exit__(None, None, None)
        self.engines.clear()


def _merged(info: CommitInfo, new: CommitInfo) -> CommitInfo:
    return CommitInfo(
        operation=new.operation or info.operation,
        operation_parameters=new.operation_parameters or info.operation_parameters,
        operation_metrics=new.operation_metrics or info.operation_metrics,
        user_metadata=new.user_metadata or info.user_metadata,
        engine_info=info.engine_info,
        extra=info.extra,
    )
