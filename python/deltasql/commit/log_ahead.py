"""Detect a log that is ahead of its database, before the next commit.

A database may lack versions that it had published: it was restored from a backup, or it lost its
last commits in a power failure (`synchronous = normal`, `synchronous_commit = off`). A new commit
would use such a version number a second time.

The log is checked before the first commit to a table in a process, and again after a new connection
to the database. The check needs two requests to the storage and no listing. Other commits are not
checked. If one of them reuses a published version, publishing it fails, because put-if-absent never
overwrites a commit file.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from deltasql import telemetry
from deltasql._core import parse_commit
from deltasql.commit.conflict import ENGINE_INFO
from deltasql.exceptions import LogAheadError, LogParseError, TxnLogError
from deltasql.mirror.log.encode import commit_file
from deltasql.mirror.log.last_checkpoint import has_checkpoint, last_checkpoint_version
from deltasql.mirror.log.listing import LOG_FOLDER, sort_files
from deltasql.storage import open_storage

if TYPE_CHECKING:
    from deltasql.config import Config
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

_log = logging.getLogger(__name__)


class LogAheadCheck:
    """Checks the log of each table once, and again after a new connection to the database."""

    def __init__(self, store: Store, config: Config) -> None:
        self._store, self._config = store, config
        self._checked: dict[int, int] = {}

    def check(self, table: TableRow) -> None:
        """Raise LogAheadError if the log has commits of this catalog that the database lost.

        If the log cannot be read, the commit continues, and the next commit checks the log again.
        """
        connections = self._store.dialect.connections_opened
        if self._checked.get(table.table_id) == connections or table.is_following:
            return
        storage = open_storage(table.location, self._config.storage)
        try:
            self._check_not_ahead(table, storage)
        except LogAheadError:
            raise
        except (OSError, TxnLogError) as error:
            telemetry.log(
                _log, logging.INFO, "log not checked", table=table.full_name, error=str(error)
            )
            return
        self._checked[table.table_id] = connections

    def _check_not_ahead(self, table: TableRow, storage: Storage) -> None:
        head = self._store.head(table.table_id)
        if head is None:
            return  # the table was dropped, and the commit will raise the error
        found = self._lost_version(table, storage, head.version)
        if found is None:
            return
        # Another process may have published this version after the head was read. A commit is
        # ratified before it is published, so the database has it by now, unless the database lost
        # it.
        latest = self._store.head(table.table_id)
        if latest is None or found <= latest.version:
            return
        # A rollback drops the table before it writes the last commit of the log.
        current = self._store.find_table(table.namespace, table.name, fresh=True)
        if current is None or current.table_id != table.table_id:
            return  # the commit will raise the error
        raise LogAheadError(
            f"the log of {table.full_name} is ahead of the database: it has version {found}, the "
            f"database ends at {latest.version}; nothing was committed",
            table=table.full_name,
            version=found,
            location=storage.location,
        )

    def _lost_version(self, table: TableRow, storage: Storage, head: int) -> int | None:
        """Return a version after the head that this catalog published; None if there is none."""
        try:
            data = storage.read(commit_file(head + 1))
        except FileNotFoundError:
            hint = last_checkpoint_version(storage)
            is_ahead = hint is not None and hint > head and has_checkpoint(storage, hint)
            return hint if is_ahead else None
        if self._is_lost(table, data):
            return head + 1
        # A power failure may have left this commit file empty, so check the files after it.
        after = storage.list(LOG_FOLDER, start_after=commit_file(head + 1))
        later = sort_files(storage.location, after).commits
        for version, file in sorted(later.items()):
            if self._is_lost(table, storage.read(file.name)):
                return version
        return None

    def _is_lost(self, table: TableRow, data: bytes) -> bool:
        """Return whether this catalog published a commit file and the database lacks the commit."""
        try:
            info = parse_commit(data).commit_info
        except LogParseError:
            return False
        if info is None or info.txn_id is None or ENGINE_INFO not in (info.engine_info or ""):
            return False
        if info.txn_id in table.properties.values():
            return False  # an interrupted cutover wrote it and will continue from it
        return not self._store.query("group_members", txn_id=info.txn_id)
