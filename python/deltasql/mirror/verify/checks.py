"""The single comparisons that verification is made of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql._core import Table, parse_commit
from deltasql.exceptions import LogParseError, TxnLogProtocolError
from deltasql.exceptions.redaction import redact
from deltasql.mirror.log.encode import commits_between
from deltasql.mirror.log.file_tables import (
    FILES,
    logical_files,
    replayed_files,
)
from deltasql.mirror.log.listing import LAST_CHECKPOINT, hint_fault, read_last_checkpoint
from deltasql.mirror.log.read import contents_or_none
from deltasql.mirror.log.read_checkpoint import read_checkpoint
from deltasql.mirror.log.same_content import same_content
from deltasql.mirror.publish.put_commit import is_torn
from deltasql.mirror.verify.compare import (
    Difference,
    Differences,
    compare_action,
    compare_files,
)
from deltasql.mirror.verify.sql_state import SqlState
from deltasql.model.clock import now_ms
from deltasql.model.progress import Meter
from deltasql.model.properties import TableProperties

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.log.read import LogState, StateStream
    from deltasql.mirror.log.read_checkpoint import CheckpointState
    from deltasql.model.actions import Action, SetTransaction
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

_FIELDS = [name for name in FILES.names if name not in ("path", "num_records")]
# A checkpoint says of every file that nothing changes by it.
_CHECKPOINT_FIELDS = [name for name in _FIELDS if name != "data_change"]
_SPAN = 200  # commits read from SQL at once
_TOMBSTONE_FIELDS = ["partition", "deletion_timestamp", "size"]
_LEFT_OUT = (("size", None), ("partition", None), ("partition", "{}"))


def unreadable(error: Exception, source: str, version: int | None = None) -> Difference:
    """A file that cannot be read, as a difference that says why."""
    path = getattr(error, "path", None) or getattr(error, "filename", None)
    # The message is another library's: it may show what ours never do.
    why = redact(str(error).partition("\n")[0])
    return Difference("unreadable", version, path, log=why, source=source)


def check_commits(
    store: Store,
    table: TableRow,
    storage: Storage,
    listing: LogListing,
    versions: range,
    found: Differences,
    meter: Meter | None = None,
) -> tuple[int, list[int]]:
    """Compare commit files with SQL; return how many, and those with another writer's bytes."""
    names = {v: listing.commits[v].name for v in versions if v in listing.commits}
    files = contents_or_none(storage, [*names.values()])
    told = ((v, ours) for v, ours in _sql_commits(store, table, versions) if v in names)
    counted = (meter or Meter()).over("comparing commits", "commits", told, len(names))
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
                foreign.append(version)  # another writer's commit that was empty when imported
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
    """A commit file that holds nothing, or only the beginning of its content."""
    found = "empty" if not size else f"cut off after {size:,} bytes"
    sql = None if expected is None else f"{expected:,} bytes"
    return Difference("damaged", version, name, None, sql, found, "json")


def _sql_commits(store: Store, table: TableRow, versions: range) -> Iterator[tuple[int, bytes]]:
    """Yield the commits of SQL, a span at a time."""
    version = versions.start
    while version < versions.stop:
        with store.session() as session:
            last = min(version + _SPAN, versions.stop) - 1
            span = commits_between(session, table.table_id, version, last)
        yield from span
        version = span[-1][0] + 1


def _compare_commits(ours: bytes, theirs: bytes, version: int, found: Differences) -> None:
    """Say what of a commit differs, file by file."""
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
    gone, seen = ({each.path: each for each in commit.removes} for commit in (left, right))
    _compare_named("remove", gone, seen, found, at)


def _added(data: bytes, version: int) -> pa.Table:
    table = Table()
    table.apply(data, version)
    return replayed_files(table)


def compare_states(sql: SqlState, log: LogState, found: Differences) -> None:
    """Compare everything that is in force at a version."""
    at: dict[str, Any] = {"version": log.version, "source": "replay"}
    fields = _FIELDS if log.checkpoint_version is None else _CHECKPOINT_FIELDS
    compare_files(sql.files, log.files, found, fields=fields, **at)
    compare_facts(sql, log, found)


