"""Rollback: move the authority of a table from the database back to its log.

1. All versions are published, and the log is compared with the database. If transactions reserved
   values of identity columns and did not commit them, a commit raises the high-water marks first,
   so that no other writer gets these values.
2. The table is removed from the catalog while its head is locked, so that no more commits go
   through the database.
3. A commit in the log drops the fence and the in-commit timestamps that deltasql enabled, so that
   other writers can commit. Timestamps that another writer enabled stay. In that case a file in the
   log records that no catalog owns it.

Each step checks whether it was already done, so a run that crashed can be repeated.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar, Literal

from deltasql import _core
from deltasql.commit.conflict import ENGINE_INFO
from deltasql.commit.identity import unpublished_numbers
from deltasql.commit.staged import Staged
from deltasql.exceptions import (
    MirrorDivergedError,
    RetriesExhaustedError,
    TableExistsError,
    TxnLogMirrorError,
    TxnLogTableNotFoundError,
)
from deltasql.migrate.authority.follow import refresh, table_at
from deltasql.migrate.authority.foreign_commits import foreign_version
from deltasql.migrate.authority.handover import (
    CUTOVER,
    ENABLED,
    ENABLED_AT,
    ENABLED_SINCE,
    HandoverReport,
    differences_for_readers,
    enabled_by,
    is_published,
    try_commit,
)
from deltasql.migrate.authority.log_owner import record_released
from deltasql.migrate.importing.load_table import set_published_version
from deltasql.mirror.log.encode import commit_file
from deltasql.mirror.log.listing import LOG_FOLDER, list_log
from deltasql.mirror.log.read import read_commits
from deltasql.mirror.publish import status
from deltasql.mirror.publish.targets import OWN, named, targets_of
from deltasql.model.actions import CommitInfo, Metadata, Protocol
from deltasql.model.clock import now_ms
from deltasql.model.counts import many
from deltasql.model.progress import Meter
from deltasql.model.properties import TableProperties
from deltasql.model.protocol import FENCE, without_feature, writer_features
from deltasql.operations.alter.fence import is_fenced
from deltasql.phases import reached
from deltasql.storage import open_storage
from deltasql.store.locations import drop_table
from deltasql.store.records import TableRow
from deltasql.uri import join_table_name
from deltasql.verify.large_tables import verify_by_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.commit.committer import Committer
    from deltasql.commit.identity import Numbers
    from deltasql.config import StorageSettings
    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.publish.publisher import Publisher
    from deltasql.model.progress import OnProgress
    from deltasql.store.dialect import Row
    from deltasql.store.records import Head
    from deltasql.store.store import Store
    from deltasql.verify.report import VerifyReport

FEATURE = "inCommitTimestamp"
_ATTEMPTS = 20
_PAUSE_S = 0.05
_BATCH = 100  # the number of versions published between two progress reports


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackReport(HandoverReport):
    """The result of a rollback, which makes the log the authority of a table.

    `version` is the latest version of the log. `published` is the number of versions that the log
    lacked. `timestamps_dropped` and `fence_dropped` say what the latest commit dropped, so that
    other writers can commit again.
    """

    KEYS: ClassVar[tuple[str, ...]] = (
        *HandoverReport.KEYS,
        *("published", "timestamps_dropped", "fence_dropped"),
    )

    state: Literal["rolled back", "was rolled back", "would roll back"] = "rolled back"
    published: int = 0
    timestamps_dropped: bool = False
    fence_dropped: bool = False

    @property
    def ok(self) -> bool:
        """Whether the log has everything that the database has."""
        return self.verification is None or not differences_for_readers(self.verification)

    def _lines(self) -> list[str]:
        has, published = "has", "published"
        if self.state == "would roll back":
            has, published = "would have", "to publish"
        lines = [
            f"{self.state}, the log at {self.location} {has} version {self.version}, "
            f"{many(self.published, 'version')} {published}"
        ]
        names = ("in-commit timestamps", self.timestamps_dropped), ("the fence", self.fence_dropped)
        dropped = [name for name, is_dropped in names if is_dropped]
        if dropped:
            lines.append(f"version {self.version} drops {' and '.join(dropped)}")
        return lines


def rollback(
    store: Store,
    committer: Committer,
    publisher: Publisher,
    table: TableRow,
    *,
    settings: StorageSettings,
    verify: bool = True,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> RollbackReport:
    """Make the log the authority of a table, or finish a rollback that was interrupted."""
    work = _Rollback(store, committer, publisher, table, settings, on_progress)
    return work.preview(verify=verify) if dry_run else work.run(verify=verify)


def table_to_roll_back(store: Store, namespace: str, name: str) -> TableRow:
    """Return the table with a name, or else the last dropped table with this name.

    Raises an error if another table has the location of the dropped table.
    """
    found = store.find_table(namespace, name, fresh=True)
    if found is not None:
        return found
    full_name = join_table_name(namespace, name)
    for row in store.query("list_dropped"):
        table = TableRow.from_row(row)
        if (table.namespace, table.name) != (namespace, name) or table.is_loading:
            continue
        other = table_at(store, table.location)
        if other is not None:
            raise TableExistsError(
                f"{full_name} is not in the catalog, and its log now belongs to {other.full_name}",
                table=full_name,
                help=f"Roll {join_table_name(other.namespace, other.name)} back.",
            )
        return table
    live = [TableRow.from_row(row) for row in store.query("list_tables", namespace=None)]
    known = [join_table_name(each.namespace, each.name) for each in live]
    near = get_close_matches(full_name, known, n=1)
    raise TxnLogTableNotFoundError(
        f"table {full_name} does not exist",
        table=full_name,
        help=f"Did you mean {near[0]}?" if near else TxnLogTableNotFoundError.default_help,
    )


def check_undrop(store: Store, table: TableRow, settings: StorageSettings) -> None:
    """Raise if a dropped table cannot be restored because its location or its log is in use."""
    other = table_at(store, table.location)
    if other is not None:
        raise TableExistsError(
            f"{table.full_name} cannot be restored: {other.full_name} uses its location now",
            table=table.full_name,
            help=f"Use {other.full_name}, or drop it first.",
        )
    if table.is_following:
        return
    head = store.head(table.table_id)
    first = foreign_version(store, table, open_storage(table.location, settings))
    # If the foreign version is not after the latest version in the database, allow restoring: only
    # a restored table can adopt or reject its foreign commits.
    if first is not None and head is not None and first > head.version:
        raise MirrorDivergedError(
            f"{table.full_name} cannot be restored: its log continues with version {first}, which "
            "is not in the database",
            table=table.full_name,
            version=first,
            location=table.location,
            help=f"Import the log instead: `deltasql import {table.location}`.",
        )


class _Rollback:
    """The rollback of one table."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        publisher: Publisher,
        table: TableRow,
        settings: StorageSettings,
        on_progress: OnProgress | None,
    ) -> None:
        self._store, self._publisher, self._table = store, publisher, table
        self._committer = committer
        self._settings = settings
        self._storage = open_storage(table.location, settings)
        name = join_table_name(table.namespace, table.name)
        self._report = RollbackReport(table=name, location=self._storage.location)
        self._meter = Meter(name, on_progress)

    def preview(self, *, verify: bool) -> RollbackReport:
        """Report what a rollback would do, without changing anything."""
        table = self._table
        own = named(targets_of(self._store, table), OWN)
        published = 0 if table.is_following else own.pending
        if table.dropped_at_ms is None:
            published += bool(self._unpublished_numbers(self._store.query))
        listing = list_log(self._storage)
        release = self._release_of(listing)
        is_done = table.dropped_at_ms is not None and not release.is_needed
        return replace(
            self._report,
            state="was rolled back" if is_done else "would roll back",
            version=listing.last_version + published + int(release.is_needed),
            published=published,
            timestamps_dropped=release.drops_timestamps,
            fence_dropped=release.drops_fence,
            verification=self._verify() if verify else None,
        )

    def run(self, *, verify: bool) -> RollbackReport:
        if self._table.dropped_at_ms is None:
            self._remove(verify=verify)
        elif not self._table.is_following:
            # This is the state if all steps were done before. Otherwise `_release` changes it.
            self._report = replace(self._report, state="was rolled back")
            self._publish()
            if verify:
                self._check_complete()
            self._flush()
        self._release()
        return self._report

    # Step 1: publish and verify the log

    def _publish(self) -> None:
        target = named(status.targets_with_own(self._store, self._table), OWN)
        self._meter.begin("publishing", "versions", target.pending)
        while target.pending:
            outcome = self._publisher.advance(
                target, target.head_version, converge=True, limit=_BATCH
            )
            self._report = replace(
                self._report, published=self._report.published + outcome.published
            )
            self._meter.step(outcome.published)
            if outcome.error is not None:
                raise outcome.error
            target = named(targets_of(self._store, self._table), OWN)

    def _verify(self) -> VerifyReport:
        """Compare the database with the log, up to the latest version in the database."""
        head, listing = self._head(), list_log(self._storage)
        log = listing.up_to(min(head.version, listing.last_version))
        return verify_by_size(
            self._store, self._table, self._storage, log, self._settings, meter=self._meter
        )

    def _check_complete(self) -> None:
        found = self._verify()
        self._report = replace(self._report, verification=found)
        wrong = differences_for_readers(found)
        if wrong:
            raise TxnLogMirrorError(
                f"{self._table.full_name} was not rolled back: its log differs from the database: "
                + "; ".join(str(each) for each in wrong[:5]),
                table=self._table.full_name,
                location=self._storage.location,
                help="Repair the log with `deltasql mirror repair`, then roll back again.",
            )

    # Step 2: remove the table from the catalog

    def _remove(self, *, verify: bool) -> None:
        attempts = 0
        while True:
            attempts += 1
            if self._table.is_following:
                self._catch_up()
            else:
                self._raise_marks()
                self._publish()
                if verify and self._report.verification is None:
                    self._check_complete()
            table, flushed = self._table, self._head().version
            self._flush()
            if self._drop(flushed):
                break
            if attempts >= _ATTEMPTS:
                raise RetriesExhaustedError(
                    f"{table.full_name} was not rolled back: another writer committed in every "
                    "attempt",
                    table=table.full_name,
                    attempts=attempts,
                    help="Nothing is lost. Try again when fewer writers commit to the table.",
                )
            time.sleep(_PAUSE_S)
        self._store.forget_table(table)
        self._flush(flushed)  # the publisher may have written a checkpoint in the meantime
        reached("left")
        head, last = self._head(), list_log(self._storage).last_version
        if last > head.version and not table.is_following:
            span = f"versions {head.version + 1} to {last}"
            self._report.notes.append(f"{span} of the log are foreign commits")

    def _raise_marks(self) -> None:
        """Commit the high-water marks of identity values that were reserved and not committed."""
        numbers = self._unpublished_numbers(self._store.query)
        if numbers:
            info = CommitInfo(operation="SYNC IDENTITY", operation_parameters={})
            read_version = self._head().version
            staged = Staged(self._table, read_version=read_version, identity=numbers, info=info)
            self._committer.commit([staged], str(uuid.uuid4()))

    def _unpublished_numbers(self, query: Callable[..., list[Row]]) -> dict[str, Numbers]:
        table_id = self._table.table_id
        reserved: dict[str, int] = dict(query("reserved_numbers", table_id=table_id))
        if not reserved:
            return {}
        metadata = self._store.metadata(table_id, self._head().metadata_version)
        return unpublished_numbers(reserved, metadata)

    def _catch_up(self) -> None:
        """Append all commits of a followed log, such as the commit of a crashed cutover."""
        known = self._table
        refresh(self._store, known, settings=self._settings)
        self._table = self._store.find_table(known.namespace, known.name, fresh=True) or known

    def _flush(self, first: int = 0) -> None:
        """Flush the log from a version on: nothing can restore its files once the table is gone."""
        after = commit_file(first - 1) if first else None
        names = [each.name for each in self._storage.list(LOG_FOLDER, start_after=after)]
        self._storage.flush(self._meter.over("flushing", "files", names, len(names)))

    def _drop(self, flushed: int) -> bool:
        """Remove the table from the catalog; return False if its log lacks its latest version."""
        store, table = self._store, self._table
        with store.change([table.table_id], is_bulk=True) as (session, heads):
            head = heads.get(table.table_id)
            if head is None or head.live_name != table.live_name:
                raise TxnLogTableNotFoundError(
                    f"table {table.full_name} was renamed or dropped", table=table.full_name
                )
            if not is_published(store, session, table, self._storage, head.version):
                return False
            if self._unpublished_numbers(session.query):
                return False
            self._flush(flushed)  # files written since the last flush
            set_published_version(session, table.table_id, head.version)
            drop_table(session, table.table_id)
        return True

    # Step 3: let other writers commit

    def _release(self) -> None:
        for _ in range(_ATTEMPTS):
            listing = list_log(self._storage)
            version = listing.last_version
            self._report = replace(self._report, version=version)
            release = self._release_of(listing)
            if not (release.drops_timestamps or self._table.is_following):
                # The commit below is the last one of this catalog.
                last = version + 1 if release.is_needed else self._head().version
                record_released(self._storage, listing, self._table, last)
            if not release.is_needed:
                return
            data = self._commit(release, version)
            reached("giving back")
            if try_commit(self._storage, version + 1, data):
                reached("given back")
                self._report = replace(
                    self._report,
                    version=version + 1,
                    timestamps_dropped=release.drops_timestamps,
                    fence_dropped=release.drops_fence,
                    state="rolled back",
                )
                return
        raise RetriesExhaustedError(
            f"{self._table.full_name} was removed from the catalog, but its in-commit timestamps "
            "and its fence were not dropped: another writer committed in every attempt",
            table=self._table.full_name,
            attempts=_ATTEMPTS,
            help="Nothing is lost. Repeat the rollback when fewer writers commit to the table.",
        )

    def _release_of(self, listing: LogListing) -> _Release:
        """Return what deltasql enabled in the latest version of the log."""
        head = self._head()
        metadata = self._store.metadata(self._table.table_id, head.metadata_version)
        protocol = self._store.protocol(self._table.table_id, head.protocol_version)
        by_sql = self._enabled_by_sql(metadata)
        since, last_ms = metadata.configuration.get(ENABLED_SINCE), head.committed_at_ms
        for commit in read_commits(
            self._storage, listing, head.version + 1, max(listing.last_version, head.version)
        ):
            metadata = commit.actions.metadata or metadata
            protocol = commit.actions.protocol or protocol
            info = commit.actions.commit_info
            last_ms = max(last_ms, (info and info.in_commit_timestamp) or 0)
        has_timestamps = TableProperties(metadata.configuration).in_commit_timestamps
        is_same = metadata.configuration.get(ENABLED_SINCE) == since
        return _Release(
            metadata,
            protocol,
            last_ms,
            has_timestamps=has_timestamps,
            drops_timestamps=has_timestamps
            and by_sql
            and is_same
            and FEATURE in writer_features(protocol),
            # If the table is followed, another catalog may have fenced its log. Keep that fence.
            drops_fence=is_fenced(protocol) and (by_sql or not self._table.is_following),
        )

    def _enabled_by_sql(self, metadata: Metadata) -> bool:
        row = enabled_by(self._store, self._table, metadata)
        if row is None:
            return False
        if self._table.is_following:
            # The timestamps may be from a crashed cutover of this catalog. Ignore those that
            # another catalog enabled.
            return row.txn_id == self._table.properties.get(CUTOVER)
        return ENGINE_INFO in (row.info.engine_info or "")

    def _head(self) -> Head:
        head = self._store.head(self._table.table_id)
        assert head is not None
        return head

    def _commit(self, release: _Release, read_version: int) -> bytes:
        """Encode the commit that drops what deltasql enabled and changes nothing else."""
        metadata, protocol, features = release.metadata, release.protocol, list[str]()
        if release.drops_timestamps:
            dropped = (ENABLED, ENABLED_SINCE, ENABLED_AT)
            kept = {k: v for k, v in metadata.configuration.items() if k not in dropped}
            metadata = replace(metadata, configuration=kept)
            features.append(FEATURE)
        if release.drops_fence:
            features.append(FENCE)
        for each in features:
            protocol = without_feature(protocol, each)
        at_ms = max(now_ms(), release.last_ms + 1)
        keeps_timestamps = release.has_timestamps and not release.drops_timestamps
        info = CommitInfo(
            timestamp=at_ms,
            in_commit_timestamp=at_ms if keeps_timestamps else None,
            operation="DROP FEATURE",
            operation_parameters={"featureName": ", ".join(features)},
            engine_info=ENGINE_INFO,
            is_blind_append=False,
            read_version=read_version,
            txn_id=str(uuid.uuid4()),
            extra={"rollback": self._table.table_uuid},
        )
        changed = [metadata] if release.drops_timestamps else []
        return _core.encode_commit([info, protocol, *changed])


@dataclass(frozen=True, slots=True)
class _Release:
    """The metadata and protocol of a log, and what the last commit of a rollback drops."""

    metadata: Metadata
    protocol: Protocol
    last_ms: int  # the latest time of a commit
    has_timestamps: bool
    drops_timestamps: bool
    drops_fence: bool

    @property
    def is_needed(self) -> bool:
        """Whether a rollback adds a commit."""
        return self.drops_timestamps or self.drops_fence
