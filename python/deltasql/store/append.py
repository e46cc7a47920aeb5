"""Write commits as rows: `prepare` reads what is needed, `write` sends all rows and COMMITs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltasql import _core
from deltasql.exceptions import InvalidActionError
from deltasql.phases import reached
from deltasql.store.records import (
    UNPARTITIONED,
    Commit,
    SkippingColumn,
    cdc_rows,
    domain_rows,
    dump,
    load,
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

# From this many rows on, drivers use bulk inserts, which cannot be part of a batch.
BULK_ROWS = 64


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


def live_name(namespace: str, name: str) -> str:
    """Return the unique key of a live table's name; names never contain a slash."""
    return f"{namespace}/{name}"


def prepare(
    session: Session, commit: Commit, known: dict[str, int], *, check_duplicates: bool
) -> Plan:
    """Return the rows of a commit.

    `known` holds the partition ids that the caller has cached. With `check_duplicates`, added
    files that are already live replace their earlier rows.
    """
    table_id = commit.table.table_id
    first_file_id = commit.head.next_file_id if commit.head else 1
    plan = Plan(commit, first_file_id + len(commit.adds), partitions={})
    columns = _skipping_columns(session, commit, first_file_id, plan)
    if commit.removes:
        plan.removed_ids = _removed_ids(session, commit)
    if not commit.adds:
        return plan
    indexed = _core.index_files(commit.adds, columns, commit.partition_columns, first_file_id)
    if check_duplicates:
        superseded = session.query("live_by_key", table_id=table_id, keys=indexed.keys())
        plan.removed_ids += [row[1] for row in superseded if row[1] not in plan.removed_ids]
    _partition_ids(session, plan, indexed.partitions, known)
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
    _move_head(session, plan)


def _move_head(session: Session, plan: Plan) -> None:
    commit, head = plan.commit, plan.commit.head
    changed_metadata = commit.metadata is not None or head is None
    changed_protocol = commit.protocol is not None or head is None
    params: dict[str, Any] = {
        "table_id": commit.table.table_id,
        "version": commit.version,
        "committed_at_ms": commit.committed_at_ms,
        "next_file_id": plan.next_file_id,
        "metadata_version": commit.version if changed_metadata else head.metadata_version,  # type: ignore[union-attr]
        "protocol_version": commit.version if changed_protocol else head.protocol_version,  # type: ignore[union-attr]
    }
    if head is None:
        session.insert("insert_head", [tuple(params.values())])
    else:
        session.execute("move_head", **params)


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
                help="Remove files of the current snapshot, with the deletion vectors they have.",
            )
    return list(found.values())


def file_keys(files: Iterable[AddFile | RemoveFile]) -> dict[bytes, AddFile | RemoveFile]:
    """Return files by their path keys."""
    return {_core.path_key(file.path, _vector_id(file)): file for file in files}


def live_files(
    query: Callable[..., list[Row]], table_id: int, files: Mapping[bytes, AddFile | RemoveFile]
) -> dict[bytes, int]:
    """Return the path keys of the files that are live, with their file ids."""
    # Earlier releases computed the key of an absolute path from its spelling.
    older = {
        each: key
        for key, file in files.items()
        for each in _core.older_path_keys(file.path, _vector_id(file))
    }
    rows = query("live_by_key", table_id=table_id, keys=[*{**files, **older}])
    return {older.get(bytes(row[0]), bytes(row[0])): row[1] for row in rows}


def _vector_id(file: AddFile | RemoveFile) -> str | None:
    return file.deletion_vector.unique_id if file.deletion_vector else None


def _partition_ids(session: Session, plan: Plan, wanted: list[str], known: dict[str, int]) -> None:
    table_id = plan.commit.table.table_id
    if wanted == ["{}"]:
        plan.partitions = {"{}": UNPARTITIONED}
        if plan.commit.head is not None and "{}" not in known:
            rows = session.query("partitions_by_value", table_id=table_id, partition_values=wanted)
            if rows:
                return
        elif plan.commit.head is not None:
            return
        plan.new_partitions = [(table_id, UNPARTITIONED, "{}")]
        return
    plan.partitions = {value: known[value] for value in wanted if value in known}
    missing = [value for value in wanted if value not in plan.partitions]
    if missing and plan.commit.head is not None:
        rows = session.query("partitions_by_value", table_id=table_id, partition_values=missing)
        plan.partitions.update(dict(rows))
        missing = [value for value in missing if value not in plan.partitions]
    if not missing:
        return
    last = 0
    if plan.commit.head is not None:
        last = session.query("last_partition_id", table_id=table_id)[0][0]
    for offset, value in enumerate(missing, start=1):
        plan.partitions[value] = last + offset
        plan.new_partitions.append((table_id, last + offset, value))


def _skipping_columns(
    session: Session, commit: Commit, first_file_id: int, plan: Plan
) -> list[tuple[int, tuple[str, ...], str]]:
    """Return (id, path, type) of the indexed columns, and plan the changes of a new schema."""
    if commit.metadata is None and not commit.adds:
        return []
    if commit.metadata is None:
        return [(c.column_id, c.path, c.type) for c in commit.active_columns]
    rows = (
        []
        if commit.head is None
        else session.query("skipping_columns", table_id=commit.table.table_id)
    )
    registered = [SkippingColumn(r[0], tuple(load(r[1])), r[2], r[3], r[4]) for r in rows]
    new, plan.ended_columns = changed_columns(registered, commit.skipping, first_file_id)
    plan.new_columns = [
        (commit.table.table_id, c.column_id, dump(list(c.path)), c.type, c.first_file_id)
        for c in new
    ]
    kept = [
        c for c in registered if c.end_file_id is None and c.column_id not in plan.ended_columns
    ]
    return [(c.column_id, c.path, c.type) for c in (*kept, *new)]


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
