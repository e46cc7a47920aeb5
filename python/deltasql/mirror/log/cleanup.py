"""Log clean-up: delete published log files that are older than the log retention of the table.

The history in the database is not deleted.
"""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from typing import TYPE_CHECKING

from deltasql import telemetry
from deltasql.exceptions import VersionNotFoundError
from deltasql.mirror.log.listing import LOG_FOLDER
from deltasql.model.clock import now_ms
from deltasql.model.properties import TableProperties
from deltasql.phases import reached

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

_log = logging.getLogger(__name__)
# The maximum number of files that one run deletes. It limits how long a commit waits when a long
# log is cleaned up for the first time.
MAX_DELETED_FILES = 2_000
_MILLISECOND = timedelta(milliseconds=1)
# Commits, checksums and checkpoints of all kinds. Compacted logs have two versions in their names.
_VERSIONED = re.compile(
    r"_delta_log/(\d{20})\.(?:(\d{20})\.compacted\.json|json|crc|checkpoint\.[^/]*)"
)
_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_CLASSIC_CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint\.parquet")


def clean_log(
    store: Store,
    table: TableRow,
    storage: Storage,
    configuration: Mapping[str, str],
    *,
    even_if_disabled: bool = False,
) -> int:
    """Delete log files that are past the table's log retention, oldest first; return how many.

    A table property can disable this. `even_if_disabled` ignores that property. Like deltalake, it
    also uses the modification time of a commit file as the age of the commit.

    The version that was current at the start of the retention stays readable. For that, the newest
    checkpoint at or before this version is not deleted, nor are the files after that checkpoint.
    If another program wrote this checkpoint, it may be wrong. Because the commits before it are
    deleted, deltasql first replaces it by a checkpoint from the database.
    """
    properties = TableProperties(configuration)
    if not (properties.expired_log_cleanup or even_if_disabled):
        return 0
    oldest_ms = now_ms() - properties.log_retention // _MILLISECOND
    rows = store.query("head_at_time", table_id=table.table_id, timestamp_ms=oldest_ms)
    oldest_kept = rows[0][1] if rows else -1
    if even_if_disabled:
        oldest_kept = max(oldest_kept, _first_recent(storage, oldest_ms))
    protected = properties.protected_before
    expired, checkpoint = (
        _expired(storage, oldest_kept, protected) if oldest_kept >= protected else ([], -1)
    )
    if expired and not _replace_foreign(store, table, storage, checkpoint):
        return 0
    if expired:
        reached("cleaning")
        # Flush first: the checkpoint that replaces the deleted files must survive a power loss.
        storage.flush_folder(LOG_FOLDER)
        storage.delete_many(expired)
        telemetry.log(_log, logging.INFO, "log cleaned", table=table.full_name, files=len(expired))
    return len(expired)


def _first_recent(storage: Storage, oldest_ms: int) -> int:
    """Return the version after the last old commit file; -1 if no commit file is old."""
    first = -1
    for file in storage.list(LOG_FOLDER):
        named = _COMMIT.fullmatch(file.name)
        if named is None:
            continue
        if file.modified_ms > oldest_ms:
            break
        first = int(named[1]) + 1
    return first


def _replace_foreign(store: Store, table: TableRow, storage: Storage, version: int) -> bool:
    """Make sure that the checkpoint of a version is ours; return False if that is not possible."""
    # lazy import: it reads and writes Parquet
    from deltasql.mirror.checkpoint.write import is_own_checkpoint, write_checkpoint

    if is_own_checkpoint(storage, table, version):
        return True
    try:
        write_checkpoint(store, table, storage, version)
    except VersionNotFoundError:  # before the first version in the database
        return False
    return True


def _expired(storage: Storage, oldest_kept: int, protected: int) -> tuple[list[str], int]:
    """Return the files that readers no longer need for `oldest_kept` or later, oldest first.

    These are the files before the newest checkpoint at or before that version. The version of this
    checkpoint is returned, too. Checkpoints before the version `protected` are ignored: to read
    from such a checkpoint, a reader must support a feature that the table has dropped since.
    """
    expired: list[str] = []
    checkpoint = -1
    candidates: list[tuple[int, str]] = []
    for file in storage.list(LOG_FOLDER):
        named = _VERSIONED.fullmatch(file.name)
        if named is None:
            continue
        first, last = int(named[1]), int(named[2] or named[1])
        if first > oldest_kept:
            break
        if first >= protected and _CLASSIC_CHECKPOINT.fullmatch(file.name):
            expired += [name for version, name in candidates if version < first]
            candidates = [each for each in candidates if each[0] >= first]
            checkpoint = first
            if len(expired) >= MAX_DELETED_FILES:
                break
        candidates.append((last, file.name))
    return expired[:MAX_DELETED_FILES], checkpoint
