"""Compare the files of a log with the database: commits, checkpoints, checksums and states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql._core import Table, parse_commit
from deltasql.exceptions import LogParseError, TxnLogProtocolError
from deltasql.exceptions.redaction import redact
from deltasql.mirror.log.encode import commits_between
from deltasql.mirror.log.file_tables import FILES, logical_files, replayed_files
from deltasql.mirror.log.last_checkpoint import hint_fault, read_last_checkpoint
from deltasql.mirror.log.listing import LAST_CHECKPOINT, read_json
from deltasql.mirror.log.read import contents_or_none
from deltasql.mirror.log.read_checkpoint import read_checkpoint
from deltasql.mirror.log.same_commit import same_content
from deltasql.mirror.publish.write_commit import is_torn
from deltasql.model.clock import now_ms
from deltasql.model.progress import Meter
from deltasql.model.properties import TableProperties
from deltasql.store.records import (
    domain_from_row,
    metadata_from_row,
    protocol_from_row,
    txn_from_row,
)
from deltasql.verify.compare import compare_action, compare_files, compare_mappings
from deltasql.verify.report import Difference, Differences
from deltasql.verify.sql_state import SqlState

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.log.read import LogState, StateStream
    from deltasql.mirror.log.read_checkpoint import CheckpointState
    from deltasql.model.actions import Action, SetTransaction
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

_FIELDS = [name for name in FILES.names if name not in ("path", "num_records")]
# In a checkpoint dataChange is always false.
_CHECKPOINT_FIELDS = [name for name in _FIELDS if name != "data_change"]
_COMMITS_PER_READ = 200
_TOMBSTONE_FIELDS = ["partition", "deletion_timestamp", "size"]
_OPTIONAL_IN_TOMBSTONES = (("size", None), ("partition", None), ("partition", "{}"))


@dataclass(frozen=True, slots=True)
class PublishedLog:
    """A published log, and the table in the database to compare it with."""

    store: Store
    table: TableRow
    storage: Storage
    listing: LogListing

    def sql_state(self, version: int) -> SqlState:
        """Return the state of the table in the database at a version."""
        return SqlState(self.store, self.table, version)


def unreadable(error: Exception, source: str, version: int | None = None) -> Difference:
    """Return a Difference that reports a log file that cannot be read, with the reason."""
    path = getattr(error, "path", None) or getattr(error, "filename", None)
    # Messages of other libraries may contain credentials.
    reason = redact(str(error).partition("\n")[0])
    return Difference("unreadable", version, path, log=reason, source=source)


def check_commits(
    log: PublishedLog, versions: range, found: Differences, meter: Meter | None = None
) -> tuple[int, list[int]]:
    """Compare commit files with the database.

    Returns the number of files, and the versions with equal content in different bytes, which
    another program wrote.
    """
    commits = log.listing.commits
    names = {v: commits[v].name for v in versions if v in commits}
    files = contents_or_none(log.storage, [*names.values()])
    expected = ((v, ours) for v, ours in _sql_commits(log, versions) if v in names)
    counted = (meter or Meter()).over("comparing commits", "commits", expected, len(names))
    foreign = []
    for (version, ours), theirs in zip(counted, files, strict=True):
        name = names[version]
        if theirs is None:
            found.add(Difference("missing-version", version, source="json"))
            continue
        try:
            if ours == theirs:
                continue
            if not theirs and same_content(ours, theirs):
                foreign.append(version)  # a foreign commit that was empty when it was imported
                continue
            if is_torn(theirs, ours):
                found.add(damaged_commit(version, name, len(theirs), len(ours)))
                continue
            if same_content(ours, theirs):
                foreign.append(version)
                continue
            found.add(Difference("diverged", version, name, source="json"))
            _compare_commits(ours, theirs, version, found)
        except LogParseError as error:
            line = f"line {error.line}"
            found.add(Difference("unreadable", version, name, line, None, error.message, "json"))
    return len(names), foreign


def damaged_commit(version: int, name: str, size: int, expected: int | None = None) -> Difference:
    """Return a Difference that reports an empty or truncated commit file."""
    found = "empty" if not size else f"truncated after {size:,} bytes"
    sql = None if expected is None else f"{expected:,} bytes"
    return Difference("damaged", version, name, None, sql, found, "json")


def _sql_commits(log: PublishedLog, versions: range) -> Iterator[tuple[int, bytes]]:
    """Yield (version, bytes) of the commits in the database."""
    version = versions.start
    while version < versions.stop:
        with log.store.session() as session:
            last = min(version + _COMMITS_PER_READ, versions.stop) - 1
            span = commits_between(session, log.table.table_id, version, last)
        yield from span
        version = span[-1][0] + 1


def _compare_commits(ours: bytes, theirs: bytes, version: int, found: Differences) -> None:
    """Compare two versions of a commit, action by action."""
    at: dict[str, Any] = {"version": version, "source": "json"}
    left, right = parse_commit(ours), parse_commit(theirs)
    compare_files(_added(ours, version), _added(theirs, version), found, fields=_FIELDS, **at)
    for kind, sql, log in (
        ("commit-info", left.commit_info, right.commit_info),
        ("metadata", left.metadata, right.metadata),
        ("protocol", left.protocol, right.protocol),
    ):
        compare_action(kind, sql, log, found, **at)
    _compare_named(
        "transaction",
        {each.app_id: each for each in left.txns},
        {each.app_id: each for each in right.txns},
        found,
        at,
    )
    _compare_named(
        "domain",
        {each.domain: each for each in left.domain_metadata},
        {each.domain: each for each in right.domain_metadata},
        found,
        at,
    )
    ours_removed, theirs_removed = (
        {each.path: each for each in commit.removes} for commit in (left, right)
    )
    _compare_named("remove", ours_removed, theirs_removed, found, at)


def _added(data: bytes, version: int) -> pa.Table:
    table = Table()
    table.apply(data, version)
    return replayed_files(table)


def compare_states(sql: SqlState, log: LogState, found: Differences) -> None:
    """Compare the state of a table at a version."""
    at: dict[str, Any] = {"version": log.version, "source": "replay"}
    fields = _FIELDS if log.checkpoint_version is None else _CHECKPOINT_FIELDS
    compare_files(sql.files, log.files, found, fields=fields, **at)
    compare_facts(sql, log, found)


def compare_facts(sql: SqlState, log: LogState | StateStream, found: Differences) -> None:
    """Compare the state of a table at a version, except its files."""
    at: dict[str, Any] = {"version": log.version, "source": "replay"}
    compare_action("metadata", sql.metadata, log.metadata, found, **at)
    compare_action("protocol", sql.protocol, log.protocol, found, **at)
    compare_transactions(sql, log.txns, found, at)
    _compare_named("domain", sql.domains, log.domains, found, at)


def compare_transactions(
    sql: SqlState, log: Mapping[str, SetTransaction], found: Differences, at: dict[str, Any]
) -> None:
    """Compare application transactions; either side may lack expired ones.

    A checkpoint leaves out expired transactions, so a table that was imported from a checkpoint
    lacks them too. The two sides may use different clocks to decide what has expired.
    """
    expired = sql.expired
    left = {name: txn for name, txn in sql.txns.items() if name in log or not expired(txn)}
    right = {name: txn for name, txn in log.items() if name in sql.txns or not expired(txn)}
    _compare_named("transaction", left, right, found, at)


def _compare_named(
    kind: str,
    sql: Mapping[str, Action],
    log: Mapping[str, Action],
    found: Differences,
    at: dict[str, Any],
) -> None:
    for name in sorted({*sql, *log}):
        compare_action(kind, sql.get(name), log.get(name), found, path=name, **at)


def check_checkpoints(
    log: PublishedLog, versions: Container[int], found: Differences, meter: Meter
) -> list[int]:
    """Compare every checkpoint with the database at its version; return the compared versions."""
    chosen = [each for each in log.listing.checkpoints if each.version in versions]
    for checkpoint in meter.over("comparing checkpoints", "checkpoints", chosen, len(chosen)):
        try:
            state = read_checkpoint(log.storage, checkpoint)
        except (TxnLogProtocolError, FileNotFoundError) as error:
            found.add(unreadable(error, "checkpoint", checkpoint.version))
            continue
        _compare_checkpoint(log.sql_state(checkpoint.version), state, found)
    return [each.version for each in chosen]


def _compare_checkpoint(sql: SqlState, state: CheckpointState, found: Differences) -> None:
    at: dict[str, Any] = {"version": state.version, "source": "checkpoint"}
    compare_files(sql.files, state.files, found, fields=_CHECKPOINT_FIELDS, **at)
    compare_action("metadata", sql.metadata, state.metadata, found, **at)
    compare_action("protocol", sql.protocol, state.protocol, found, **at)
    compare_transactions(sql, state.txns, found, at)
    _compare_named("domain", sql.domains, state.domains, found, at)
    retention = TableProperties(sql.metadata.configuration).deleted_file_retention
    retention_ms = retention.total_seconds() * 1000
    known = pc.is_in(
        logical_files(sql.tombstones), logical_files(state.tombstones).combine_chunks()
    )
    recent = pc.greater(
        pc.fill_null(sql.tombstones["deletion_timestamp"], 0), now_ms() - retention_ms
    )
    expected = sql.tombstones.filter(pc.or_(known, recent))
    # Report tombstones separately, because a missing tombstone only affects vacuum.
    tombstones = Differences(found.keep)
    compare_files(expected, state.tombstones, tombstones, fields=_TOMBSTONE_FIELDS, **at)
    for each in tombstones.kept:
        # deltalake before 1.0 leaves out optional fields.
        if each.kind != "file" or (each.field, each.log) not in _OPTIONAL_IN_TOMBSTONES:
            found.add(replace(each, kind=f"tombstone-{each.kind}"))


def check_last_checkpoint(log: PublishedLog, found: Differences) -> None:
    """Check that `_last_checkpoint` names a checkpoint of the log."""
    fault = hint_fault(log.storage, log.listing)
    if fault is None:
        return
    latest = max((each.version for each in log.listing.checkpoints), default=None)
    try:
        hint = read_last_checkpoint(log.storage)
    except LogParseError as error:
        found.add(unreadable(error, "checkpoint"))
        return
    seen = None if hint is None else hint["version"]
    is_latest = seen == latest  # in this case another member is wrong
    found.add(
        Difference(
            "last-checkpoint",
            None,
            LAST_CHECKPOINT,
            None if is_latest else "version",
            None if is_latest else latest,
            fault if is_latest else seen,
            "checkpoint",
        )
    )


def check_checksums(log: PublishedLog, versions: range, found: Differences) -> int:
    """Compare every checksum file with the database; return how many were compared."""
    checksums = log.listing.checksums
    present = [version for version in versions if version in checksums]
    if not present:
        return 0
    totals = _VersionTotals(log.store, log.table.table_id, present[-1])
    names = [checksums[version].name for version in present]
    contents = contents_or_none(log.storage, names)
    for version, name, data in zip(present, names, contents, strict=True):
        if data is None:  # deleted since the listing
            continue
        at: dict[str, Any] = {"version": version, "source": "crc", "path": name}
        try:
            body = read_json(name, data, needs="numFiles")
        except LogParseError as error:
            found.add(Difference("unreadable", log=error.message, **at))
            continue
        ours = totals.at(version)
        for name_of, key in (("appId", "setTransactions"), ("domain", "domainMetadata")):
            if key in body:
                body[key] = {each.get(name_of): each for each in body[key]}
        # A checksum may leave out most members.
        theirs = {key: body.get(key, ours[key]) for key in ours}
        compare_mappings("checksum", ours, theirs, found, **at)
    return len(present)


class _VersionTotals:
    """The totals of a table at each version, computed from a few queries."""

    def __init__(self, store: Store, table_id: int, last: int) -> None:
        at: dict[str, Any] = {"table_id": table_id, "last": last}
        self._changes: dict[int, tuple[int, int]] = {}
        for sign, name in ((1, "added_per_version"), (-1, "ended_per_version")):
            for version, count, size in store.query(name, **at):
                files, total = self._changes.get(version, (0, 0))
                self._changes[version] = (files + sign * count, total + sign * int(size))
        self._ordered = sorted(self._changes)
        rows = store.query("metadata_between", after=-1, **at)
        self._metadata = [(row[0], metadata_from_row(row)) for row in rows]
        rows = store.query("protocol_between", after=-1, **at)
        self._protocols = [(row[0], protocol_from_row(row)) for row in rows]
        rows = store.query("txns_between", after=-1, **at)
        self._txns = [(row[0], row[1], txn_from_row(row[1:])) for row in rows]
        rows = store.query("domains_between", after=-1, **at)
        self._domains = [(row[0], row[1], domain_from_row(row[1:])) for row in rows]
        self._position, self._files, self._bytes = 0, 0, 0

    def at(self, version: int) -> dict[str, Any]:
        """Return the totals of a version; calls must be in ascending order of versions."""
        while self._position < len(self._ordered) and self._ordered[self._position] <= version:
            files, size = self._changes[self._ordered[self._position]]
            self._files, self._bytes = self._files + files, self._bytes + size
            self._position += 1
        return {
            "numFiles": self._files,
            "tableSizeBytes": self._bytes,
            "numMetadata": 1,
            "numProtocol": 1,
            "metadata": _in_force(self._metadata, version),
            "protocol": _in_force(self._protocols, version),
            "setTransactions": _latest(self._txns, version),
            "domainMetadata": {
                name: body
                for name, body in _latest(self._domains, version).items()
                if not body["removed"]
            },
        }


def _in_force(updates: Sequence[tuple[int, Action]], version: int) -> dict[str, Any]:
    return [action for since, action in updates if since <= version][-1].body()


def _latest(updates: Sequence[tuple[int, str, Action]], version: int) -> dict[str, Any]:
    return {name: action.body() for since, name, action in updates if since <= version}
