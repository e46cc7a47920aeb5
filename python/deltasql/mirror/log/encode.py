"""Encode ratified commits as `_delta_log` files: the same commit always gives the same bytes.

A commit encoded from memory has the same bytes as the commit read from the database. For this,
transactions, domains and added files are sorted by name, and partition values are in the order of
the partition columns.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from deltasql import _core
from deltasql.exceptions import VersionNotFoundError
from deltasql.model.deletion_vector import vector_file
from deltasql.store.records import (
    Commit,
    VersionRow,
    add_from_row,
    cdc_from_row,
    domain_from_row,
    metadata_from_row,
    protocol_from_row,
    remove_from_row,
    txn_from_row,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from deltasql.model.actions import (
        Action,
        AddCdcFile,
        AddFile,
        CommitInfo,
        DomainMetadata,
        Metadata,
        Protocol,
        RemoveFile,
        SetTransaction,
    )
    from deltasql.store.dialect import Session
    from deltasql.store.store import Store

T = TypeVar("T")

# When commits are read from the database, at most this many add and remove actions are in memory.
MAX_FILES = 50_000


@dataclass(frozen=True, slots=True)
class CommitFile:
    """The content of a commit file, for publishing."""

    version: int
    data: bytes
    replaces_nothing: bool  # True if this version certainly removes no file


def commit_file(version: int) -> str:
    """Return the name of a commit file.

    >>> commit_file(7)
    '_delta_log/00000000000000000007.json'
    """
    return f"_delta_log/{version:020d}.json"


def encode_commit(commit: Commit) -> bytes:
    """Encode a commit from memory, without reading it from the database."""
    adds = [_with_ordered_partition(add, commit.partition_columns) for add in commit.adds]
    return _core.encode_commit(
        _in_order(
            commit.info,
            commit.protocol,
            commit.metadata,
            commit.txns,
            commit.domains,
            commit.removes,
            adds,
            commit.cdc,
        )
    )


def version_row(store: Store, table_id: int, version: int) -> VersionRow | None:
    """Read the row of a version from the database; None if the version is missing there."""
    rows = store.query("history", table_id=table_id, first=version, last=version, limit=1)
    return VersionRow.from_row(rows[0]) if rows else None


def commit_bytes(session: Session, table_id: int, version: int) -> bytes:
    """Read a commit from the database and encode it."""
    return _core.encode_commit(commit_actions(session, table_id, version))


def commit_actions(session: Session, table_id: int, version: int) -> list[Action]:
    """Read the actions of a commit from the database, in canonical order."""
    return actions_span(session, table_id, version, version)[0][1]


def actions_span(
    session: Session, table_id: int, first: int, last: int, *, max_files: int = MAX_FILES
) -> list[tuple[int, list[Action]]]:
    """Read commits from the database as (version, actions), with a fixed number of statements.

    The result has at least one commit. It may end before `last`, so that at most `max_files` files
    are in memory.
    """
    rows, first_file_id = _versions(session, table_id, first, last, max_files)
    span = {"table_id": table_id, "after": first - 1, "last": rows[-1].version}
    protocols = {r[0]: protocol_from_row(r) for r in session.query("protocol_between", **span)}
    metadata = {r[0]: metadata_from_row(r) for r in session.query("metadata_between", **span)}
    txns = _by_version((r[0], txn_from_row(r[1:])) for r in session.query("txns_between", **span))
    domains = _by_version(
        (r[0], domain_from_row(r[1:])) for r in session.query("domains_between", **span)
    )
    removes = _by_version(
        (r[12], remove_from_row(r)) for r in session.query("removes_between", **span)
    )
    cdc = _by_version((r[0], cdc_from_row(r)) for r in session.query("cdc_between", **span))
    adds: dict[int, list[AddFile]] = defaultdict(list)
    if rows[-1].next_file_id > first_file_id:
        adds = _by_version(
            (r[13], add_from_row(r))
            for r in session.query(
                "adds_between",
                table_id=table_id,
                first_file_id=first_file_id,
                next_file_id=rows[-1].next_file_id,
            )
        )
    if not session.query("version_exists", table_id=table_id, version=rows[0].version):
        raise _expired(session, table_id, rows[0].version)  # some of its rows may be missing
    return [
        (
            row.version,
            _in_order(
                row.info,
                protocols.get(row.version),
                metadata.get(row.version),
                txns[row.version],
                domains[row.version],
                removes[row.version],
                adds[row.version],
                cdc[row.version],
            ),
        )
        for row in rows
    ]


def commits_between(
    session: Session, table_id: int, first: int, last: int, *, max_files: int = MAX_FILES
) -> list[tuple[int, bytes]]:
    """Read commits from the database as (version, bytes); may end early like `actions_span`."""
    found = actions_span(session, table_id, first, last, max_files=max_files)
    return [(version, _core.encode_commit(actions)) for version, actions in found]


def actions_between(
    session: Session, table_id: int, first: int, last: int
) -> Iterator[tuple[int, list[Action]]]:
    """Yield the actions of the versions first..last in order."""
    version = first
    while version <= last:
        found = actions_span(session, table_id, version, last)
        yield from found
        version = found[-1][0] + 1


def commit_files_between(
    session: Session, table_id: int, first: int, last: int
) -> list[CommitFile]:
    """Read commit files from the database for publishing; may end early like `actions_span`."""
    found = commits_between(session, table_id, first, last)
    rows = session.query("ended_versions", table_id=table_id, after=first - 1, last=found[-1][0])
    ended = {row[0] for row in rows}
    return [CommitFile(version, data, version not in ended) for version, data in found]


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that a commit adds; `key` is the key of its add action, if it has one."""

    path: str
    key: bytes | None = None


