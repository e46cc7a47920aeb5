"""Publishing behind a commit's back: one thread of a catalog brings tables up to their heads.

What waits is one entry per table with the latest version to reach, however many commits came
since; a table that has much to catch up goes to the end of the line after each batch.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltasql import telemetry
from deltasql.mirror.publish.after_publish import DEFAULT, PostCommit
from deltasql.mirror.publish.publisher import Reached
from deltasql.mirror.publish.status import backoff_ms

if TYPE_CHECKING:
    from deltasql.config import MirrorSettings
    from deltasql.mirror.publish.publisher import Publisher
    from deltasql.store.records import TableRow

_log = logging.getLogger(__name__)
_JOIN_S = 1.0


@dataclass(slots=True)
class _Waiting:
    table: TableRow
    version: int
    flushes: int  # how many flushes have seen it tried
    due_s: float = 0.0
    failures: int = 0
    wishes: dict[int, PostCommit] = field(default_factory=dict)


class BackgroundPublisher:
    """A thread that publishes what it is told of, started when there is something to do."""

    def __init__(self, publisher: Publisher, settings: MirrorSettings) -> None:
        self._publisher, self._settings = publisher, settings
        self._start_anew()
        _alive.add(self)

    def _start_anew(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[int, _Waiting] = {}
        self._thread: threading.Thread | None = None
        self._flushes = 0
        self._is_closing = False

    def submit(self, table: TableRow, version: int, wish: PostCommit = DEFAULT) -> None:
        """Ask that a table be published up to a version, and what the version wishes after it."""
        with self._changed:
            known = self._waiting.get(table.table_id)
            if known is None:
                known = _Waiting(table, version, self._flushes)
                self._waiting[table.table_id] = known
            else:
                known.table, known.version = table, max(known.version, version)
            if wish != DEFAULT:
                known.wishes[version] = wish
            self._wake()

    def flush(self, timeout_s: float | None = None) -> bool:
        """Try everything that waits now; tell whether all of it is published."""
        with self._changed:
            self._flushes += 1
            wanted = self._flushes
            for each in self._waiting.values():
                each.due_s = 0.0
            if self._waiting:
                self._wake()
            were_tried = self._changed.wait_for(
                lambda: all(each.flushes >= wanted for each in self._waiting.values()), timeout_s
            )
            return were_tried and not any(each.failures for each in self._waiting.values())

    def close(self) -> None:
        """Flush, for as long as the settings allow, and end the thread."""
        if self._thread is None:
            return
        self.flush(self._settings.flush_s)
        with self._changed:
            left, thread = len(self._waiting), self._thread
            self._is_closing = True
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)
        if left:
            telemetry.log(_log, logging.WARNING, "closed before all was published", tables=left)

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
                # Others go on adding to theirs.
                version, began, wishes = work.version, self._flushes, dict(work.wishes)
            result = Reached.FAILED
            try:
                result = self._publisher.publish(work.table, version, wishes=wishes)
            finally:
                with self._changed:
                    self._put_back(work, version, began, result)
                    self._changed.notify_all()

    def _next(self) -> _Waiting | None:
        """Wait for a table that is due; None when the end has come."""
        while True:
            now_s = time.monotonic()
            due = next((each for each in self._waiting.values() if each.due_s <= now_s), None)
            if due is not None:
                return due
            if self._is_closing:
                return None
            later = min((each.due_s for each in self._waiting.values()), default=None)
            self._changed.wait(None if later is None else later - now_s)

    def _put_back(self, work: _Waiting, version: int, began: int, result: Reached) -> None:
        """Take a table off the list, or put it at the end."""
        del self._waiting[work.table.table_id]
        if result is Reached.DONE:
            if work.version == version:
                return
            work.wishes = {key: wish for key, wish in work.wishes.items() if key > version}
        self._waiting[work.table.table_id] = work
        if result is not Reached.FAILED:
            work.failures, work.due_s = 0, 0.0
            return
        wait_s = backoff_ms(self._settings, work.failures) / 1000
        work.failures += 1
        work.flushes = began
        # A flush that came meanwhile wants another attempt at once.
        work.due_s = time.monotonic() + wait_s if began == self._flushes else 0.0


_alive: weakref.WeakSet[BackgroundPublisher] = weakref.WeakSet()


def _at_exit() -> None:
    for each in list(_alive):
        each.close()


def _after_fork() -> None:
    # The thread stayed with the parent, and so does what it was told of.
    for each in list(_alive):
        each._start_anew()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
