"""Rows of the `dl_*` tables as dataclasses, and conversions between rows and actions."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from deltasql.model.actions import (
    AddCdcFile,
    AddFile,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from deltasql.store.dialect import Row

UNPARTITIONED = 0
# The transaction id of an imported commit may not fit into the database, which then stores an id
# derived from it. This is the key in `extra` for the original id.
_LOG_TXN_ID = "txnId"
_LONGEST_ID = 500
# The UUID namespace of derived ids. It is fixed, so that loading the same commit again gives the
# same id.
_DERIVED_IDS = uuid.UUID("6f1d0d3a-8a3c-4d6e-9d50-6d1a4f0e6c11")


@dataclass(frozen=True, slots=True)
class TableRow:
    """One table of the catalog, a row of `dl_tables`."""

    table_id: int
    table_uuid: str
    namespace: str
    name: str
    location: str
    created_at_ms: int
    dropped_at_ms: int | None
    properties: Mapping[str, str]

    LOADING: ClassVar[str] = "deltasql.loading"
    FOLLOWING: ClassVar[str] = "deltasql.following"

    @classmethod
    def from_row(cls, row: Row) -> TableRow:
        return cls(*(*row[:7], json.loads(row[7])))

    @property
    def is_loading(self) -> bool:
        """Whether the table's log is still being loaded, so that the table is not visible."""
        return self.LOADING in self.properties

    @property
    def is_following(self) -> bool:
        """Whether the log manages the table, so that the database has only a read-only index."""
        return self.FOLLOWING in self.properties

    @property
    def full_name(self) -> str:
        """The name that users see: `sales` in the default namespace, `crm.sales` in another."""
        return join_table_name(self.namespace, self.name)

    @property
    def live_name(self) -> str:
        """The unique key of the table's name while it is live (see `Head.live_name`)."""
        return live_name(self.namespace, self.name)


def live_name(namespace: str, name: str) -> str:
    """Return the unique key of a live table's name. Names never contain a slash."""
    return f"{namespace}/{name}"


@dataclass(frozen=True, slots=True)
class Head:
    """The row with the latest version of a table. A commit locks and updates it."""

    table_id: int
    version: int
    committed_at_ms: int
    next_file_id: int
    metadata_version: int
    protocol_version: int
    live_name: str | None = None


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One ratified commit of one table."""

    version: int
    committed_at_ms: int
    txn_id: str
    group_size: int
    info: CommitInfo
    next_file_id: int

    @classmethod
    def from_row(cls, row: Row) -> VersionRow:
        extra = load(row[14]) or {}
        info = CommitInfo(
            timestamp=row[12],
            in_commit_timestamp=row[13],
            operation=row[4],
            operation_parameters=load(row[5]),
            operation_metrics=load(row[6]),
            engine_info=row[7],
            user_metadata=row[8],
            is_blind_append=None if row[9] is None else bool(row[9]),
            read_version=row[10],
            isolation_level=row[11],
            txn_id=extra.pop(_LOG_TXN_ID, row[2]),
            extra=extra,
        )
        return cls(row[0], row[1], row[2], row[3], info, row[15])


@dataclass(frozen=True, slots=True)
class SkippingColumn:
    """A column whose bounds are indexed for files with first_file_id <= id < end_file_id."""

    column_id: int
    path: tuple[str, ...]
    type: str
    first_file_id: int
    end_file_id: int | None

    @classmethod
    def from_row(cls, row: Row) -> SkippingColumn:
        return cls(row[0], tuple(load(row[1])), row[2], row[3], row[4])

    def to_row(self, table_id: int) -> Row:
        return (table_id, self.column_id, dump(list(self.path)), self.type, self.first_file_id)

    @property
    def key(self) -> tuple[int, tuple[str, ...], str]:
        """(id, path, type), as `_core.index_files` takes it."""
        return self.column_id, self.path, self.type


@dataclass(frozen=True, slots=True)
class OneFile:
    """A blind append of one file, with the metadata and protocol versions it was written for."""

    table: TableRow
    add: AddFile
    txn_id: str
    info: CommitInfo
    now_ms: int
    metadata_version: int
    protocol_version: int
    in_commit_timestamps: bool
    partition_columns: Sequence[str]
    active_columns: Sequence[SkippingColumn]
    intents: int = 0

    def ratified(self, version: int, committed_at_ms: int) -> Commit:
        """Return the commit with the version and time that the database set."""
        info = replace(
            self.info,
            timestamp=committed_at_ms,
            in_commit_timestamp=committed_at_ms if self.in_commit_timestamps else None,
        )
        return Commit(
            table=self.table,
            head=None,
            version=version,
            committed_at_ms=committed_at_ms,
            txn_id=self.txn_id,
            group_size=1,
            info=info,
            adds=[self.add],
            partition_columns=self.partition_columns,
            replaces_nothing=True,
        )


@dataclass(slots=True)
class Commit:
    """The content of one version of one table."""

    table: TableRow
    head: Head | None  # None: this commit creates the table
    version: int
    committed_at_ms: int
    txn_id: str
    group_size: int
    info: CommitInfo
    adds: Sequence[AddFile] = ()
    removes: Sequence[RemoveFile] = ()
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    txns: Sequence[SetTransaction] = ()
    domains: Sequence[DomainMetadata] = ()
    cdc: Sequence[AddCdcFile] = ()
    partition_columns: Sequence[str] = ()
    # If the commit has new metadata, `skipping` has the columns to index from this version on.
    # Otherwise `active_columns` has the columns that are already indexed.
    skipping: Sequence[tuple[tuple[str, ...], str]] = ()
    active_columns: Sequence[SkippingColumn] = ()
    replaces_nothing: bool = False  # set by the commit: True if no added file was already live


def derived_id(table: TableRow, version: int, source: object) -> str:
    """Return an id for a commit of a log whose transaction id is missing or cannot be stored.

    `source` makes the id unique: the digest of the commit file, or the id that cannot be stored.
    """
    return str(uuid.uuid5(_DERIVED_IDS, f"{table.table_uuid}/{version}/{source}"))


def is_usable_id(txn_id: object) -> bool:
    """Return whether the database can store a log's transaction id, which can be any JSON value."""
    return isinstance(txn_id, str) and 0 < len(txn_id) <= _LONGEST_ID and "\0" not in txn_id


