"""Write ratified commits to `_delta_log`, in version order and without overwriting any file.

If this process knows that the previous version is published, a commit is published from memory.
Otherwise the missing commits are read from the database. A failure is recorded, and publishing is
tried again later. Nothing is lost, because the database has the commit.

The content of a file is flushed to disk before the file gets its name. The log folder is flushed
before the database records versions as published, once for all versions that are recorded together.
"""

from __future__ import annotations

import enum
import logging
import threading
import weakref
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from deltasql import telemetry
from deltasql.exceptions import MirrorDivergedError, TxnLogError
from deltasql.mirror.log.encode import CommitFile, commit_files_between, encode_commit
from deltasql.mirror.log.listing import LOG_FOLDER
from deltasql.mirror.publish import status
from deltasql.mirror.publish.targets import DELTA, OWN, PublishTarget, targets_of
from deltasql.mirror.publish.write_commit import (
    DEFAULT_POST_COMMIT,
    PostCommit,
    copy_data_files,
    maintain,
    put_commit,
)
from deltasql.model.clock import now_ms
from deltasql.phases import reached
from deltasql.storage import Storage, open_storage
from deltasql.storage.location import parse_location
from deltasql.storage.platform import register_at_fork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from deltasql.config import Config
    from deltasql.mirror.publish.stop_signal import StopSignal
    from deltasql.store.records import Commit, TableRow
    from deltasql.store.store import Store

_log = logging.getLogger(__name__)
NO_POST_COMMITS: Mapping[int, PostCommit] = {}


@dataclass(slots=True)
class _KnownVersions:
    """The versions of a table's own log that this process knows to be published."""

    written: int  # the last version whose commit file exists
    recorded: int  # the last version that the database records as published
    other_targets: int


