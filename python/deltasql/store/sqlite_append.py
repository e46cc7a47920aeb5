"""A blind append of one file to SQLite, which has no statement that writes to several tables.

Everybody else waits while it is written, so the inserts are made before the lock, of values that
the driver takes as they are: one that is None, bytes or a bool costs it three times as long.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from deltasql.phases import reached
from deltasql.store.dialect import Appended
from deltasql.store.statements import insert_many, insert_shape, insert_some

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.store.append_one import OneFilePlan
    from deltasql.store.dialect import Session
    from deltasql.store.sqlite import SqliteSession

# Statistics of so many columns are one statement; a statement has 32,766 parameters at most.
_AT_ONCE = 64
# What is known under the lock only, in this order.
_LATE_FILE = ("table_id", "file_id", "added_version")
_LATE_VERSION = ("table_id", "version", "next_file_id", "committed_at_ms", "commit_timestamp")


def append_in_turn(
    session: Session,
    plan: OneFilePlan,
    sending: Callable[[], None],
    meanwhile: Callable[[], None] | None = None,
) -> Appended | None:
    """Take the write lock, check the head, write and COMMIT."""
    one, table_id = plan.one, plan.guard["table_id"]
    run = cast("SqliteSession", session).run
    plan.file["path_key"] = bytearray(plan.file["path_key"])
    plan.file["data_change"] = int(plan.file["data_change"])
    plan.info["group_size"] = plan.info["is_blind_append"] = 1
    add_file, file = _ready("insert_add_file", _LATE_FILE, plan.file)
    times = ("in_commit_timestamp",) if one.in_commit_timestamps else ()
    add_version, info = _ready("insert_version", _LATE_VERSION + times, plan.info)
    stats = [(row[0], _plain(row[3]), _plain(row[4]), *row[5:]) for row in plan.stats]
    session.begin()
    rows = session.query("head_as_known", **plan.guard)
    if not rows:
        return None
    reached("locked")
    if one.intents and session.execute("clear_staged_files", txn_id=one.txn_id) < one.intents:
        return None  # the long way says why
    head_version, committed_at_ms, file_id = rows[0]
    version, next_file_id = head_version + 1, file_id + 1
    timestamp_ms = max(one.now_ms, committed_at_ms + 1)
    sending()
    run(add_file, (table_id, file_id, version, *file))
    bounds = [(table_id, column_id, file_id, file_id, *each) for column_id, *each in stats]
    if len(bounds) > _AT_ONCE:
        session.insert("insert_file_stats", bounds)
    elif bounds:
        run(insert_many("insert_file_stats", "sqlite", len(bounds), "?"), list(chain(*bounds)))
    late = (table_id, version, next_file_id, timestamp_ms, timestamp_ms)
    run(add_version, (*late, *([timestamp_ms] * len(times)), *info))
    session.execute(
        "move_head",
        table_id=table_id,
        version=version,
        committed_at_ms=timestamp_ms,
        next_file_id=next_file_id,
        metadata_version=one.metadata_version,
        protocol_version=one.protocol_version,
    )
    reached("committing")
    session.commit()
    return Appended(version, timestamp_ms)


def _ready(name: str, late: tuple[str, ...], values: dict[str, Any]) -> tuple[str, list[Any]]:
    """Return an insert without what is None, and its values but for the first ones, the late."""
    filled = {key: value for key, value in values.items() if value is not None}
    return _text(name, (*late, *filled)), list(filled.values())


def _plain(key: bytes | None) -> bytearray | None:
    return None if key is None else bytearray(key)


@lru_cache(maxsize=256)
def _text(name: str, columns: tuple[str, ...]) -> str:
    known = insert_shape(name, "sqlite")[1]
    return insert_some(name, "sqlite", tuple(known.index(column) for column in columns), "?")
