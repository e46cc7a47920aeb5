"""Write ratified commits to `_delta_log`: in version order, put-if-absent, never overwriting.

A commit is published from memory when the version before it is known to be in place; otherwise
what is missing is read back from SQL. Whatever fails is recorded and can be tried again: SQL has
the commit.

Every file is on the disk before it has its name. The folder of the log is flushed before SQL
records versions as published, once for all that are recorded together.
"""

from __future__ import annotations

import enum
import logging
import os
import threading
import weakref
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from deltasql import telemetry
from deltasql.exceptions import MirrorDivergedError, TxnLogError
from deltasql.mirror.log.encode import (
    CommitFile,
    commit_files_between,
    encode_commit,
)
from deltasql.mirror.log.listing import LOG_FOLDER
from deltasql.mirror.publish import status
from deltasql.mirror.publish.after_publish import DEFAULT, PostCommit, maintain
from deltasql.mirror.publish.put_commit import put_commit
from deltasql.mirror.publish.replica import copy_files
from deltasql.mirror.publish.targets import DELTA, OWN, VIEWS, PublishTarget, targets_of
from deltasql.model.clock import now_ms
from deltasql.phases import reached
from deltasql.storage import Storage, open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.config import Config
    from deltasql.store.records import Commit, TableRow
    from deltasql.store.store import Store

_log = logging.getLogger(__name__)
NO_WISHES: Mapping[int, PostCommit] = {}


class Stop(Protocol):
    """Asked between two versions whether to go on; a `threading.Event` is one."""

    def is_set(self) -> bool: ...


@dataclass(slots=True)
class _Mark:
    """How far the own target of a table is known to be, in this process."""

    written: int  # its commit file is in place
    recorded: int  # SQL knows it
    further_targets: int


