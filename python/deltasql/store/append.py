"""Turn commits into rows of the database.

For any commit, `prepare` reads what it needs while the head is locked, and `write` sends all rows
and commits. The most frequent commit is a blind append of one file. For it, `plan_one` prepares
everything that does not depend on the head before the lock is taken. With the lock, PostgreSQL then
runs one statement, and SQLite a few short ones (`append_one_file` of their dialects).
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltasql import _core
from deltasql.exceptions import InvalidActionError
from deltasql.phases import reached
from deltasql.store import audit
from deltasql.store.dialect import OneFilePlan
from deltasql.store.records import (
    UNPARTITIONED,
    Commit,
    Head,
    SkippingColumn,
    cdc_rows,
    domain_rows,
    dump,
    dump_extra,
    metadata_row,
    protocol_row,
    remove_rows,
    txn_rows,
    version_row,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from deltasql.model.actions import AddFile, RemoveFile
    from deltasql.store.dialect import Row, Session
    from deltasql.store.records import OneFile

# From this many rows on, drivers use bulk inserts, which cannot be part of a batch of statements.
BULK_ROWS = 64
# The columns of `dl_add_files` after the file id, as `_core.index_files` returns them.
_FILE_COLUMNS = (
    "path",
    "path_key",
    "partition_id",
    "size",
    "modification_time",
    "data_change",
    "stats",
    "num_records",
    "tags",
    "deletion_vector",
    "base_row_id",
    "default_row_commit_version",
    "clustering_provider",
    "extra",
)


@dataclass(slots=True)
class Plan:
    """The rows of one commit."""

    commit: Commit
    next_file_id: int
    indexed: _core.IndexedFiles | None = None
    stats: list[Row] = field(default_factory=list)
    new_partitions: list[Row] = field(default_factory=list)
    partitions: dict[str, int] = field(default_factory=dict)
    removed_ids: list[int] = field(default_factory=list)
    new_columns: list[Row] = field(default_factory=list)
    ended_columns: list[int] = field(default_factory=list)


def prepare(
    session: Session, commit: Commit, known: dict[str, int], *, check_duplicates: bool
) -> Plan:
    """Return the rows of a commit.

    `known` maps partition values to the ids that the caller has cached. With `check_duplicates`, if
    an added file is already live, the new row replaces the earlier one.
    """
    table_id = commit.table.table_id
    first_file_id = commit.head.next_file_id if commit.head else 1
    plan = Plan(commit, first_file_id + len(commit.adds))
    columns = _skipping_columns(session, commit, first_file_id, plan)
    if commit.removes:
        plan.removed_ids = _removed_ids(session, commit)
    if not commit.adds:
        return plan
    indexed = _core.index_files(commit.adds, columns, commit.partition_columns, first_file_id)
    if check_duplicates:
        superseded = session.query("live_by_key", table_id=table_id, keys=indexed.keys())
        plan.removed_ids += [row[1] for row in superseded if row[1] not in plan.removed_ids]
    plan.partitions, plan.new_partitions = partition_ids(
        session, table_id, indexed.partitions, known, is_new_table=commit.head is None
    )
    plan.indexed = indexed
    plan.stats = [(table_id, *row) for row in indexed.stats]
    return plan


def write(session: Session, plans: Sequence[Plan]) -> None:
    """Send the rows of all plans and COMMIT."""
    with _batch(session, plans):
        for plan in plans:
            _write_one(session, plan)
            reached("inserting")
        reached("committing")
        session.commit()


def _batch(session: Session, plans: Sequence[Plan]) -> AbstractContextManager[None]:
    bulk = any(max(len(p.commit.adds), len(p.commit.removes)) >= BULK_ROWS for p in plans)
    return nullcontext() if bulk else session.batch()


def _write_one(session: Session, plan: Plan) -> None:
    commit = plan.commit
    table_id, version = commit.table.table_id, commit.version
    if plan.removed_ids:
        session.execute(
            "mark_removed", table_id=table_id, version=version, file_ids=plan.removed_ids
        )
    for column_id in plan.ended_columns:
        session.execute(
            "end_skipping_column",
            table_id=table_id,
            column_id=column_id,
            end_file_id=plan.next_file_id - len(commit.adds),
        )
    _insert(session, "insert_skipping_column", plan.new_columns)
    _insert(session, "insert_partition", plan.new_partitions)
    if plan.indexed is not None:
        ids = [plan.partitions[values] for values in plan.indexed.partitions]
        session.insert_files(plan.indexed, table_id, ids, version)
    _insert(session, "insert_file_stats", plan.stats)
    _insert(session, "insert_remove_file", remove_rows(table_id, version, commit.removes))
    if commit.metadata is not None:
        session.insert("insert_metadata", [metadata_row(table_id, version, commit.metadata)])
    if commit.protocol is not None:
        session.insert("insert_protocol", [protocol_row(table_id, version, commit.protocol)])
    _insert(session, "insert_txn", txn_rows(table_id, version, commit.txns))
    _insert(session, "insert_domain_metadata", domain_rows(table_id, version, commit.domains))
    _insert(session, "insert_cdc_file", cdc_rows(table_id, version, commit.cdc))
    session.insert("insert_version", [version_row(commit, plan.next_file_id)])
    audit.record(session, table_id, version=version, txn_id=commit.txn_id)
    write_head(session, commit.head, _head_after(plan))


def _head_after(plan: Plan) -> Head:
    commit, before = plan.commit, plan.commit.head
    version = commit.version
    return Head(
        commit.table.table_id,
        version,
        commit.committed_at_ms,
        plan.next_file_id,
        before.metadata_version if before and commit.metadata is None else version,
        before.protocol_version if before and commit.protocol is None else version,
    )


def write_head(session: Session, before: Head | None, head: Head) -> None:
    """Insert the head of a table, or update it."""
    values = {
        "table_id": head.table_id,
        "version": head.version,
        "committed_at_ms": head.committed_at_ms,
        "next_file_id": head.next_file_id,
        "metadata_version": head.metadata_version,
        "protocol_version": head.protocol_version,
    }
    if before is None:
        session.insert("insert_head", [tuple(values.values())])
    else:
        session.execute("move_head", **values)


def _insert(session: Session, name: str, rows: list[Row]) -> None:
    if rows:
        session.insert(name, rows)


def _removed_ids(session: Session, commit: Commit) -> list[int]:
    keys = file_keys(commit.removes)
    found = live_files(session.query, commit.table.table_id, keys)
    for key, remove in keys.items():
        if key not in found:
            raise InvalidActionError(
                f"cannot remove {remove.path!r}: it is not a live file of {commit.table.full_name}",
                help="Remove only files of the current snapshot, each with its deletion vector.",
            )
    return list(found.values())


def file_keys(files: Iterable[AddFile | RemoveFile]) -> dict[bytes, AddFile | RemoveFile]:
    """Return a mapping from path keys to files."""
    return {_core.path_key(file.path, _vector_id(file)): file for file in files}


def live_files(
    query: Callable[..., list[Row]], table_id: int, files: Mapping[bytes, AddFile | RemoveFile]
) -> dict[bytes, int]:
    """Return the path keys and file ids of those files that are live."""
    # Earlier releases computed the key of an absolute path from the path as it was written. So the
    # same file may be stored under another key.
    older = {
        each: key
        for key, file in files.items()
        for each in _core.older_path_keys(file.path, _vector_id(file))
    }
    rows = query("live_by_key", table_id=table_id, keys=[*{**files, **older}])
    return {older.get(bytes(row[0]), bytes(row[0])): row[1] for row in rows}


def _vector_id(file: AddFile | RemoveFile) -> str | None:
    return file.deletion_vector.unique_id if file.deletion_vector else None


def partition_ids(
    session: Session,
    table_id: int,
    wanted: Sequence[str],
    known: Mapping[str, int],
    *,
    is_new_table: bool = False,
) -> tuple[dict[str, int], list[Row]]:
    """Return the ids of partitions, and rows for the partitions that the database lacks."""
    found = {values: known[values] for values in wanted if values in known}
    missing = [values for values in wanted if values not in found]
    if missing and not is_new_table:
        rows = session.query("partitions_by_value", table_id=table_id, partition_values=missing)
        found.update(dict(rows))
        missing = [values for values in missing if values not in found]
    last = 0
    if not is_new_table and any(values != "{}" for values in missing):
        last = session.query("last_partition_id", table_id=table_id)[0][0]
    new: list[Row] = []
    for values in missing:
        if values == "{}":
            found[values] = UNPARTITIONED
        else:
            last += 1
            found[values] = last
        new.append((table_id, found[values], values))
    return found, new


def _skipping_columns(
    session: Session, commit: Commit, first_file_id: int, plan: Plan
) -> list[tuple[int, tuple[str, ...], str]]:
    """Return (id, path, type) of the indexed columns; plan the changes for a new schema."""
    if commit.metadata is None and not commit.adds:
        return []
    if commit.metadata is None:
        return [column.key for column in commit.active_columns]
    rows = (
        []
        if commit.head is None
        else session.query("skipping_columns", table_id=commit.table.table_id)
    )
    registered = [SkippingColumn.from_row(row) for row in rows]
    new, plan.ended_columns = changed_columns(registered, commit.skipping, first_file_id)
    plan.new_columns = [column.to_row(commit.table.table_id) for column in new]
    kept = [
        c for c in registered if c.end_file_id is None and c.column_id not in plan.ended_columns
    ]
    return [column.key for column in (*kept, *new)]


def changed_columns(
    registered: Sequence[SkippingColumn],
    skipping: Iterable[tuple[tuple[str, ...], str]],
    first_file_id: int,
) -> tuple[list[SkippingColumn], list[int]]:
    """Return the columns to add to the index, and the ids of the columns to remove from it."""
    active = {(c.path, c.type): c for c in registered if c.end_file_id is None}
    wanted = dict.fromkeys(skipping)
    ended = [c.column_id for key, c in active.items() if key not in wanted]
    next_id = max((c.column_id for c in registered), default=0) + 1
    new = (key for key in wanted if key not in active)
    return [
        SkippingColumn(column_id, path, type_name, first_file_id, None)
        for column_id, (path, type_name) in enumerate(new, start=next_id)
    ], ended


def plan_one(one: OneFile, known: dict[str, int]) -> OneFilePlan | None:
    """Prepare an append of one file; return None if the file's partition id is not cached."""
    columns = [column.key for column in one.active_columns]
    indexed = _core.index_files([one.add], columns, one.partition_columns, 0)
    _, path, key, partition, *rest = indexed.files[0]
    partition_id = known.get(partition)
    if partition_id is None:
        return None
    info = one.info
    return OneFilePlan(
        guard={
            "table_id": one.table.table_id,
            "live_name": one.table.live_name,
            "metadata_version": one.metadata_version,
            "protocol_version": one.protocol_version,
        },
        file=dict(zip(_FILE_COLUMNS, (path, key, partition_id, *rest), strict=True)),
        info={
            "txn_id": one.txn_id,
            "operation": info.operation,
            "operation_parameters": dump(info.operation_parameters),
            "operation_metrics": dump(info.operation_metrics),
            "engine_info": info.engine_info,
            "user_metadata": info.user_metadata,
            "isolation_level": info.isolation_level,
            "extra": dump_extra(info.extra),
            "read_version": info.read_version,
        },
        stats=indexed.stats,
        now_ms=one.now_ms,
        in_commit_timestamps=one.in_commit_timestamps,
        intents=one.intents,
    )
