"""The fast path for a blind append of one file, the most frequent commit.

Everything that does not depend on the head is prepared before the head is locked. Under the lock
PostgreSQL runs one statement, and SQLite a few short ones (`sqlite/append_one.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltasql import _core
from deltasql.store.append import live_name
from deltasql.store.dialect import Appended
from deltasql.store.records import OneFile, dump, dump_extra

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.store.dialect import Row, Session

_FILE = (
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
class OneFilePlan:
    """The values of one append, without the version, file id and time that the head decides."""

    guard: dict[str, Any]
    file: dict[str, Any]
    info: dict[str, Any]
    stats: list[Row]
    one: OneFile


def plan_one(one: OneFile, known: dict[str, int]) -> OneFilePlan | None:
    """Prepare an append; None if the id of the file's partition is not cached."""
    columns = [(c.column_id, c.path, c.type) for c in one.active_columns]
    indexed = _core.index_files([one.add], columns, one.partition_columns, 0)
    _, path, key, partition, *rest = indexed.files[0]
    partition_id = known.get(partition)
    if partition_id is None:
        return None
    table_id, info = one.table.table_id, one.info
    return OneFilePlan(
        guard={
            "table_id": table_id,
            "live_name": live_name(one.table.namespace, one.table.name),
            "metadata_version": one.metadata_version,
            "protocol_version": one.protocol_version,
        },
        file=dict(zip(_FILE, (path, key, partition_id, *rest), strict=True)),
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
        one=one,
    )


def append_in_one_statement(
    session: Session, plan: OneFilePlan, sending: Callable[[], None]
) -> Appended | None:
    """Lock the head, check it and write everything in one statement."""
    bounds = [
        {
            "id": row[0],
            "low": None if row[3] is None else row[3].hex(),
            "high": None if row[4] is None else row[4].hex(),
            "nulls": row[5],
            "rows": row[6],
        }
        for row in plan.stats
    ]
    params = plan.info | plan.file | plan.guard
    params |= {
        "now_ms": plan.one.now_ms,
        "intents": plan.one.intents,
        "in_commit_timestamps": plan.one.in_commit_timestamps,
        "file_stats": plan.file["stats"],
        "info_extra": plan.info["extra"],
        "bounds": dump(bounds),
    }
    sending()
    rows = session.query("append_one_file", **params)
    return Appended(*rows[0]) if rows else None
