"""MultiTableTransaction: stage changes to any number of tables, commit them as one."""

from __future__ import annotations

import logging
import uuid
import warnings
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from deltasql import telemetry
from deltasql.api.deltalake_compat.handle.arguments import (
    check_hooks,
    check_transactions,
    check_unsigned,
)
from deltasql.api.deltalake_compat.handle.properties import with_custom_metadata
from deltasql.api.transaction.verbs import Verbs
from deltasql.commit.create_table import created_by_other
from deltasql.commit.staged import ReadSet, Staged, actions_from
from deltasql.engine.choose import is_rows, is_spark_frame, open_engine
from deltasql.exceptions import (
    CommitConflictError,
    InvalidActionError,
    LogAheadError,
    TableChangedError,
    TableExistsError,
    TableFollowsError,
    TransactionClosedError,
    TxnLogError,
)
from deltasql.mirror.publish.after_publish import PostCommit
from deltasql.model.actions import CommitInfo, SetTransaction
from deltasql.model.clock import now_ms
from deltasql.operations.alter import cluster_by as clustering
from deltasql.operations.table_stage import TableStage
from deltasql.phases import reached
from deltasql.snapshot.snapshot import CatalogSnapshot, Snapshot, open_snapshot
from deltasql.storage import open_storage
from deltasql.storage.deletion import Deletable, delete_data
from deltasql.uri import join_table_name, split_table_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from deltalake import CommitProperties, PostCommitHookProperties

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.commit.ratified import Ratified
    from deltasql.engine.base import Engine
    from deltasql.storage import Storage

_log = logging.getLogger(__name__)


