"""Expire history: delete the rows of old versions from the database.

The first version of a table is the lowest one in `dl_table_versions`. Short transactions that hold
the lock of the head delete the rows of the oldest versions there. From then on, no reader and no
commit can use these versions. Then the rows that only these versions need are deleted, in short
transactions, too. An interrupted run leaves rows that no version needs; the next run deletes them.

A reader that opened an expired version gets an error, because every read checks afterwards that its
version still exists (`Store.check_version`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from deltasql.commit.stale import follows_another_log
from deltasql.exceptions import TxnLogConfigError, VersionNotFoundError
from deltasql.mirror.log.listing import find_log
from deltasql.mirror.publish.targets import DELTA, PublishTarget, targets_of
from deltasql.model.clock import now_ms
from deltasql.model.counts import many
from deltasql.model.progress import Meter
from deltasql.model.properties import TableProperties
from deltasql.model.report import Report
from deltasql.operations.vacuum.file_search import FileSearch, protected_versions
from deltasql.snapshot.snapshot import open_snapshot
from deltasql.storage import open_storage
from deltasql.store.records import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deltasql.config import Config
    from deltasql.model.progress import OnProgress
    from deltasql.snapshot.files import FileCache
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.store.dialect import Row
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

VERSIONS_PER_BATCH = 5_000
ROWS_PER_BATCH = 10_000
_FILE_IDS_PER_BATCH = 50_000
_MILLISECOND = timedelta(milliseconds=1)
_HOUR = timedelta(hours=1)
# A commit that lost its connection is looked up by its transaction id, so the id must still exist.
_SHORTEST_RETENTION = _HOUR
# A checkpoint of the log was written by another machine, whose clock may differ by this much.
_CLOCK_DIFFERENCE_MS = 3_600_000
# (table, statement that counts its expired rows, statement that deletes some of them)
_STEPS = (
    ("dl_add_files", "expired_files", "expire_files"),
    ("dl_remove_files", "expired_tombstones", "expire_tombstones"),
    ("dl_cdc_files", "expired_change_files", "expire_change_files"),
    ("dl_metadata_updates", "expired_metadata", "expire_metadata"),
    ("dl_protocol_updates", "expired_protocols", "expire_protocols"),
    ("dl_txn_actions", "expired_transactions", "expire_transactions"),
    ("dl_domain_metadata", "expired_domains", "expire_domains"),
    ("dl_mirror_status", "expired_statuses", "expire_statuses"),
)


@dataclass(frozen=True, slots=True)
class HistoryLimit(Report):
    """Something that needs the versions from `first_version` on."""

    reason: str
    first_version: int


@dataclass(frozen=True, slots=True)
class ExpiredHistory(Report):
    """The versions and rows that an expiry deleted, or would delete in a dry run."""

    KEYS: ClassVar[tuple[str, ...]] = (
        *("table", "dry_run", "first_version", "last_version", "versions", "rows"),
        *("waiting_for_vacuum", "limits", "limited_by"),
    )

    table: str
    dry_run: bool
    first_version: int
    """The first version after the expiry."""
    last_version: int
    versions: int
    """The number of deleted versions."""
    rows: dict[str, int] = field(default_factory=dict)
    """The number of deleted rows by table of the database."""
    waiting_for_vacuum: int = 0
    """Removed files of expired versions whose rows stay until a vacuum has deleted the files."""
    limits: tuple[HistoryLimit, ...] = ()
    """What needs older versions, and from which version on; the first one decides."""

    @property
    def limited_by(self) -> str | None:
        """The reason why the history begins at `first_version`."""
        return self.limits[0].reason if self.limits else None

    def summary(self) -> str:
        """Return the report as a string."""
        rows = sum(self.rows.values())
        done = "would be deleted" if self.dry_run else "deleted"
        lines = [
            f"{self.table}: {many(self.versions, 'version')} and {many(rows, 'row')} {done}",
            f"  the history begins at version {self.first_version} ({self.limited_by})",
        ]
        if self.waiting_for_vacuum:
            kept = many(self.waiting_for_vacuum, "removed file")
            lines.append(f"  {kept} stay in the database until a vacuum deletes them")
        return "\n".join(lines)


def expire_history(
    store: Store,
    table: TableRow,
    config: Config,
    cache: FileCache,
    *,
    retention_hours: float | None = None,
    before_version: int | None = None,
    dry_run: bool = True,
    on_progress: OnProgress | None = None,
) -> ExpiredHistory:
    """Delete the versions of a table that nothing needs any more, by default as a dry run."""
    if table.is_following:
        raise follows_another_log(table)
    snapshot = open_snapshot(store, table, cache)
    low = store.query("version_bounds", table_id=table.table_id)[0][0]
    search, targets = FileSearch(snapshot, 0), targets_of(store, table)
    limits = sorted(
        (
            *_retention_limits(snapshot, retention_hours, before_version),
            *_publishing_limits(targets, config),
            *_log_limits(targets, config),
            *_vacuum_limits(store, table),
        ),
        key=lambda each: each.first_version,
    )
    meter = Meter(table.full_name, on_progress)
    work = _Expiry(store, table, config, snapshot, search, low, meter)
    first = max(low, limits[0].first_version)
    if not dry_run:
        work.delete_versions(first)
        # Another process may have deleted more, or the published version was reset meanwhile.
        first = store.query("version_bounds", table_id=table.table_id)[0][0]
    rows = work.rows(first, delete=not dry_run)
    return ExpiredHistory(
        table=table.full_name,
        dry_run=dry_run,
        first_version=first,
        last_version=snapshot.version,
        versions=first - low,
        rows={name: count for name, count in rows.items() if count},
        waiting_for_vacuum=work.waiting_for_vacuum(first),
        limits=tuple(limits),
    )


def _retention_limits(
    snapshot: Snapshot, retention_hours: float | None, before_version: int | None
) -> Iterator[HistoryLimit]:
    """Yield the limits of the table's properties and of the caller."""
    properties = TableProperties(snapshot.metadata.configuration)
    shortest = max(properties.log_retention, properties.deleted_file_retention)
    retention = shortest if retention_hours is None else timedelta(hours=retention_hours)
    name = snapshot.table.full_name
    if retention < shortest:
        raise TxnLogConfigError(
            f"{name} keeps its history for {shortest / _HOUR:g} hours, which is longer than "
            f"{retention / _HOUR:g} hours",
            help="Use a longer retention, or change delta.logRetentionDuration and "
            "delta.deletedFileRetentionDuration of the table.",
        )
    if before_version is not None:
        if not 0 <= before_version <= snapshot.version:
            raise VersionNotFoundError(
                f"{name} has no version {before_version}; its latest is {snapshot.version}",
                table=name,
                version=before_version,
                latest=snapshot.version,
            )
        yield HistoryLimit("before_version", before_version)
    at_ms = now_ms() - max(retention, _SHORTEST_RETENTION) // _MILLISECOND
    rows = snapshot.store.query(
        "head_at_time", table_id=snapshot.table.table_id, timestamp_ms=at_ms
    )
    yield HistoryLimit("retention", rows[0][1] if rows else 0)