def compare_facts(sql: SqlState, log: LogState | StateStream, found: Differences) -> None:
    """Compare everything that is in force at a version but the files."""
    at: dict[str, Any] = {"version": log.version, "source": "replay"}
    compare_action("metadata", sql.metadata, log.metadata, found, **at)
    compare_action("protocol", sql.protocol, log.protocol, found, **at)
    compare_transactions(sql, log.txns, found, at)
    _compare_named("domain", sql.domains, log.domains, found, at)


def compare_transactions(
    sql: SqlState, log: Mapping[str, SetTransaction], found: Differences, at: dict[str, Any]
) -> None:
    """Compare the application transactions that both sides keep.

    A checkpoint leaves out those that have expired, and so does SQL that was loaded from one. When
    that happens depends on clocks: an expired transaction that one side lacks is no difference.
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
    store: Store,
    table: TableRow,
    storage: Storage,
    listing: LogListing,
    versions: Container[int],
    found: Differences,
    meter: Meter | None = None,
) -> list[int]:
    """Compare every checkpoint with SQL at its version; return the versions compared."""
    chosen = [each for each in listing.checkpoints if each.version in versions]
    counter = meter or Meter()
    for checkpoint in counter.over("comparing checkpoints", "checkpoints", chosen, len(chosen)):
        try:
            state = read_checkpoint(storage, checkpoint)
        except (TxnLogProtocolError, FileNotFoundError) as error:
            found.add(unreadable(error, "checkpoint", checkpoint.version))
            continue
        _compare_checkpoint(SqlState(store, table, checkpoint.version), state, found)
    return [each.version for each in chosen]


def _compare_checkpoint(sql: SqlState, state: CheckpointState, found: Differences) -> None:
    at: dict[str, Any] = {"version": state.version, "source": "checkpoint"}
    compare_files(sql.files, state.files, found, fields=_CHECKPOINT_FIELDS, **at)
    compare_action("metadata", sql.metadata, state.metadata, found, **at)
    compare_action("protocol", sql.protocol, state.protocol, found, **at)
    compare_transactions(sql, state.txns, found, at)
    _compare_named("domain", sql.domains, state.domains, found, at)
    retention = TableProperties(sql.metadata.configuration).deleted_file_retention
    kept_ms = retention.total_seconds() * 1000
    known = pc.is_in(
        logical_files(sql.tombstones), logical_files(state.tombstones).combine_chunks()
    )
    recent = pc.greater(pc.fill_null(sql.tombstones["deletion_timestamp"], 0), now_ms() - kept_ms)
    expected = sql.tombstones.filter(pc.or_(known, recent))
    # Named apart from live files: a tombstone that is missing loses nothing but vacuum's memory.
    tombstones = Differences(found.keep)
    compare_files(expected, state.tombstones, tombstones, fields=_TOMBSTONE_FIELDS, **at)
    for each in tombstones.kept:
        # deltalake before 1.0 leaves out what only spares others a look at the file.
        if each.kind != "file" or (each.field, each.log) not in _LEFT_OUT:
            found.add(replace(each, kind=f"tombstone-{each.kind}"))


def check_last_checkpoint(storage: Storage, listing: LogListing, found: Differences) -> None:
    """Check that the hint to the latest checkpoint leads to one."""
    fault = hint_fault(storage, listing)
    if fault is None:
        return
    latest = max((each.version for each in listing.checkpoints), default=None)
    try:
        hint = read_last_checkpoint(storage)
    except LogParseError as error:
        found.add(unreadable(error, "checkpoint"))
        return
    seen = None if hint is None else hint["version"]
    is_right = seen == latest  # then something else of it is wrong
    found.add(
        Difference(
            "last-checkpoint",
            None,
            LAST_CHECKPOINT,
            None if is_right else "version",
            None if is_right else latest,
            fault if is_right else seen,
            "checkpoint",
        )
    )
