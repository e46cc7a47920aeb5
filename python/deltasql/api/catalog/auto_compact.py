"""Auto compaction: the background thread of `mirror run` that combines small files.

The thread compacts tables with the property `delta.autoOptimize.autoCompact`. A lease per table
prevents two processes from compacting the same table at once. An error is logged and counted, and
the table is tried again later. No commit of a user waits for a compaction: the head of a table is
locked only while the finished compaction commits.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltasql import telemetry
from deltasql.exceptions import CommitConflictError
from deltasql.mirror.publish.stop_signal import StopAtDeadline
from deltasql.operations.optimize.auto import CompactionPolicy, compact_files, files_to_compact
from deltasql.store.leases import is_held, release_compaction, take_compaction
from deltasql.store.records import TableRow, load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.api.catalog.mirror import Mirror
    from deltasql.mirror.publish.stop_signal import StopSignal

_log = logging.getLogger(__name__)
# A compaction conflicts if another commit deleted one of its files in the meantime. The next
# attempt combines the files that remain.
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A table with auto compaction."""

    table: TableRow
    version: int
    next_file_id: int
    policy: CompactionPolicy

    @property
    def table_id(self) -> int:
        return self.table.table_id


@dataclass(frozen=True, slots=True)
class _Seen:
    """The result of the last check of a table."""

    version: int
    failures: int = 0
    next_attempt_s: float = 0.0


class AutoCompactor:
    """Compacts the tables of a catalog that have auto compaction."""

    def __init__(self, catalog: BaseCatalog, mirror: Mirror) -> None:
        self._catalog, self._mirror = catalog, mirror
        self._owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._seen: dict[int, _Seen] = {}

    @contextmanager
    def running(self, stop: threading.Event) -> Iterator[None]:
        """Run rounds in a thread until the block ends; the thread ends early if `stop` is set."""
        ended = threading.Event()
        thread = threading.Thread(
            target=self._run, args=(stop, ended), name="deltasql-auto-compact", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _run(self, stop: StopSignal, ended: threading.Event) -> None:
        either = _Either(stop, ended)
        interval_s = self._catalog.config.mirror.auto_compact_s
        while not either.is_set():
            due_s = time.monotonic() + interval_s
            try:
                self.run_once(either)
            except Exception as error:
                # The database may be down: log the error, and try again in the next round.
                telemetry.log(_log, logging.WARNING, "auto compaction failed", error=str(error))
            while time.monotonic() < due_s and not either.is_set():
                ended.wait(min(0.2, interval_s))

    def run_once(self, stop: StopSignal | None = None) -> int:
        """Check each table once, and compact the tables with enough small files.

        Returns the number of commits.
        """
        either = stop or threading.Event()
        commits = 0
        for each in self._candidates():
            if either.is_set():
                break
            commits += self._compact(each, either)
        return commits

    def _candidates(self) -> list[_Candidate]:
        """Return the tables that changed since their last check and do not wait after an error."""
        found = []
        pattern = "%delta.autoOptimize.autoCompact%"
        for row in self._catalog.store.query("tables_to_compact", pattern=pattern):
            table, version, next_file_id = TableRow.from_row(row[:8]), row[8], row[9]
            seen = self._seen.get(table.table_id, _Seen(-1))
            waits = version == seen.version and not seen.failures
            if waits or time.monotonic() < seen.next_attempt_s:
                continue
            if table.is_following or table.is_loading:
                continue
            try:
                policy = CompactionPolicy.of(load(row[10]) or {})
            except Exception as error:
                self._failed(table, version, error)
                continue
            if policy is not None:
                found.append(_Candidate(table, version, next_file_id, policy))
        return found

    def _compact(self, each: _Candidate, stop: StopSignal) -> int:
        """Compact one table, if it has enough small files and no other process compacts it."""
        try:
            if not self._file_ids(each):
                self._seen[each.table_id] = _Seen(each.version)
                return 0
            with self._lease(each.table) as is_ours:
                return self._with_retries(each, stop) if is_ours else 0
        except Exception as error:
            self._failed(each.table, each.version, error)
            return 0

    def _file_ids(self, each: _Candidate) -> list[int]:
        return files_to_compact(self._catalog.store, each.table_id, each.next_file_id, each.policy)

    def _with_retries(self, each: _Candidate, stop: StopSignal) -> int:
        for attempt in range(1, _ATTEMPTS + 1):
            if is_held(self._catalog.store.query, each.table_id):
                self._count(each.table, "yielded")
                return 0
            try:
                return self._commit(each, stop)
            except CommitConflictError as conflict:
                self._count(each.table, "conflict")
                telemetry.log(
                    _log,
                    logging.INFO,
                    "auto compaction conflicts with another commit",
                    table=each.table.full_name,
                    attempt=attempt,
                    error=str(conflict),
                )
        return 0  # the next round tries again

    def _commit(self, each: _Candidate, stop: StopSignal) -> int:
        # lazy import: few processes need operations
        from deltasql.api.transaction.transaction import MultiTableTransaction

        name, settings = each.table.full_name, self._catalog.config.mirror
        deadline = StopAtDeadline(stop, time.monotonic() + settings.lease_s / 2)
        with MultiTableTransaction(self._catalog, self._mirror, one_table=True) as tx:
            stage = tx.target(name)
            assert stage.snapshot is not None
            current = replace(
                each,
                version=stage.snapshot.version,
                next_file_id=stage.snapshot.next_file_id,
            )
            same_table = stage.staged.table.table_id == each.table_id
            ids = self._file_ids(current) if same_table else []
            stage.staged.yields = True
            files = compact_files(stage, ids, each.policy, is_enough=deadline.is_set)
        if not files:
            self._seen[each.table_id] = _Seen(current.version)
            return 0
        self._seen.pop(each.table_id, None)
        self._count(each.table, "committed")
        telemetry.log(
            _log,
            logging.INFO,
            "auto compaction committed",
            table=name,
            version=tx.versions[name],
            files=files,
        )
        return 1

    def _failed(self, table: TableRow, version: int, error: Exception) -> None:
        """Log and count an error. The table is tried again after a wait that doubles each time."""
        settings = self._catalog.config.mirror
        failures = self._seen.get(table.table_id, _Seen(-1)).failures + 1
        wait_s = min(settings.max_backoff_s, settings.auto_compact_s * 2 ** min(failures, 20))
        self._seen[table.table_id] = _Seen(version, failures, time.monotonic() + wait_s)
        self._count(table, "failed")
        telemetry.log(
            _log,
            logging.WARNING,
            "auto compaction failed",
            table=table.full_name,
            error=str(error),
            failures=failures,
        )

    def _count(self, table: TableRow, outcome: str) -> None:
        telemetry.count("auto_compactions_total", table=table.full_name, outcome=outcome)

    @contextmanager
    def _lease(self, table: TableRow) -> Iterator[bool]:
        """Take the lease of a table for the block; yield whether it was free."""
        store, lease_s = self._catalog.store, self._catalog.config.mirror.lease_s
        lease = take_compaction(store, table.table_id, self._owner, lease_s)
        try:
            yield lease is not None
        finally:
            if lease is not None:
                release_compaction(store, table.table_id, lease)


@dataclass(frozen=True, slots=True)
class _Either:
    """Stops when one of two signals is set."""

    one: StopSignal
    other: StopSignal

    def is_set(self) -> bool:
        return self.one.is_set() or self.other.is_set()