def _publishing_limits(targets: Iterable[PublishTarget], config: Config) -> Iterator[HistoryLimit]:
    """Yield the last published version of each log; a DuckDB file needs only the latest version."""
    for each in targets:
        if each.kind == DELTA and not _is_never_published(each, config):
            published = max(each.published_version, 0)
            yield HistoryLimit(f"versions to publish to {each.name!r}", published)


def _log_limits(targets: Iterable[PublishTarget], config: Config) -> Iterator[HistoryLimit]:
    """Yield the version before the oldest file of each log: a repair needs all that the log has.

    The version before it stays, because the first file id of a version is in the row before it.
    """
    for each in targets:
        if each.kind != DELTA or _is_never_published(each, config):
            continue
        listing = find_log(open_storage(each.location, config.storage))
        first = 0
        if listing is not None:
            checkpoints = (checkpoint.version for checkpoint in listing.checkpoints)
            compactions = (compaction.first for compaction in listing.compactions)
            first = min([*listing.commits, *listing.checksums, *checkpoints, *compactions])
        yield HistoryLimit(f"the published log {each.name!r}", max(first - 1, 0))


def _is_never_published(target: PublishTarget, config: Config) -> bool:
    return config.mirror.mode == "off" and target.is_own and target.published_version < 0


def _vacuum_limits(store: Store, table: TableRow) -> Iterator[HistoryLimit]:
    kept = protected_versions(store, table.table_id)
    if kept:
        yield HistoryLimit("versions that the last vacuum kept", min(kept))


