"""Log clean-up: delete what no version within the retention needs any more.

The history in SQL stays: only files of the published log are deleted.
"""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from typing import TYPE_CHECKING

from deltasql import telemetry
from deltasql.model.clock import now_ms
from deltasql.model.properties import TableProperties
from deltasql.phases import reached

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

_log = logging.getLogger(__name__)
LOG_FOLDER = "_delta_log/"
# A log that was never cleaned is worked off in pieces, so that no commit waits for it.
MOST_FILES = 2_000
_MILLISECOND = timedelta(milliseconds=1)
# Commits, checksums, checkpoints of all kinds, and compacted logs, which span two versions.
_VERSIONED = re.compile(
    r"_delta_log/(\d{20})\.(?:(\d{20})\.compacted\.json|json|crc|checkpoint\.[^/]*)"
)
_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_WHOLE_CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint\.parquet")


def clean_log(
    store: Store,
    table: TableRow,
    storage: Storage,
    configuration: Mapping[str, str],
    *,
    even_if_disabled: bool = False,
) -> int:
    """Delete log files older than the table keeps them, oldest first; return how many.

    A property can turn this off, which holds unless it is asked for outright. Then commits are
    also as old as their files, as deltalake takes them.

    A version is readable while its own commit or a later one is within the retention: everything
    from the newest checkpoint at or below that point on stays.
    """
    properties = TableProperties(configuration)
    if not (properties.expired_log_cleanup or even_if_disabled):
        return 0
    oldest_ms = now_ms() - properties.log_retention // _MILLISECOND
    rows = store.query("head_at_time", table_id=table.table_id, timestamp_ms=oldest_ms)
    last_needed = rows[0][1] if rows else -1
    if even_if_disabled:
        last_needed = max(last_needed, _first_young(storage, oldest_ms))
    expired = _expired(storage, last_needed) if last_needed >= 0 else []
    if expired:
        reached("cleaning")
        # A checkpoint whose name may be lost with the power stands in for nothing.
        storage.flush_folder(LOG_FOLDER)
        storage.delete_many(expired)
        telemetry.log(_log, logging.INFO, "log cleaned", table=table.full_name, files=len(expired))
    return len(expired)


def _first_young(storage: Storage, oldest_ms: int) -> int:
    """Return the first version after the commits whose files are old, -1 without one."""
    first = -1
    for file in storage.list(LOG_FOLDER):
        named = _COMMIT.fullmatch(file.name)
        if named is None:
            continue
        if file.modified_ms > oldest_ms:
            break
        first = int(named[1]) + 1
    return first


def _expired(storage: Storage, last_needed: int) -> list[str]:
    """List the files that the newest checkpoint up to a version makes needless, oldest first."""
    expired: list[str] = []
    waiting: list[tuple[int, str]] = []
    for file in storage.list(LOG_FOLDER):
        named = _VERSIONED.fullmatch(file.name)
        if named is None:
            continue
        first, last = int(named[1]), int(named[2] or named[1])
        if first > last_needed:
            break
        if _WHOLE_CHECKPOINT.fullmatch(file.name):
            expired += [name for version, name in waiting if version < first]
            waiting = [each for each in waiting if each[0] >= first]
            if len(expired) >= MOST_FILES:
                break
        waiting.append((last, file.name))
    return expired[:MOST_FILES]