def with_derived_id(commit: Commit) -> Commit:
    """Return the commit with a derived transaction id; `extra` gets the id in its log."""
    log_id = commit.info.txn_id
    info = replace(commit.info, extra={**commit.info.extra, _LOG_TXN_ID: log_id})
    return replace(commit, txn_id=derived_id(commit.table, commit.version, log_id), info=info)


def dump(value: Any) -> str | None:
    """Return a value as JSON for a column; None becomes NULL."""
    return None if value is None else _encode(value)


# One encoder for all calls, because `json.dumps` with options creates an encoder in every call.
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def dump_extra(value: Mapping[str, Any]) -> str | None:
    return dump(dict(value)) if value else None


def dump_dv(vector: DeletionVector | None) -> str | None:
    return None if vector is None else dump(vector.body())


def load(text: str | None) -> Any:
    """Parse a JSON column; return None for NULL and for the empty string of a bulk read."""
    return json.loads(text) if text else None


def load_dv(text: str | None) -> DeletionVector | None:
    body = load(text)
    return None if body is None else DeletionVector.from_body(body)


def version_row(commit: Commit, next_file_id: int) -> Row:
    info = commit.info
    return (
        commit.table.table_id,
        commit.version,
        commit.committed_at_ms,
        commit.txn_id,
        commit.group_size,
        info.operation,
        dump(info.operation_parameters),
        dump(info.operation_metrics),
        info.engine_info,
        info.user_metadata,
        info.is_blind_append,
        info.read_version,
        info.isolation_level,
        info.timestamp,
        info.in_commit_timestamp,
        dump_extra(info.extra),
        next_file_id,
    )


def remove_rows(table_id: int, version: int, removes: Iterable[RemoveFile]) -> list[Row]:
    return [
        (
            table_id,
            version,
            ordinal,
            r.path,
            r.deletion_timestamp,
            r.data_change,
            r.extended_file_metadata,
            dump(dict(r.partition_values)) if r.partition_values is not None else None,
            r.size,
            r.stats,
            dump(dict(r.tags)) if r.tags is not None else None,
            dump_dv(r.deletion_vector),
            r.base_row_id,
            r.default_row_commit_version,
            dump_extra(r.extra),
        )
        for ordinal, r in enumerate(removes)
    ]