class Reached(enum.Enum):
    """How an attempt to publish a version ended."""

    DONE = "the version is published at every target"
    BEHIND = "nothing failed, but older versions must be published first"
    FAILED = "a target failed or is shut; what failed was recorded"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far an attempt got, and what stopped it."""

    published: int
    error: BaseException | None = None


class Publisher:
    """Publishes the commits of one catalog; threads and processes may do so at the same time."""

    def __init__(self, store: Store, config: Config) -> None:
        self._store, self._config = store, config
        # Of whatever kind: the commit is ratified, and what failed is told and tried again.
        self.failures: tuple[type[BaseException], ...] = (Exception,)
        self.forget()
        _publishers.add(self)

    def forget(self) -> None:
        """Know nothing of what was published, as in a new process."""
        self._marks: dict[int, _Mark] = {}
        self._locks: dict[int, threading.Lock] = defaultdict(threading.Lock)
        # Where what follows a version failed: the next one looks after it.
        self._unfinished: set[tuple[int, str]] = set()

    def publish(
        self,
        table: TableRow,
        version: int,
        commit: Commit | None = None,
        *,
        wishes: Mapping[int, PostCommit] = NO_WISHES,
    ) -> Reached:
        """Publish a table up to this version at every target; never raises what can be repeated.

        `commit` is that version, where it is in memory. `wishes` say for versions what is to be
        done after them, where it is not the usual.
        """
        file = None if commit is None else self._encoded(commit)
        failure: BaseException | None = None
        others_wait: int | None = None
        with telemetry.span("publish", table=table.full_name), telemetry.timed("mirror_latency_ms"):
            try:
                others_wait = self._publish_next(table, version, file, wishes)
            except self.failures as error:
                failure = error
            if others_wait == 0:
                self._store.set_table_gauge("mirror_lag_seconds", 0, table.full_name)
                return Reached.DONE
            try:
                own, *others = status.targets_with_own(self._store, table)
            except self.failures as error:
                self._tell(table, version, failure or error)
                return Reached.FAILED
            if failure is not None:
                self._fail(own, version, failure)
            elif others_wait is None:
                others.insert(0, own)
            outcomes = [
                (each, self.advance(each, version, latest=file, wishes=wishes)) for each in others
            ]
        if failure is not None or any(outcome.error for _, outcome in outcomes):
            return Reached.FAILED
        is_there = all(t.published_version + o.published >= version for t, o in outcomes)
        return Reached.DONE if is_there else Reached.BEHIND

    def advance(
        self,
        target: PublishTarget,
        up_to: int,
        *,
        latest: CommitFile | None = None,
        limit: int | None = None,
        stop: Stop | None = None,
        converge: bool = False,
        wishes: Mapping[int, PostCommit] = NO_WISHES,
    ) -> Outcome:
        """Publish what a target lacks, in order; what stops it is recorded and returned.

        `latest` is the file of the version `up_to`, where it is known. `converge` also completes
        what somebody else published and may not have lived to complete.
        """
        if target.is_own and target.table.is_following:
            return Outcome(0)  # others write this log
        if target.is_quarantined:
            return Outcome(0, _still_diverged(target))
        last = min(up_to, target.published_version + (limit or self._config.mirror.batch_versions))
        if last <= target.published_version:
            return Outcome(0)
        if target.kind == DELTA:
            with self._locks[target.table.table_id]:
                return self._advance_log(target, last, latest, stop, converge, wishes)
        return self._advance_view(target, up_to)

    # The table's own log, one version after the one before

    def _publish_next(
        self,
        table: TableRow,
        version: int,
        file: CommitFile | None,
        wishes: Mapping[int, PostCommit],
    ) -> int | None:
        """Publish a commit from memory; returns how many other targets there are.

        None when it is not known that the version before it is in place.
        """
        mark = self._marks.get(table.table_id)
        if mark is None or file is None:
            return None
        storage = self._storage(table.location)
        lock = self._locks[table.table_id]
        with lock:
            if mark.written >= version:  # another thread was faster
                is_new = False
            elif mark.written < version - 1:
                return None
            else:
                is_new = put_commit(storage, table, file)
                mark.written = version
        if is_new:
            self._maintain(table, storage, file, wishes)
        with lock:
            if mark.recorded < version:
                storage.flush_folder(LOG_FOLDER)
                further = self._record(table, OWN, mark.recorded, mark.written)
                if further is None:
                    self._marks.pop(table.table_id, None)
                    return None
                mark.recorded, mark.further_targets = mark.written, further
        return mark.further_targets

    def _encoded(self, commit: Commit) -> CommitFile | None:
        try:
            return CommitFile(commit.version, encode_commit(commit), commit.replaces_nothing)
        except (TypeError, ValueError, TxnLogError):
            return None  # a value that only SQL brings into its final form: read it back

    # A span of versions

    def _current(self, target: PublishTarget) -> PublishTarget:
        """Return the target as it is now, if another thread was faster while we waited."""
        mark = self._marks.get(target.table.table_id) if target.is_own else None
        if mark is None or mark.recorded <= target.published_version:
            return target
        # Or somebody took versions back and our own memory is wrong: SQL knows.
        found = targets_of(self._store, target.table)
        return next(each for each in found if each.name == target.name)

    def _advance_log(
        self,
        target: PublishTarget,
        last: int,
        latest: CommitFile | None,
        stop: Stop | None,
        converge: bool,
        wishes: Mapping[int, PostCommit],
    ) -> Outcome:
        table, before, done = target.table, target.published_version, target.published_version
        storage = self._storage(target.location)
        try:
            current = self._current(target)
            if current.is_quarantined:
                return Outcome(0, _still_diverged(current))
            before = done = current.published_version
            for file in self._files(table, done, last, latest):
                if stop is not None and stop.is_set():
                    break
                if not target.is_own:
                    copy_files(
                        self._store, table, self._storage(table.location), storage, file.data
                    )
                    reached("copied")
                if put_commit(storage, table, file) or converge:
                    self._maintain(table, storage, file, wishes, last)
                done = file.version
        except self.failures as error:
            self._note(target, storage, before, done)
            self._fail(target, done + 1, error)
            return Outcome(done - target.published_version, error)
        failure = self._note(target, storage, before, done)
        return Outcome(done - target.published_version, failure)

    def _advance_view(self, target: PublishTarget, version: int) -> Outcome:
        before = target.published_version
        try:
            reached("publishing")
            show = VIEWS[target.kind]
            show(self._store, target.table, target.location, version, self._config)
            reached("published")
            self._record(target.table, target.name, before, version, only_last=True)
        except self.failures as error:
            self._fail(target, version, error)
            return Outcome(0, error)
        return Outcome(version - before)

    def _files(
        self, table: TableRow, after: int, last: int, latest: CommitFile | None
    ) -> Iterator[CommitFile]:
        """Yield the commit files after..last, read back in spans where they are not known."""
        is_known = latest is not None and latest.version == last
        version, end = after, last - 1 if is_known else last
        while version < end:
            with self._store.session() as session:
                found = commit_files_between(session, table.table_id, version + 1, end)
            yield from found
            version = found[-1].version
        if latest is not None and is_known and version < last:
            yield latest

    def _note(
        self, target: PublishTarget, storage: Storage, before: int, done: int
    ) -> BaseException | None:
        """Flush the names of what got through, then record it.

        A failure to do so costs work later, nothing else.
        """
        if done <= before:
            return None
        table = target.table
        try:
            storage.flush_folder(LOG_FOLDER)
            further = self._record(table, target.name, before, done)
        except self.failures as error:
            self._marks.pop(table.table_id, None)
            self._tell(table, done, error)
            return error
        if target.is_own:
            self._marks.pop(table.table_id, None)
            if further is not None:
                self._marks[table.table_id] = _Mark(done, done, further)
        return None

    def _record(
        self, table: TableRow, target: str, after: int, last: int, *, only_last: bool = False
    ) -> int | None:
        further = status.record_published(
            self._store,
            table.table_id,
            target,
            after=after,
            first=last if only_last else after + 1,
            last=last,
        )
        reached("recorded")
        return further

    def _maintain(
        self,
        table: TableRow,
        storage: Storage,
        file: CommitFile,
        wishes: Mapping[int, PostCommit],
        last: int | None = None,
    ) -> None:
        key = (table.table_id, storage.location)
        # A process that publishes a span does not know how the one before it ended.
        mends = file.version == last or key in self._unfinished
        is_finished = maintain(
            self._store,
            table,
            storage,
            file.version,
            config=self._config,
            data=file.data,
            replaces_nothing=file.replaces_nothing,
            last=last,
            wish=wishes.get(file.version, DEFAULT),
            mends=mends,
        )
        if not is_finished:
            self._unfinished.add(key)
        elif mends:
            self._unfinished.discard(key)

    def _storage(self, location: str) -> Storage:
        return open_storage(location, self._config.storage)

    # Failures

    def _fail(self, target: PublishTarget, version: int, error: BaseException) -> None:
        if target.is_own:
            self._marks.pop(target.table.table_id, None)
        self._tell(target.table, version, error, target=target.name)
        lag_s = target.lag_ms(now_ms()) / 1000
        self._store.set_table_gauge("mirror_lag_seconds", lag_s, target.table.full_name)
        # With the database gone there is nowhere to record it: the next commit finds out.
        with suppress(*self.failures):
            if isinstance(error, MirrorDivergedError):
                status.quarantine(self._store, target, version, error)
            else:
                status.record_failure(self._store, target, version, error, self._config.mirror)

    def _tell(
        self, table: TableRow, version: int, error: BaseException, *, target: str = OWN
    ) -> None:
        telemetry.count("mirror_failures_total", table=table.full_name)
        telemetry.log(
            _log,
            logging.WARNING,
            "publishing failed",
            table=table.full_name,
            target=target,
            version=version,
            error=str(error),
        )


def _still_diverged(target: PublishTarget) -> MirrorDivergedError:
    return MirrorDivergedError(
        f"the mirror of {target.table.full_name} is shut since its log was changed by others",
        table=target.table.full_name,
        version=target.published_version + 1,
        location=target.location,
    )


_publishers: weakref.WeakSet[Publisher] = weakref.WeakSet()


def _after_fork() -> None:
    # A lock may have been held by a thread that this process does not have.
    for publisher in list(_publishers):
        publisher.forget()


os.register_at_fork(after_in_child=_after_fork)