def files_named(data: bytes) -> list[NamedFile]:
    """Return the files that a commit adds: data files, deletion vectors, change data files."""
    commit = _core.parse_commit(data)
    found = []
    for add in commit.adds:
        vector = add.deletion_vector
        key = _core.path_key(add.path, vector.unique_id if vector is not None else None)
        found.append(NamedFile(add.path, key))
        path = vector_file(vector) if vector is not None else None
        if path is not None:
            found.append(NamedFile(path, key))
    return found + [NamedFile(file.path) for file in commit.cdc]


def _versions(
    session: Session, table_id: int, first: int, last: int, max_files: int
) -> tuple[list[VersionRow], int]:
    """Return the versions that fit into memory, and the first file id of these versions."""
    found = session.query(
        "history", table_id=table_id, first=first - 1, last=last, limit=last - first + 2
    )
    rows = [VersionRow.from_row(row) for row in reversed(found)]
    first_file_id = 1
    if not rows:
        raise _expired(session, table_id, first)
    if rows[0].version == first - 1:
        first_file_id = rows.pop(0).next_file_id
    if rows and rows[0].version > first:
        raise _expired(session, table_id, first)
    if len(rows) == 1:
        return rows, first_file_id
    removed: dict[int, int] = dict(
        session.query("removes_per_version", table_id=table_id, after=first - 1, last=last)
    )
    ids = [first_file_id, *(row.next_file_id for row in rows)]
    files, fitting = 0, 0
    for row, (start, end) in zip(rows, pairwise(ids), strict=True):
        files += end - start + removed.get(row.version, 0)
        if fitting and files > max_files:
            break
        fitting += 1
    return rows[:fitting], first_file_id


def _expired(session: Session, table_id: int, version: int) -> VersionNotFoundError:
    low, _ = session.query("version_bounds", table_id=table_id)[0]
    return VersionNotFoundError(
        f"version {version} has expired: the history in the database begins at version {low}",
        version=version,
        help="Versions before it can no longer be published. Export or clone the table.",
    )


def _in_order(
    info: CommitInfo,
    protocol: Protocol | None,
    metadata: Metadata | None,
    txns: Sequence[SetTransaction],
    domains: Sequence[DomainMetadata],
    removes: Sequence[RemoveFile],
    adds: Sequence[AddFile],
    cdc: Sequence[AddCdcFile],
) -> list[Action]:
    # Sort in Python, because each database sorts strings by its own collation.
    actions: list[Action] = [info]
    actions += [action for action in (protocol, metadata) if action is not None]
    ordered_txns = sorted(txns, key=lambda txn: txn.app_id)
    ordered_domains = sorted(domains, key=lambda domain: domain.domain)
    ordered_adds = sorted(adds, key=_logical_file) if len(adds) > 1 else adds
    return [*actions, *ordered_txns, *ordered_domains, *removes, *ordered_adds, *cdc]


def _logical_file(add: AddFile) -> tuple[str, str]:
    vector = add.deletion_vector
    return add.path, vector.unique_id if vector is not None else ""


def _with_ordered_partition(add: AddFile, columns: Sequence[str]) -> AddFile:
    values = add.partition_values
    if not columns or list(values) == list(columns):
        return add
    ordered = {column: values.get(column) for column in columns}
    return replace(add, partition_values={**ordered, **values})


def _by_version(pairs: Iterable[tuple[int, T]]) -> dict[int, list[T]]:
    grouped: dict[int, list[T]] = defaultdict(list)
    for version, action in pairs:
        grouped[version].append(action)
    return grouped