def remove_from_row(row: Row) -> RemoveFile:
    return RemoveFile(
        path=row[0],
        deletion_timestamp=row[1],
        data_change=bool(row[2]),
        extended_file_metadata=None if row[3] is None else bool(row[3]),
        partition_values=load(row[4]),
        size=row[5],
        stats=row[6],
        tags=load(row[7]),
        deletion_vector=load_dv(row[8]),
        base_row_id=row[9],
        default_row_commit_version=row[10],
        extra=load(row[11]) or {},
    )


def add_from_row(row: Row) -> AddFile:
    """Build an action from a row of `adds_between`."""
    return AddFile(
        path=row[1],
        partition_values=load(row[2]),
        size=row[3],
        modification_time=row[4],
        data_change=bool(row[5]),
        stats=row[6],
        tags=load(row[7]),
        deletion_vector=load_dv(row[8]),
        base_row_id=row[9],
        default_row_commit_version=row[10],
        clustering_provider=row[11],
        extra=load(row[12]) or {},
    )


def metadata_row(table_id: int, version: int, m: Metadata) -> Row:
    return (
        table_id,
        version,
        m.id,
        m.name,
        m.description,
        m.schema_string,
        dump(list(m.partition_columns)),
        dump(dict(m.configuration)),
        dump(m.format.body()),
        m.created_time,
        dump_extra(m.extra),
    )


def metadata_from_row(row: Row) -> Metadata:
    """Build an action from a row of `metadata_at` (which starts with its version)."""
    return Metadata(
        id=row[1],
        name=row[2],
        description=row[3],
        schema_string=row[4],
        partition_columns=tuple(load(row[5])),
        configuration=load(row[6]),
        format=Format.from_body(load(row[7])),
        created_time=row[8],
        extra=load(row[9]) or {},
    )


def protocol_row(table_id: int, version: int, p: Protocol) -> Row:
    return (
        table_id,
        version,
        p.min_reader_version,
        p.min_writer_version,
        None if p.reader_features is None else dump(list(p.reader_features)),
        None if p.writer_features is None else dump(list(p.writer_features)),
        dump_extra(p.extra),
    )


def protocol_from_row(row: Row) -> Protocol:
    """Build an action from a row of `protocol_at` (which starts with its version)."""
    return Protocol(
        min_reader_version=row[1],
        min_writer_version=row[2],
        reader_features=load(row[3]),
        writer_features=load(row[4]),
        extra=load(row[5]) or {},
    )


def txn_rows(table_id: int, version: int, txns: Iterable[SetTransaction]) -> list[Row]:
    return [
        (table_id, t.app_id, version, t.version, t.last_updated, dump_extra(t.extra)) for t in txns
    ]


def txn_from_row(row: Row) -> SetTransaction:
    """Build an action from (app_id, txn_version, last_updated, extra)."""
    return SetTransaction(row[0], row[1], row[2], extra=load(row[3]) or {})


def domain_rows(table_id: int, version: int, domains: Iterable[DomainMetadata]) -> list[Row]:
    return [
        (table_id, d.domain, version, d.configuration, d.removed, dump_extra(d.extra))
        for d in domains
    ]


def domain_from_row(row: Row) -> DomainMetadata:
    """Build an action from (domain, configuration, removed, extra)."""
    return DomainMetadata(row[0], row[1], bool(row[2]), extra=load(row[3]) or {})


def cdc_rows(table_id: int, version: int, files: Iterable[AddCdcFile]) -> list[Row]:
    return [
        (
            table_id,
            version,
            ordinal,
            c.path,
            dump(dict(c.partition_values)),
            c.size,
            c.data_change,
            dump(dict(c.tags)) if c.tags is not None else None,
            dump_extra(c.extra),
        )
        for ordinal, c in enumerate(files)
    ]


def cdc_from_row(row: Row) -> AddCdcFile:
    """Build an action from a row of `cdc_between`."""
    return AddCdcFile(
        path=row[1],
        partition_values=load(row[2]),
        size=row[3],
        data_change=bool(row[4]),
        tags=load(row[5]),
        extra=load(row[6]) or {},
    )
