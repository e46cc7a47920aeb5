"""Append the commits of a `_delta_log` to SQL: the same versions, times and fields."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from deltasql._core import FileList, parse_commit, path_key
from deltasql.commit.state import physical_partition_columns
from deltasql.exceptions import LogParseError, VersionTakenError
from deltasql.mirror.file_tables import removes_from_table
from deltasql.model.actions import CommitInfo
from deltasql.model.protocol import check_readable
from deltasql.model.schema import StructType, skipping_columns
from deltasql.store import append
from deltasql.store.records import Commit, Head, SkippingColumn, load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltasql.mirror.read_log import LogCommit, LogState
    from deltasql.model.actions import AddFile, Metadata, Protocol, RemoveFile
    from deltasql.store.dialect import Session
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

# When a commit without an in-commit timestamp happened: at the time it tells itself, which
# survives a copy of the lake, or when its file was written, which Delta's readers go by.
Times = Literal["commit", "file"]
# Commits that tell no transaction id get one that is the same whenever they are loaded.
_IDS = uuid.UUID("6f1d0d3a-8a3c-4d6e-9d50-6d1a4f0e6c11")


class LogLoader:
    """Appends commits to one table, in order, each call in one SQL transaction."""

    def __init__(self, store: Store, table: TableRow, *, times: Times = "commit") -> None:
        self._store, self._table, self._times = store, table, times
        self._head = store.head(table.table_id)
        self._partitions: dict[str, int] = {}
        self._schema = None if self._head is None else self._schema_of(self._head)

    @property
    def next_version(self) -> int | None:
        """The version to append next; None when any may be the first."""
        return None if self._head is None else self._head.version + 1

    def start(self, state: LogState, commit: LogCommit | None, at_ms: int) -> None:
        """Begin a table whose older commits are gone: all that a checkpoint holds is one commit.

        `commit` is the commit file of that version, where it is still there; `at_ms` is when it
        happened, if the file does not tell.
        """
        info = (commit.actions.commit_info if commit else None) or CommitInfo()
        data = commit.data if commit else str(state.version).encode()
        columns = dict.fromkeys(_schema(state.metadata).partition_columns)
        gone = [
            each
            if each.partition_values is None
            else replace(each, partition_values={**columns, **each.partition_values})
            for each in removes_from_table(state.tombstones)
        ]
        self._append(
            [
                _Parts(
                    version=state.version,
                    at_ms=self._time(info, at_ms),
                    txn_id=self._txn_id(info, state.version, data),
                    info=info,
                    adds=cast("Sequence[AddFile]", list(FileList.from_arrow(state.files))),
                    removes=gone,
                    metadata=state.metadata,
                    protocol=state.protocol,
                    txns=list(state.txns.values()),
                    domains=list(state.domains.values()),
                )
            ]
        )

    def append(
        self, commits: Sequence[LogCommit], *, also: Callable[[Session], object] | None = None
    ) -> None:
        """Append commits that follow one another; `also` is done in the same transaction."""
        self._append([self._parts(commit) for commit in commits], also)

    def time_of(self, commit: LogCommit) -> int:
        """Return when a commit happened, in milliseconds."""
        info = commit.actions.commit_info or CommitInfo()
        return self._time(info, commit.file.modified_ms)

    def _parts(self, commit: LogCommit) -> _Parts:
        actions = commit.actions
        info = actions.commit_info or CommitInfo()
        adds = actions.adds
        if len({add.path for add in adds}) < len(adds):
            # What a commit says twice of a file, it says last.
            adds = list({_key(add): add for add in adds}.values())
        return _Parts(
            version=commit.version,
            at_ms=self.time_of(commit),
            txn_id=self._txn_id(info, commit.version, commit.data),
            info=info,
            adds=cast("Sequence[AddFile]", adds),
            removes=list({_key(remove): remove for remove in actions.removes}.values()),
            metadata=actions.metadata,
            protocol=actions.protocol,
            txns=list({txn.app_id: txn for txn in actions.txns}.values()),
            domains=list({each.domain: each for each in actions.domain_metadata}.values()),
            cdc=actions.cdc,
        )

    def _append(
        self, commits: Sequence[_Parts], also: Callable[[Session], object] | None = None
    ) -> None:
        store, table_id = self._store, self._table.table_id
        head, schema, partitions = self._head, self._schema, dict(self._partitions)
        with (
            append.without_garbage_collection(sum(len(each.adds) for each in commits)),
            store.change([table_id]) as (session, heads),
        ):
            self._refuse_moved(heads.get(table_id))
            for parts in commits:
                schema = _next_schema(session, table_id, parts, schema)
                record = self._record(parts, head, schema)
                head = _write(session, record, partitions)
            if also is not None:
                also(session)
        self._head, self._schema, self._partitions = head, schema, partitions

    def _record(self, parts: _Parts, head: Head | None, schema: _Schema) -> Commit:
        group = parts.info.extra.get("group")
        participants = group.get("participants") if isinstance(group, dict) else None
        at_ms = parts.at_ms if head is None else max(parts.at_ms, head.committed_at_ms + 1)
        return Commit(
            table=self._table,
            head=head,
            version=parts.version,
            committed_at_ms=at_ms,
            txn_id=parts.txn_id,
            group_size=len(participants) if isinstance(participants, list) else 1,
            info=replace(parts.info, txn_id=parts.txn_id),
            adds=parts.adds,
            removes=parts.removes,
            metadata=parts.metadata,
            protocol=parts.protocol,
            txns=parts.txns,
            domains=parts.domains,
            cdc=parts.cdc,
            partition_columns=schema.partition_columns,
            skipping=schema.skipping,
            active_columns=schema.active_columns,
        )

    def _refuse_moved(self, found: Head | None) -> None:
        known = None if self._head is None else self._head.version
        seen = None if found is None else found.version
        if known != seen:
            raise VersionTakenError(
                f"{self._table.full_name} was committed to while its log was loaded",
                table=self._table.full_name,
                expected_version=known,
                actual_version=seen,
            )

    def _time(self, info: CommitInfo, modified_ms: int) -> int:
        if info.in_commit_timestamp is not None:
            return info.in_commit_timestamp
        told = info.timestamp if self._times == "commit" else None
        return modified_ms if told is None else told

    def _txn_id(self, info: CommitInfo, version: int, data: bytes) -> str:
        if info.txn_id:
            return info.txn_id
        return commit_id(self._table, version, data)

    def _schema_of(self, head: Head) -> _Schema:
        store, table_id = self._store, head.table_id
        metadata = store.metadata(table_id, head.metadata_version)
        with store.session() as session:
            return replace(_schema(metadata), active_columns=_active(session, table_id))


@dataclass(frozen=True, slots=True)
class _Parts:
    """A commit of the log, not yet placed in SQL."""

    version: int
    at_ms: int
    txn_id: str
    info: CommitInfo
    adds: Sequence[AddFile]
    removes: Sequence[RemoveFile]
    metadata: Metadata | None
    protocol: Protocol | None
    txns: Sequence[Any]
    domains: Sequence[Any]
    cdc: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class _Schema:
    """What the metadata in force says of files: partition columns, columns to index."""

    partition_columns: tuple[str, ...]
    skipping: tuple[tuple[tuple[str, ...], str], ...]
    active_columns: tuple[SkippingColumn, ...] = ()
    is_new: bool = True


def commit_id(table: TableRow, version: int, data: bytes) -> str:
    """Return the transaction id of a commit file that tells none: always the same."""
    digest = hashlib.sha256(data).hexdigest()
    return str(uuid.uuid5(_IDS, f"{table.table_uuid}/{version}/{digest}"))


def has_commit(store: Store, table: TableRow, version: int, data: bytes) -> bool:
    """Tell whether a version of SQL is the commit of a file, by its transaction id.

    Also of a version that was loaded as a sum of all before it.
    """
    rows = store.query("history", table_id=table.table_id, first=version, last=version, limit=1)
    if not rows:
        return False
    info = parse_commit(data, version=version).commit_info
    told = None if info is None else info.txn_id
    return bool(rows[0][2] == (told or commit_id(table, version, data)))


def _next_schema(session: Session, table_id: int, parts: _Parts, before: _Schema | None) -> _Schema:
    if parts.protocol is not None:
        check_readable(parts.protocol)
    if parts.metadata is not None:
        return _schema(parts.metadata)
    if before is None:
        raise LogParseError(f"version {parts.version} is the first and has no metaData action")
    if before.is_new:
        return replace(before, active_columns=_active(session, table_id), is_new=False)
    return before


def _schema(metadata: Metadata) -> _Schema:
    schema = StructType.from_json(metadata.schema_string)
    columns = skipping_columns(schema, metadata.partition_columns, metadata.configuration)
    return _Schema(physical_partition_columns(metadata, schema), tuple(columns))


def _active(session: Session, table_id: int) -> tuple[SkippingColumn, ...]:
    rows = session.query("skipping_columns", table_id=table_id)
    found = (SkippingColumn(r[0], tuple(load(r[1])), r[2], r[3], r[4]) for r in rows)
    return tuple(each for each in found if each.end_file_id is None)


def _write(session: Session, commit: Commit, partitions: dict[str, int]) -> Head:
    """Write one commit's rows and return the head after it; the caller ends the transaction."""
    removes = commit.removes
    # A log may remove a file that is not live; its row is kept, there is nothing to end.
    commit.removes = _live(session, commit)
    plan = append.prepare(session, commit, partitions, careful=True)
    commit.removes = removes
    append.write_rows(session, plan)
    partitions.update(plan.partitions)
    head, version = commit.head, commit.version
    keeps_metadata = head is not None and commit.metadata is None
    keeps_protocol = head is not None and commit.protocol is None
    return Head(
        table_id=commit.table.table_id,
        version=version,
        committed_at_ms=commit.committed_at_ms,
        next_file_id=plan.next_file_id,
        metadata_version=cast("Head", head).metadata_version if keeps_metadata else version,
        protocol_version=cast("Head", head).protocol_version if keeps_protocol else version,
    )


def _live(session: Session, commit: Commit) -> list[RemoveFile]:
    if not commit.removes or commit.head is None:
        return []
    keys = {_key(remove): remove for remove in commit.removes}
    rows = session.query("live_by_key", table_id=commit.table.table_id, keys=list(keys))
    return [keys[bytes(row[0])] for row in rows]


def _key(file: Any) -> bytes:
    vector = file.deletion_vector
    return path_key(file.path, vector.unique_id if vector is not None else None)