class _Expiry:
    """Counts or deletes the rows of the versions before one version of a table."""

    def __init__(
        self,
        store: Store,
        table: TableRow,
        config: Config,
        snapshot: Snapshot,
        search: FileSearch,
        low: int,
        meter: Meter,
    ) -> None:
        self._store, self._table, self._config, self._low = store, table, config, low
        self._next_file_id, self._meter = snapshot.next_file_id, meter
        self._planned = {"table_id": table.table_id, "version": snapshot.version}
        self._vacuum = search.last_vacuum

    def delete_versions(self, first: int) -> None:
        """Delete the rows of the versions before `first`, except those that are needed by now."""
        self._meter.begin("expiring", "versions", first - self._low)
        for below in range(self._low, first, VERSIONS_PER_BATCH):
            end = min(below + VERSIONS_PER_BATCH, first)
            with self._store.change([self._table.table_id]) as (session, _):
                rows = session.query("targets_of", table_id=self._table.table_id)
                targets = [PublishTarget.from_row(row) for row in rows]
                limits = [each.first_version for each in _publishing_limits(targets, self._config)]
                if min(limits, default=end) < end:
                    return  # the published version was reset since the plan
                if session.query("vacuums_after", **self._planned):
                    return  # a vacuum began since the plan: it may keep some of these versions
                session.execute("expire_versions", table_id=self._table.table_id, first=end)
            self._meter.step(end - below)

    def rows(self, first: int, *, delete: bool) -> dict[str, int]:
        """Delete the rows that only versions before `first` need, or count them; by table."""
        if first == 0:
            return {}
        scope = self._scope(first)
        found = {"dl_table_versions": self._count("expired_versions", scope)}
        if delete:
            found["dl_table_versions"] = first - self._low
        found["dl_file_stats"] = sum(
            self._run("expired_file_statistics", "expire_file_statistics", scope | part, delete)
            for part in self._statistics()
        )
        for name, count, remove in _STEPS:
            found[name] = self._run(count, remove, scope, delete)
        return found

    def waiting_for_vacuum(self, first: int) -> int:
        """Return how many removed files of expired versions no vacuum has deleted."""
        return 0 if first == 0 else self._count("tombstones_to_vacuum", self._scope(first))

    def _scope(self, first: int) -> dict[str, Any]:
        """Return the parameters of the statements."""
        table_id = self._table.table_id
        self._store.check_version(table_id, first)
        first_ms = self._store.query("head_at_version", table_id=table_id, version=first)[0][2]
        rows = self._store.query("configurations_since", table_id=table_id, first=first)
        # The oldest checkpoint of the log may list files that were removed within the retention
        # before it, and `verify` compares them.
        longest = max(TableProperties(load(row[0])).deleted_file_retention for row in rows)
        return {
            "table_id": table_id,
            "first": first,
            "limit": ROWS_PER_BATCH,
            "vacuumed_version": self._vacuum.retained,
            "vacuumed_ms": self._vacuum.before_ms,
            "retained_ms": first_ms - longest // _MILLISECOND - _CLOCK_DIFFERENCE_MS,
        }

    def _statistics(self) -> Iterator[dict[str, int]]:
        rows = self._store.query("skipping_columns", table_id=self._table.table_id)
        for column_id, *_ in rows:
            for start in range(1, self._next_file_id, _FILE_IDS_PER_BATCH):
                end = min(start + _FILE_IDS_PER_BATCH, self._next_file_id)
                yield {"column_id": column_id, "first_file_id": start, "next_file_id": end}

    def _run(self, count: str, remove: str, scope: dict[str, Any], delete: bool) -> int:
        if not delete:
            return self._count(count, scope)
        deleted, last = 0, ROWS_PER_BATCH
        while last >= ROWS_PER_BATCH:
            with self._store.change() as (session, _):
                last = session.execute(remove, **scope)
            deleted += last
            self._meter.report("deleting", "rows", deleted, 0)
        return deleted

    def _count(self, name: str, scope: dict[str, Any]) -> int:
        rows: list[Row] = self._store.query(name, **scope)
        return int(rows[0][0])
