"""A blind append of one file to SQLite, where a statement can write to one table only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.phases import reached
from deltasql.store.dialect import Appended

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.store.append_one import OneFilePlan
    from deltasql.store.dialect import Session


def append_one_file(
    session: Session, plan: OneFilePlan, sending: Callable[[], None]
) -> Appended | None:
    """Take the write lock, check the head, write the rows and COMMIT."""
    one, table_id = plan.one, plan.guard["table_id"]
    session.begin()
    rows = session.query("head_as_known", **plan.guard)
    if not rows:
        return None
    reached("locked")
    if one.intents and session.execute("clear_staged_files", txn_id=one.txn_id) < one.intents:
        return None  # the general path raises the error
    head_version, committed_at_ms, file_id = rows[0]
    version, next_file_id = head_version + 1, file_id + 1
    timestamp_ms = max(one.now_ms, committed_at_ms + 1)
    sending()
    session.execute(
        "insert_add_file", table_id=table_id, file_id=file_id, added_version=version, **plan.file
    )
    if plan.stats:
        bounds = [(table_id, row[0], file_id, file_id, *row[3:]) for row in plan.stats]
        session.insert("insert_file_stats", bounds)
    session.execute(
        "insert_version",
        table_id=table_id,
        version=version,
        next_file_id=next_file_id,
        committed_at_ms=timestamp_ms,
        commit_timestamp=timestamp_ms,
        in_commit_timestamp=timestamp_ms if one.in_commit_timestamps else None,
        group_size=1,
        is_blind_append=True,
        **plan.info,
    )
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