class MultiTableTransaction(Verbs):
    """All or nothing over many tables; commits when the `with` block ends without an error.

    Nothing is locked before the commit, and nothing is visible to others until it is ratified.
    Without `with`, call `commit` or `rollback`: a transaction that is forgotten changes nothing,
    and says so by a ResourceWarning and in the log.
    `one_table` spares a transaction that is known to stay with one table to look at the others.

    >>> import tempfile, deltasql, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"deltasql://sqlite/{folder.name}/catalog.db"
    >>> with deltasql.begin(uri) as tx:
    ...     metrics = tx.write("stock", pa.table({"sku": ["pen"], "left": [9]}))
    >>> with deltasql.begin(uri) as tx:
    ...     metrics = tx.write("orders", pa.table({"sku": ["pen"]}))
    ...     metrics = tx.update("stock", {"left": "left - 1"}, predicate="sku = 'pen'")
    ...     tx.read("stock").to_pylist()  # as the transaction sees it
    [{'sku': 'pen', 'left': 8}]
    >>> tx.versions
    {'orders': 0, 'stock': 1}
    """

    def __init__(self, catalog: Catalog, *, one_table: bool = False) -> None:
        self.catalog = catalog
        self._one_table = one_table
        self._moment: CatalogSnapshot | None = None
        self.txn_id = str(uuid.uuid4())
        self.announced = 0  # files noted under its id before it began
        self.versions: dict[str, int] = {}
        self._staged: dict[tuple[str, str], Staged] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._snapshots: dict[tuple[str, str], Snapshot] = {}
        self._written: list[tuple[str, str]] = []
        self._engines: dict[str, Engine] = {}
        self._post_commit = PostCommit()
        self._began_ms = now_ms()
        self._state = "open"

    def __repr__(self) -> str:
        tables = sorted(self._names.values())
        return f"MultiTableTransaction({self.txn_id!r}, {self._state}, tables={tables})"

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
        """Warn of changes that nobody committed or rolled back; they are lost."""
        if getattr(self, "_state", "") != "open" or not self.tables:
            return
        tables = ", ".join(self.tables)
        with suppress(Exception):  # at the end of the process not everything is there any more
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
        """Stage Delta actions for a table: our classes, JSON dicts, JSON lines, AddAction.

        Rows, as Arrow or a data frame, are written and appended.

        `read_version` is the version the actions were computed from: commits after it are
        checked for conflicts. Without it, files that are only added go on top of whatever is
        there (a blind append); anything else is checked against the version of this moment.
        """
        if is_rows(actions):
            self.write(table, actions)
        else:
            self._stage(table).extend(actions_from(actions))
        staged = self._stage(table)
        if reads is not None:
            staged.reads = staged.reads.merge(reads)
        if read_version is not None:
            # What was computed from the older version must hold against all that came since.
            known = staged.read_version
            staged.read_version = read_version if known is None else min(known, read_version)
        elif staged.read_version is None and not staged.creates and not staged.is_plain_append:
            staged.read_version = self.snapshot(table).version
        staged.info = CommitInfo(
            operation=operation or staged.info.operation,
            operation_parameters=operation_parameters or staged.info.operation_parameters,
            operation_metrics=operation_metrics or staged.info.operation_metrics,
            user_metadata=user_metadata or staged.info.user_metadata,
            engine_info=staged.info.engine_info,
            extra=staged.info.extra,
        )

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
        """Stage a new table: it comes into being with the rest of the commit.

        `title` is the name in its metadata, which is the table's own when it is left out. OPTIMIZE
        keeps rows together that are near in the columns of `cluster_by`. `allow_nested_location`
        accepts a location inside another table's folder, or around one.
        """
        self._check_open()
        key = split_table_name(name)
        if key in self._staged:
            raise TableExistsError(f"table {name} is already part of this transaction", table=name)
        self._staged[key] = self.catalog.stage_create(
            name,
            schema,
            location,
            partition_by=partition_by,
            properties=properties,
            description=description,
            title=title,
            allow_nested_location=allow_nested_location,
        )
        self._names[key] = name
        if cluster_by:
            clustering.cluster_by(self.target(name), cluster_by)

    def create_missing(self, name: str, schema: object, **options: Any) -> None:
        """Stage a new table for a write that goes to an existing one as well.

        The options are those of `create_table`. Where another commit creates the table first, that
        is a conflict, as it would be between two writes to an existing one.
        """
        try:
            self.create_table(name, schema, **options)
        except TableExistsError as error:
            found = self.catalog.store.find_table(*split_table_name(name), fresh=True)
            if found is None:
                raise
            raise created_by_other(self.catalog.store.query, name, found) from error
        self._staged[split_table_name(name)].must_be_new = False

    @property
    def tables(self) -> list[str]:
        """The tables that the commit would change, by the names that were used for them."""
        return [
            self._names[key]
            for key, each in self._staged.items()
            if each.creates or not each.is_empty
        ]

    def creates(self, table: str) -> bool:
        """Tell whether a table comes into being with this transaction."""
        staged = self._staged.get(split_table_name(table))
        return staged is not None and staged.creates

    def has_table(self, table: str) -> bool:
        """Tell whether a table exists for this transaction, those it creates included."""
        self._check_open()
        key = split_table_name(table)
        if key in self._staged or key in self._snapshots:
            return True
        if not self.catalog.store.exists():
            return False
        found = self._seen_at_first(key)
        if found is None:
            catalog = self.catalog
            now = catalog.store.find_head(*key)
            if now is None:
                return False
            row, head = now
            found = Snapshot(catalog.store, row, catalog.cache, head)
        self._snapshots[key] = found
        return True

    def pin(self, table: str, snapshot: Snapshot) -> None:
        """Look at a table as a snapshot has it: commits after it are checked for conflicts."""
        self._check_open()
        self._snapshots[split_table_name(table)] = snapshot

    def target(self, table: str, data: object = None, *, engine: str | None = None) -> TableStage:
        """Return a table for an operation, with what was staged so far.

        The engine is the one called `engine`, else the one that `data` belongs to.
        """
        if split_table_name(table) not in self._staged:
            self.snapshot(table)
        staged = self._stage(table)
        return TableStage(
            staged,
            None if staged.creates else self.snapshot(table),
            config=self.catalog.config,
            engine=partial(self._engine, data, engine),
            intend=self._intend,
        )

    def set_commit_properties(self, table: str, properties: CommitProperties | None) -> None:
        """Take deltalake's CommitProperties: custom metadata and application transactions.

        They belong to what was staged; where that is nothing, as in deltalake, they are not told.
        """
        if properties is not None:
            check_unsigned(properties.max_commit_retries)
            check_transactions(properties.app_transactions)
        staged = self._staged.get(split_table_name(table))
        if properties is None or staged is None or (staged.is_empty and not staged.creates):
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

    def set_post_commit(self, properties: PostCommitHookProperties | None) -> None:
        """Take deltalake's PostCommitHookProperties: what the commit does to the log after it."""
        check_hooks(properties)
        if properties is None:
            self._post_commit = PostCommit(counts_commits=True)
        else:
            self._post_commit = PostCommit(
                properties.create_checkpoint, properties.cleanup_expired_logs, counts_commits=True
            )

    def snapshot(self, table: str) -> Snapshot:
        """Return the table as this transaction sees it: the same version at every call.

        All tables are seen as they were when the first of them was looked at.
        """
        self._check_open()
        key = split_table_name(table)
        found = self._snapshots.get(key) or self._seen_at_first(key)
        if found is None:  # made since, or not at all
            catalog = self.catalog
            row = catalog.resolve(table, fresh=True)
            found = open_snapshot(catalog.store, row, catalog.cache)
        self._snapshots[key] = found
        return found

    def _seen_at_first(self, key: tuple[str, str]) -> Snapshot | None:
        """Return a table as it was when this transaction first looked at any."""
        if self._one_table:
            return None
        if self._moment is None:
            self._moment = CatalogSnapshot(self.catalog.store, self.catalog.cache)
        return self._moment.snapshot(*key)

    def commit(self) -> dict[str, int]:
        """Ratify everything that was staged and publish it; returns the versions by name."""
        self._check_open()
        staged = [each for each in self._staged.values() if each.creates or not each.is_empty]
        keys = [key for key, each in self._staged.items() if each.creates or not each.is_empty]
        self._state = "failed"
        try:
            ratified = self._ratify(staged)
        except (
            CommitConflictError,
            InvalidActionError,
            LogAheadError,
            TableExistsError,
            TableFollowsError,
        ):
            self._discard_files()  # these say for certain that nothing was committed
            raise
        finally:
            self._close_engines()
        self._state = "committed"
        self._discard_superseded(staged)
        self.versions = {
            self._names[key]: each.version for key, each in zip(keys, ratified, strict=True)
        }
        self.catalog.mirror.after_commit(ratified, self._post_commit)
        return self.versions

    def _ratify(self, staged: list[Staged]) -> list[Ratified]:
        commit = partial(
            self.catalog.committer.commit,
            txn_id=self.txn_id,
            intents=self.announced + len(set(self._written)),
            discard=self._discard_files,
        )
        for each in staged:
            if not each.creates:
                self.catalog.log_ahead.check(each.table)
        try:
            return commit(staged) if staged else []
        except TableChangedError:
            if not self._find_again(staged):
                raise
        return commit(staged)

    def _find_again(self, staged: list[Staged]) -> bool:
        """Look up names that were remembered from before this transaction; True if one changed."""
        found = False
        for each in staged:
            if each.creates:
                continue
            row = self.catalog.store.find_table(each.table.namespace, each.table.name, fresh=True)
            if row is None or row.table_id == each.table.table_id:
                continue
            replaced_since = row.created_at_ms >= self._began_ms
            if replaced_since or each.read_version is not None or not each.is_plain_append:
                return False
            each.table, found = row, True
        return found

    def rollback(self) -> None:
        """Forget everything that was staged."""
        self._check_open()
        self._staged.clear()
        self._state = "rolled back"
        self._close_engines()
        self._discard_files()

    def _engine(self, data: object, name: str | None) -> Engine:
        """Return the transaction's engine of a kind, started once."""
        key = name or ("spark" if is_spark_frame(data) else "default")
        found = self._engines.get(key)
        if found is None:
            found = self._engines[key] = open_engine(self.catalog.config, data=data, name=name)
            found.__enter__()
        return found

    def _close_engines(self) -> None:
        for engine in self._engines.values():
            engine.__exit__(None, None, None)
        self._engines.clear()

    def _discard_superseded(self, staged: list[Staged]) -> None:
        """Delete files that a later operation of the transaction replaced: nobody saw them."""
        if not self._written:
            return
        kept = {
            (each.table.location, unquote(path))
            for each in staged
            for path in (*(f.path for f in each.adds), *(f.path for f in each.cdc))
        }
        # The files of a folder were told one by one as well.
        self._written = [
            each for each in self._written if each not in kept and not each[1].endswith("/")
        ]
        self._discard_files()

    def _intend(self, staged: Staged, names: list[str]) -> None:
        if staged.table.is_following:  # SQL may have taken over meanwhile
            table = staged.table
            staged.table = self.catalog.writable(join_table_name(table.namespace, table.name))
        location = staged.table.location
        self.catalog.store.record_intents(
            self.txn_id, staged.table.table_id, [f"{location}/{name}" for name in names]
        )
        self._written += [(location, name) for name in names]
        reached("intended")

    def _discard_files(self) -> None:
        """Delete the data files of a transaction that will never be committed.

        What cannot be deleted now is still known from its intent.
        """
        try:
            for location in dict.fromkeys(location for location, _ in self._written):
                storage = self._storage(location)
                names = [name for place, name in self._written if place == location]
                folders = [name for name in names if name.endswith("/")]
                # All that an engine put into a folder of its own.
                inside = [info.name for folder in folders for info in storage.list(folder)]
                files = [*(name for name in names if not name.endswith("/")), *inside]
                own = Deletable(storage, partition_columns=None, engine_folders=folders)
                delete_data(storage, files, own)
            if self._written:
                self.catalog.store.clear_intents(self.txn_id)
        except (OSError, TxnLogError) as error:
            telemetry.log(
                _log, logging.WARNING, "files not discarded", txn_id=self.txn_id, error=str(error)
            )
        self._written.clear()

    def _storage(self, location: str) -> Storage:
        return open_storage(location, self.catalog.config.storage)

    def _stage(self, table: str) -> Staged:
        self._check_open()
        key = split_table_name(table)
        staged = self._staged.get(key)
        if staged is None:
            # What was looked at is what is changed, whatever has its name by now.
            seen = self._snapshots.get(key)
            if seen is None and self._moment is not None:
                seen = self._seen_at_first(key)
            row = self.catalog.resolve(table) if seen is None else seen.table
            staged = self._staged[key] = Staged(row)
            self._names[key] = table
        return staged

    def _check_open(self) -> None:
        if self._state != "open":
            raise TransactionClosedError(
                f"this transaction is {self._state}",
                txn_id=self.txn_id,
                help="Start another one with deltasql.begin().",
            )
