"""Append the commits of a `_delta_log` to the database, without changing them.

Versions, timestamps and all fields stay the same.
"""

from __future__ import annotations

import hashlib
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from deltasql._core import LogFiles, SeenFiles
from deltasql.commit.table_state import physical_partition_columns
from deltasql.exceptions import LogParseError, VersionTakenError
from deltasql.migrate.importing.load_checkpoint import BATCH_FILES, file_batches
from deltasql.mirror.read_ahead import read_ahead
from deltasql.model.actions import CommitInfo
from deltasql.model.clock import LAST_MS
from deltasql.model.protocol import check_readable
from deltasql.model.schema.column_mapping import check_mapping
from deltasql.model.schema.schema import schema_of, skipping_columns
from deltasql.store import audit, load
from deltasql.store.append import write_head
from deltasql.store.load import LoadPlan, SkippingColumns
from deltasql.store.records import (
    Commit,
    Head,
    cdc_rows,
    derived_id,
    domain_rows,
    is_usable_id,
    metadata_row,
    protocol_row,
    txn_rows,
    with_derived_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from deltasql import _core
    from deltasql.mirror.log.read import StateStream
    from deltasql.model.actions import Metadata
    from deltasql.storage import FileInfo
    from deltasql.store.dialect import Session
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

# A function that is called in the transaction that appends commits, with their last version.
BeforeCommit: TypeAlias = "Callable[[Session, int], object]"
# How to time a commit without an in-commit timestamp. "file" takes the modification time of its
# file, as Delta's readers do. "commit" takes the time in its commitInfo, which a copy preserves.
Times = Literal["commit", "file"]


class ParsedCommit(Protocol):
    """A parsed commit file."""

    @property
    def version(self) -> int: ...
    @property
    def file(self) -> FileInfo: ...
    @property
    def digest(self) -> str:
        """The SHA-256 of the file."""

    @property
    def actions(self) -> _core.Commit: ...
    @property
    def adds(self) -> _core.FileList | None:
        """The added files, if they are not part of `actions`."""


class LogLoader:
    """Appends commits to one table in order, each call in one SQL transaction.

    A checkpoint is loaded in several transactions of `batch_files` files each. The last one writes
    the head. If a run crashes before that, the next run deletes its rows. `token` is the claim of a
    run on a hidden table. With it, nothing is written after another run has claimed the table.
    """

    def __init__(
        self,
        store: Store,
        table: TableRow,
        *,
        times: Times = "file",
        batch_files: int = BATCH_FILES,
        token: str | None = None,
    ) -> None:
        self._store, self._table, self._times = store, table, times
        self._batch_files = batch_files
        self._partitions: dict[str, int] = {}
        self._token = token
        self._position = self._read_position(store.head(table.table_id))
        # For an empty table, this loader adds every file, so it need not query which are new.
        self._seen = SeenFiles() if self._position.head is None else None

    @property
    def next_version(self) -> int | None:
        """The version to append next; None for an empty table, which can start at any version."""
        head = self._position.head
        return None if head is None else head.version + 1

    def totals(self, version: int) -> tuple[int, int]:
        """Return the number of live files of a loaded version, and their bytes."""
        at = {"table_id": self._table.table_id, "version": version}
        files, size = self._store.query("size_totals", **at)[0]
        return int(files), int(size)

    def start(
        self,
        state: StateStream,
        commit: ParsedCommit | None,
        at_ms: int,
        *,
        on_files: Callable[[int], None] | None = None,
    ) -> None:
        """Start a table with the state of a checkpoint as its first commit.

        `commit` is the commit file of that version, if it still exists. `at_ms` is used for a
        commit without a timestamp. `on_files` is called with the number of files of each batch.
        """
        self._claim()
        check_readable(state.protocol)
        check_metadata(state.metadata, f"version {state.version}")
        version, table_id = state.version, self._table.table_id
        schema = _schema(state.metadata)
        columns = SkippingColumns()
        columns.change(schema.skipping, 1)
        partitions: dict[str, int] = {}
        next_file_id = 1
        for files in file_batches(
            state, columns.active, schema.partition_columns, self._batch_files
        ):
            with self._change() as session:
                load.write(
                    session, LoadPlan(table_id, files), partitions, is_first=True, seen=self._seen
                )
            next_file_id = files.next_file_id
            if on_files is not None:
                on_files(len(files))
        info = (commit.actions.commit_info if commit else None) or CommitInfo()
        digest = commit.digest if commit else hashlib.sha256(str(version).encode()).hexdigest()
        plan = LoadPlan(table_id, LogFiles(next_file_id), columns=columns)
        plan.add("insert_metadata", [metadata_row(table_id, version, state.metadata)])
        plan.add("insert_protocol", [protocol_row(table_id, version, state.protocol)])
        plan.add("insert_txn", txn_rows(table_id, version, state.txns.values()))
        plan.add("insert_domain_metadata", domain_rows(table_id, version, state.domains.values()))
        at = self._time(info, at_ms)
        head = Head(table_id, version, at, next_file_id, version, version)
        plan.versions.append(self._version(head, info, lambda: digest))
        with self._change() as session:
            load.write(session, plan, partitions, is_first=True)
            write_head(session, None, head)
        self._partitions = partitions
        self._position = _Position(head, columns.copy(), schema.partition_columns)

    def append(
        self,
        commits: Sequence[ParsedCommit],
        *,
        before_commit: BeforeCommit | None = None,
    ) -> None:
        """Append consecutive commits in one transaction."""
        if not commits:
            return
        if self._position.head is None:
            self._claim()
        self._write(*self._plan(commits, self._position), before_commit)

    def append_all(
        self,
        batches: Iterable[Sequence[ParsedCommit]],
        *,
        before_commit: BeforeCommit | None = None,
    ) -> Iterator[Sequence[ParsedCommit]]:
        """Append batches of commits; while one is written, a thread reads the next one.

        Yields each batch after it is committed.
        """
        if self._position.head is None:
            self._claim()

        def plans() -> Iterator[tuple[Sequence[ParsedCommit], LoadPlan, _Position]]:
            position = self._position
            for batch in batches:
                plan, position = self._plan(batch, position)
                yield batch, plan, position

        for batch, plan, position in read_ahead(plans()):
            self._write(plan, position, before_commit)
            yield batch

    def time_of(self, commit: ParsedCommit) -> int:
        """Return the timestamp of a commit in milliseconds."""
        info = commit.actions.commit_info or CommitInfo()
        return self._time(info, commit.file.modified_ms)

    def _write(
        self, plan: LoadPlan, position: _Position, before_commit: BeforeCommit | None
    ) -> None:
        before, partitions = self._position.head, dict(self._partitions)
        assert position.head is not None
        with self._change() as session:
            load.write(session, plan, partitions, is_first=before is None, seen=self._seen)
            write_head(session, before, position.head)
            if not self._table.is_loading:  # a new table gets its row when it becomes visible
                audit.record(session, self._table.table_id, version=position.head.version)
            if before_commit is not None:
                before_commit(session, position.head.version)
        self._partitions, self._position = partitions, position

    def _plan(
        self, commits: Sequence[ParsedCommit], position: _Position
    ) -> tuple[LoadPlan, _Position]:
        """Compute all rows before the transaction begins, to keep it short."""
        table_id, head = self._table.table_id, position.head
        if head is not None and commits[0].version != head.version + 1:
            # Another process committed after the log was compared with the database.
            raise self._moved(commits[0].version - 1, head.version)
        columns, partition_columns = position.columns.copy(), position.partition_columns
        files = LogFiles(1 if head is None else head.next_file_id)
        files.set_columns(columns.active, partition_columns)
        plan = LoadPlan(table_id, files, columns=columns)
        for run in _runs(commits):
            first = run[0].actions
            if first.protocol is not None:
                check_readable(first.protocol)
            if first.metadata is not None:
                check_metadata(first.metadata, run[0].file.name)
                schema = _schema(first.metadata)
                columns.change(schema.skipping, files.next_file_id)
                partition_columns = schema.partition_columns
                files.set_columns(columns.active, partition_columns)
            elif head is None:
                raise LogParseError(
                    f"version {run[0].version} is the first version, but has no metaData action"
                )
            next_ids = files.append_commits([(c.version, c.actions, c.adds) for c in run])
            for commit, next_file_id in zip(run, next_ids, strict=True):
                head = self._plan_rows(plan, commit, head, next_file_id)
        return plan, _Position(head, columns.copy(), partition_columns)

    def _plan_rows(
        self, plan: LoadPlan, commit: ParsedCommit, before: Head | None, next_file_id: int
    ) -> Head:
        """Compute the rows of a commit that do not describe files."""
        table_id, version, actions = self._table.table_id, commit.version, commit.actions
        info = actions.commit_info or CommitInfo()
        metadata, protocol = actions.metadata, actions.protocol
        if protocol is not None:
            check_readable(protocol)
            plan.add("insert_protocol", [protocol_row(table_id, version, protocol)])
        if metadata is not None:
            plan.add("insert_metadata", [metadata_row(table_id, version, metadata)])
        if txns := {txn.app_id: txn for txn in actions.txns}:
            plan.add("insert_txn", txn_rows(table_id, version, txns.values()))
        if domains := {each.domain: each for each in actions.domain_metadata}:
            plan.add("insert_domain_metadata", domain_rows(table_id, version, domains.values()))
        if cdc := actions.cdc:
            plan.add("insert_cdc_file", cdc_rows(table_id, version, cdc))
        at_ms = self._time(info, commit.file.modified_ms)
        head = Head(
            table_id=table_id,
            version=version,
            committed_at_ms=at_ms if before is None else max(at_ms, before.committed_at_ms + 1),
            next_file_id=next_file_id,
            metadata_version=version if before is None or metadata else before.metadata_version,
            protocol_version=version if before is None or protocol else before.protocol_version,
        )
        plan.versions.append(self._version(head, info, lambda: commit.digest))
        return head

    def _version(
        self, head: Head, info: CommitInfo, digest: Callable[[], str]
    ) -> tuple[Commit, int]:
        own_id = info.txn_id
        commit = Commit(
            table=self._table,
            head=None,
            version=head.version,
            committed_at_ms=head.committed_at_ms,
            txn_id=derived_id(self._table, head.version, digest()) if own_id is None else own_id,
            group_size=_group_size(info.extra.get("group")),
            info=info,
        )
        if own_id is not None and not is_usable_id(own_id):
            commit = with_derived_id(commit)
        return commit, head.next_file_id

    def _claim(self) -> None:
        """Claim the table, so that no other run loads it, and delete the rows of an earlier run."""
        token = self._token or str(uuid.uuid4())
        table_id = self._table.table_id
        with self._store.change(is_bulk=True) as (session, _):
            # There is no head to lock, so lock the table's row. Another process may have written a
            # head before that.
            session.query("loading_properties", table_id=table_id)
            heads = session.query("read_head", table_id=table_id)
            self._check_not_moved(Head(*heads[0]) if heads else None)
            if not load.claim(session, table_id, token):
                raise self._taken()
            load.clear(session, table_id)
        self._token = token

    @contextmanager
    def _change(self) -> Iterator[Session]:
        """Open a transaction on the table; raise if another process changed the table."""
        table_id = self._table.table_id
        with self._store.change([table_id], is_bulk=True) as (session, heads):
            self._check_not_moved(heads.get(table_id))
            if self._token is not None and not load.is_claimed(session, table_id, self._token):
                raise self._taken()
            yield session

    def _taken(self) -> VersionTakenError:
        return VersionTakenError(
            f"another process has started to load {self._table.full_name}",
            table=self._table.full_name,
            help="Wait until that process ends, or start this one again.",
        )

    def _check_not_moved(self, found: Head | None) -> None:
        head = self._position.head
        known = None if head is None else head.version
        seen = None if found is None else found.version
        if known != seen:
            raise self._moved(known, seen)

    def _moved(self, known: int | None, seen: int | None) -> VersionTakenError:
        return VersionTakenError(
            f"{self._table.full_name} got new commits while its log was loaded",
            table=self._table.full_name,
            expected_version=known,
            actual_version=seen,
        )

    def _time(self, info: CommitInfo, modified_ms: int) -> int:
        at_ms = info.in_commit_timestamp
        if at_ms is None and self._times == "commit":
            at_ms = info.timestamp
        # Ignore an invalid, very large timestamp: timestamps must grow with each commit, so none
        # would be left for the next commit.
        return at_ms if isinstance(at_ms, int) and abs(at_ms) <= LAST_MS else modified_ms

    def _read_position(self, head: Head | None) -> _Position:
        if head is None:
            return _Position(None, SkippingColumns(), ())
        metadata = self._store.metadata(head.table_id, head.metadata_version)
        with self._store.session() as session:
            columns = SkippingColumns.read(session, head.table_id)
        return _Position(head, columns, _schema(metadata).partition_columns)


@dataclass(frozen=True, slots=True)
class _Position:
    """The head of the table, and the columns that its current metadata defines."""

    head: Head | None
    columns: SkippingColumns
    partition_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Schema:
    """The columns that metadata defines: partition columns and columns to index."""

    partition_columns: tuple[str, ...]
    skipping: tuple[tuple[tuple[str, ...], str], ...]


def _runs(commits: Sequence[ParsedCommit]) -> Iterator[Sequence[ParsedCommit]]:
    """Split commits where the metadata changes, so that the files of a part share their columns."""
    starts = [at for at, commit in enumerate(commits) if at and commit.actions.metadata is not None]
    for first, end in pairwise([0, *starts, len(commits)]):
        yield commits[first:end]


def _group_size(group: object) -> int:
    """Return the number of tables in a transaction from its commitInfo (see `_add_group`)."""
    fields = group if isinstance(group, dict) else {}
    size, participants = fields.get("size"), fields.get("participants")
    if isinstance(size, int) and not isinstance(size, bool) and 0 < size < 2**31:
        return size
    return len(participants) if isinstance(participants, list) else 1


def check_metadata(metadata: Metadata, source: str) -> None:
    """Raise if the files of a table cannot be read with this metadata; `source` is for errors."""
    if not metadata.schema_string:
        raise LogParseError(
            f"{source} has a metaData action without a schemaString",
            help="Only a new table may have no schema. Import the table once it has one.",
        )
    schema = schema_of(metadata.schema_string)
    physical_partition_columns(metadata, schema)
    check_mapping(schema, metadata.configuration)


def _schema(metadata: Metadata) -> _Schema:
    schema = schema_of(metadata.schema_string)
    columns = skipping_columns(schema, metadata.partition_columns, metadata.configuration)
    return _Schema(physical_partition_columns(metadata, schema), tuple(columns))