class PublishResult(enum.Enum):
    """The result of publishing a table up to a version."""

    DONE = "the version is published at every target"
    BEHIND = "nothing failed, but older versions must be published first"
    FAILED = "a target failed or is quarantined; the failure was recorded"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many versions were published to one target, and the error that stopped publishing."""

    published: int
    error: BaseException | None = None


class Publisher:
    """Publishes the commits of one catalog; safe to use from several threads and processes."""

    def __init__(self, store: Store, config: Config) -> None:
        self._store, self._config = store, config
        # Catch every exception: the commit is already ratified, so a failure is logged and retried.
        self.failures: tuple[type[BaseException], ...] = (Exception,)
        # The latest commit of each table, by name, that could not be published by this process.
        self.unpublished: dict[str, int] = {}
        self.forget()
        _publishers.add(self)

    def forget(self) -> None:
        """Forget which versions are published, as in a new process."""
        self._known: dict[int, _KnownVersions] = {}
        self._locks: dict[int, threading.Lock] = defaultdict(threading.Lock)
        # Logs whose maintenance failed. For these, publishing the next version also checks the
        # checkpoint hint.
        self._unmaintained: set[tuple[int, str]] = set()

    def publish(
        self,
        table: TableRow,
        version: int,
        commit: Commit | None = None,
        *,
        post_commits: Mapping[int, PostCommit] = NO_POST_COMMITS,
    ) -> PublishResult:
        """Publish a table up to a version to every target; a failure is recorded, not raised.

        `commit` is the commit of that version, if the caller has it in memory. `post_commits` maps
        versions to their options of log maintenance. Other versions have the default options.
        """
        result = self._publish(table, version, commit, post_commits)
        if result is PublishResult.FAILED:
            self.unpublished[table.full_name] = version
        else:
            self.unpublished.pop(table.full_name, None)
        return result

    def _publish(
        self,
        table: TableRow,
        version: int,
        commit: Commit | None,
        post_commits: Mapping[int, PostCommit],
    ) -> PublishResult:
        file = None if commit is None else self._encoded(commit)
        failure: BaseException | None = None
        other_targets: int | None = None
        with telemetry.span("publish", table=table.full_name), telemetry.timed("mirror_latency_ms"):
            try:
                other_targets = self._publish_next(table, version, file, post_commits)
            except self.failures as error:
                failure = error
            if other_targets == 0:
                self._store.set_table_gauge("mirror_lag_seconds", 0, table.full_name)
                return PublishResult.DONE
            try:
                own, *others = status.targets_with_own(self._store, table)
            except self.failures as error:
                self._log_failure(table, version, failure or error)
                return PublishResult.FAILED
            if failure is not None:
                self._fail(own, version, failure)
            elif other_targets is None:
                others.insert(0, own)
            outcomes = [
                (each, self.advance(each, version, latest=file, post_commits=post_commits))
                for each in others
            ]
        if failure is not None or any(outcome.error for _, outcome in outcomes):
            return PublishResult.FAILED
        is_published = all(t.published_version + o.published >= version for t, o in outcomes)
        return PublishResult.DONE if is_published else PublishResult.BEHIND

    def advance(
        self,
        target: PublishTarget,
        up_to: int,
        *,
        latest: CommitFile | None = None,
        limit: int | None = None,
        stop: StopSignal | None = None,
        converge: bool = False,
        post_commits: Mapping[int, PostCommit] = NO_POST_COMMITS,
    ) -> Outcome:
        """Publish the missing versions of a target in order; record and return a failure.

        `latest` is the commit file of version `up_to`, if the caller has it. `converge` also writes
        checksums and checkpoints for commit files that already exist, because the process that
        wrote a commit file may have died before it wrote the other files.
        """
        if target.is_own and target.table.is_following:
            return Outcome(0)  # another program writes this log
        if target.is_quarantined:
            return Outcome(0, _still_diverged(target))
        last = min(up_to, target.published_version + (limit or self._config.mirror.batch_versions))
        if last <= target.published_version:
            return Outcome(0)
        if target.kind == DELTA:
            with self._locks[target.table.table_id]:
                return self._advance_log(target, last, latest, stop, converge, post_commits)
        return self._advance_view(target, up_to)

    # Publish the next version to the table's own log, from memory

    def _publish_next(
        self,
        table: TableRow,
        version: int,
        file: CommitFile | None,
        post_commits: Mapping[int, PostCommit],
    ) -> int | None:
        """Publish a commit from memory to the table's own log; return the number of other targets.

        Return None if the commit must be published from the database: `file` is None, this process
        does not know that the previous version is published, or another process changed the status
        of the table's log.
        """
        known = self._known.get(table.table_id)
        if known is None or file is None:
            return None
        storage = self._storage(table.location)
        lock = self._locks[table.table_id]
        with lock:
            if known.written >= version:  # another thread published it
                is_new = False
            elif known.written < version - 1:
                return None
            else:
                is_new = put_commit(storage, table, file)
                known.written = version
        if is_new:
            self._maintain(table, storage, file, post_commits)
        with lock:
            if known.recorded < version:
                storage.flush_folder(LOG_FOLDER)
                others = self._record(table, OWN, known.recorded, known.written)
                if others is None:
                    self._known.pop(table.table_id, None)
                    return None
                known.recorded, known.other_targets = known.written, others
        return known.other_targets

    def _encoded(self, commit: Commit) -> CommitFile | None:
        try:
            return CommitFile(commit.version, encode_commit(commit), commit.replaces_nothing)
        except (TypeError, ValueError, TxnLogError):
            return None  # read the commit from the database, which normalizes the value

    # Publish a span of versions

    def _current(self, target: PublishTarget) -> PublishTarget:
        """Return the target's current row: another thread may have published while we waited."""
        known = self._known.get(target.table.table_id) if target.is_own else None
        if known is None or known.recorded <= target.published_version:
            return target
        # Do not trust `known`: the published version may have been reset. Read the row again.
        found = targets_of(self._store, target.table)
        return next(each for each in found if each.name == target.name)

    def _advance_log(
        self,
        target: PublishTarget,
        last: int,
        latest: CommitFile | None,
        stop: StopSignal | None,
        converge: bool,
        post_commits: Mapping[int, PostCommit],
    ) -> Outcome:
        table, before, done = target.table, target.published_version, target.published_version
        storage = self._storage(target.location)
        try:
            current = self._current(target)
            if current.is_quarantined:
                return Outcome(0, _still_diverged(current))
            before = done = current.published_version
            with _one_at_a_time(storage, last - before) as run:
                for file in self._files(table, done, last, latest):
                    if stop is not None and stop.is_set():
                        break
                    if not target.is_own:
                        copy_data_files(
                            self._store, table, self._storage(table.location), storage, file.data
                        )
                        reached("copied")
                    if put_commit(storage, table, file) or converge:
                        run(partial(self._maintain, table, storage, file, post_commits, last))
                    done = file.version
        except self.failures as error:
            self._record_span(target, storage, before, done)
            self._fail(target, done + 1, error)
            return Outcome(done - target.published_version, error)
        failure = self._record_span(target, storage, before, done)
        return Outcome(done - target.published_version, failure)

    def _advance_view(self, target: PublishTarget, version: int) -> Outcome:
        from deltasql.mirror.duckdb.refresh import publish_view  # lazy import: DuckDB is an extra

        before = target.published_version
        try:
            reached("publishing")
            publish_view(self._store, target.table, target.location, version, self._config)
            reached("published")
            self._record(target.table, target.name, before, version, only_last=True)
        except self.failures as error:
            self._fail(target, version, error)
            return Outcome(0, error)
        return Outcome(version - before)

    def _files(
        self, table: TableRow, after: int, last: int, latest: CommitFile | None
    ) -> Iterator[CommitFile]:
        """Yield the commit files after..last; read them from the database, except `latest`."""
        has_last = latest is not None and latest.version == last
        version, end = after, last - 1 if has_last else last
        while version < end:
            with self._store.session() as session:
                found = commit_files_between(session, table.table_id, version + 1, end)
            yield from found
            version = found[-1].version
        if latest is not None and has_last and version < last:
            yield latest

    def _record_span(
        self, target: PublishTarget, storage: Storage, before: int, done: int
    ) -> BaseException | None:
        """Flush the log folder, then record the written versions as published.

        If this fails, nothing is lost: the versions are only checked again later.
        """
        if done <= before:
            return None
        table = target.table
        try:
            storage.flush_folder(LOG_FOLDER)
            others = self._record(table, target.name, before, done)
        except self.failures as error:
            self._known.pop(table.table_id, None)
            self._log_failure(table, done, error)
            return error
        if target.is_own:
            self._known.pop(table.table_id, None)
            if others is not None:
                self._known[table.table_id] = _KnownVersions(done, done, others)
        return None

    def _record(
        self, table: TableRow, target: str, after: int, last: int, *, only_last: bool = False
    ) -> int | None:
        other_targets = status.record_published(
            self._store,
            table.table_id,
            target,
            after=after,
            first=last if only_last else after + 1,
            last=last,
        )
        reached("recorded")
        return other_targets

    def _maintain(
        self,
        table: TableRow,
        storage: Storage,
        file: CommitFile,
        post_commits: Mapping[int, PostCommit],
        last: int | None = None,
    ) -> None:
        key = (table.table_id, storage.location)
        # At the end of a span, check the hint `_last_checkpoint`: another process may have written
        # a checkpoint and failed before it wrote the hint.
        check_hint = file.version == last or key in self._unmaintained
        is_maintained = maintain(
            self._store,
            table,
            storage,
            file,
            config=self._config,
            last=last,
            post_commit=post_commits.get(file.version, DEFAULT_POST_COMMIT),
            check_hint=check_hint,
        )
        if not is_maintained:
            self._unmaintained.add(key)
        elif check_hint:
            self._unmaintained.discard(key)

    def _storage(self, location: str) -> Storage:
        return open_storage(location, self._config.storage)

    # Failures

    def _fail(self, target: PublishTarget, version: int, error: BaseException) -> None:
        if target.is_own:
            self._known.pop(target.table.table_id, None)
        self._log_failure(target.table, version, error, target=target.name)
        lag_s = target.lag_ms(now_ms()) / 1000
        self._store.set_table_gauge("mirror_lag_seconds", lag_s, target.table.full_name)
        # If the database is down, the failure cannot be recorded. The next commit finds the
        # unpublished versions.
        with suppress(*self.failures):
            if isinstance(error, MirrorDivergedError):
                status.quarantine(self._store, target, version, error)
            else:
                status.record_failure(self._store, target, version, error, self._config.mirror)

    def _log_failure(
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


@contextmanager
def _one_at_a_time(
    storage: Storage, versions: int
) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Yield a function that runs the log maintenance of the published versions in order.

    On an object store, each file takes a request. So the maintenance of a version runs in a thread
    while the caller publishes the next version.
    """
    if versions == 1 or parse_location(storage.location).is_local:
        yield lambda maintain: maintain()
        return
    running: list[Future[None]] = []

    def run(maintain: Callable[[], None]) -> None:
        while running:
            running.pop().result()
        running.append(worker.submit(maintain))

    with ThreadPoolExecutor(1, thread_name_prefix="deltasql-mirror") as worker:
        yield run
    for each in running:
        each.result()


def _still_diverged(target: PublishTarget) -> MirrorDivergedError:
    return MirrorDivergedError(
        f"the mirror of {target.table.full_name} is quarantined: another program changed its log",
        table=target.table.full_name,
        version=target.published_version + 1,
        location=target.location,
    )


_publishers: weakref.WeakSet[Publisher] = weakref.WeakSet()


def _after_fork() -> None:
    # The child needs new locks, because a thread of the parent may have held a lock during the
    # fork.
    for publisher in list(_publishers):
        publisher.forget()


register_at_fork(after_in_child=_after_fork)
