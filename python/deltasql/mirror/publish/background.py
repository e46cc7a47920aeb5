"""Publish commits in a background thread (`mirror.mode = "async"`), one thread per catalog.

The queue has one entry per table with the latest version to publish, however many commits were
submitted. A table that is far behind goes to the end of the queue after each batch, so that other
tables do not wait for it.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltasql import telemetry
from deltasql.mirror.publish.publisher import PublishResult
from deltasql.mirror.publish.status import backoff_ms
from deltasql.mirror.publish.write_commit import DEFAULT_POST_COMMIT, PostCommit
from deltasql.storage.platform import register_at_fork

if TYPE_CHECKING:
    from deltasql.config import MirrorSettings
    from deltasql.mirror.publish.publisher import Publisher
    from deltasql.store.records import TableRow

_log = logging.getLogger(__name__)
_JOIN_S = 1.0


@dataclass(slots=True)
class _QueuedTable:
    table: TableRow
    version: int
    flushes: int  # the last flush for which publishing was attempted
    due_s: float = 0.0
    failures: int = 0
    post_commits: dict[int, PostCommit] = field(default_factory=dict)


class BackgroundPublisher:
    """Publishes submitted tables in a thread, which is started by the first submission."""

    def __init__(self, publisher: Publisher, settings: MirrorSettings) -> None:
        self._publisher, self._settings = publisher, settings
        self._reset()
        _alive.add(self)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._queue: dict[int, _QueuedTable] = {}
        self._thread: threading.Thread | None = None
        self._flushes = 0
        self._is_closing = False

    def submit(
        self, table: TableRow, version: int, post_commit: PostCommit = DEFAULT_POST_COMMIT
    ) -> None:
        """Queue a table to be published up to a version; `post_commit` applies to that version."""
        with self._changed:
            queued = self._queue.get(table.table_id)
            if queued is None:
                queued = _QueuedTable(table, version, self._flushes)
                self._queue[table.table_id] = queued
            else:
                queued.table, queued.version = table, max(queued.version, version)
            if post_commit != DEFAULT_POST_COMMIT:
                queued.post_commits[version] = post_commit
            self._wake()

    def flush(self, timeout_s: float | None = None) -> bool:
        """Try to publish every queued table now; return whether all of them are published."""
        with self._changed:
            self._flushes += 1
            wanted = self._flushes
            for each in self._queue.values():
                each.due_s = 0.0
            if self._queue:
                self._wake()
            were_tried = self._changed.wait_for(
                lambda: all(each.flushes >= wanted for each in self._queue.values()), timeout_s
            )
            return were_tried and not any(each.failures for each in self._queue.values())

    def close(self) -> None:
        """Flush for at most `mirror.flush_s`, then stop the thread."""
        if self._thread is None:
            return
        self.flush(self._settings.flush_s)
        with self._changed:
            left, thread = len(self._queue), self._thread
            self._is_closing = True
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)
        if left:
            telemetry.log(
                _log,
                logging.WARNING,
                "catalog closed with unpublished commits",
                tables=left,
            )

    def _wake(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._is_closing = False
            self._thread = threading.Thread(
                target=self._run, name="deltasql-publisher", daemon=True
            )
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                work = self._next()
                if work is None:
                    return
                # Copy the options, because other threads may submit more while this version is
                # published.
                version, flush, post_commits = work.version, self._flushes, dict(work.post_commits)
            result = PublishResult.FAILED
            try:
                result = self._publisher.publish(work.table, version, post_commits=post_commits)
            finally:
                with self._changed:
                    self._finish(work, version, flush, result)
                    self._changed.notify_all()

    def _next(self) -> _QueuedTable | None:
        """Wait until a table is due and return it; return None when the publisher is closing."""
        while True:
            now_s = time.monotonic()
            due = next((each for each in self._queue.values() if each.due_s <= now_s), None)
            if due is not None:
                return due
            if self._is_closing:
                return None
            later = min((each.due_s for each in self._queue.values()), default=None)
            self._changed.wait(None if later is None else later - now_s)

    def _finish(self, work: _QueuedTable, version: int, flush: int, result: PublishResult) -> None:
        """Remove a published table from the queue, or move it to the end."""
        del self._queue[work.table.table_id]
        if result is PublishResult.DONE:
            if work.version == version:
                return
            work.post_commits = {k: v for k, v in work.post_commits.items() if k > version}
        self._queue[work.table.table_id] = work
        if result is not PublishResult.FAILED:
            work.failures, work.due_s = 0, 0.0
            return
        wait_s = backoff_ms(self._settings, work.failures) / 1000
        work.failures += 1
        work.flushes = flush
        # If a flush began during this attempt, try again immediately.
        work.due_s = time.monotonic() + wait_s if flush == self._flushes else 0.0


_alive: weakref.WeakSet[BackgroundPublisher] = weakref.WeakSet()


def _at_exit() -> None:
    for each in list(_alive):
        each.close()


def _after_fork() -> None:
    # A fork does not copy threads, and the thread in the parent still publishes the queued tables.
    # So the child starts with an empty queue.
    for each in list(_alive):
        each._reset()


atexit.register(_at_exit)
register_at_fork(after_in_child=_after_fork)
