"""`catalog.mirror`: publish, verify and repair the logs of a catalog's tables."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql.commit.stale import follows_another_log
from deltasql.exceptions import MirrorDivergedError, TxnLogMirrorError, VersionNotFoundError
from deltasql.exceptions.prefixes import KERNEL_ERROR
from deltasql.mirror.log.cleanup import clean_log
from deltasql.mirror.publish import status, targets
from deltasql.mirror.publish.background import BackgroundPublisher
from deltasql.mirror.publish.publisher import NO_POST_COMMITS, Publisher
from deltasql.mirror.publish.stop_signal import ProgressReporter
from deltasql.mirror.publish.write_commit import DEFAULT_POST_COMMIT
from deltasql.model.progress import Meter
from deltasql.snapshot.snapshot import open_snapshot
from deltasql.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.commit.ratified import Ratified
    from deltasql.migrate.authority.foreign_commits import ForeignReport
    from deltasql.mirror.log.last_checkpoint import CheckpointInfo
    from deltasql.mirror.publish.reconcile import PublishedBatch
    from deltasql.mirror.publish.status import LogFault, MirrorStatus, VersionStatus
    from deltasql.mirror.publish.targets import PublishTarget
    from deltasql.mirror.publish.write_commit import PostCommit
    from deltasql.model.progress import OnProgress
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.storage import Storage
    from deltasql.verify.repair import RepairReport
    from deltasql.verify.report import DataChecks, DataReport, VerifyReport
    from deltasql.verify.verify_log import Versions


class Mirror:
    """The published logs of a catalog's tables.

    >>> import tempfile, deltasql, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> with deltasql.connect(f"deltasql://sqlite/{folder.name}/meta.db") as catalog:
    ...     _ = catalog.create_table("sales", pa.schema([("id", pa.int64())]))
    ...     [(s.table, s.published_version, s.state) for s in catalog.mirror.status()]
    [('sales', 0, 'ACTIVE')]
    """

    def __init__(self, catalog: BaseCatalog) -> None:
        self._catalog = catalog
        self.mode = catalog.uri.mirror or catalog.config.mirror.mode
        self.publisher = Publisher(catalog.store, catalog.config)
        self._background = BackgroundPublisher(self.publisher, catalog.config.mirror)

    def after_commit(
        self, ratified: Sequence[Ratified], post_commit: PostCommit | None = None
    ) -> None:
        """Publish commits that were just ratified, now or in the background."""
        options = post_commit or DEFAULT_POST_COMMIT
        for each in ratified:
            by_version = (
                NO_POST_COMMITS if options == DEFAULT_POST_COMMIT else {each.version: options}
            )
            if self.mode == "sync":
                self.publisher.publish(
                    each.table, each.version, each.commit, post_commits=by_version
                )
            elif self.mode == "async":
                try:
                    self._background.submit(each.table, each.version, options)
                except RuntimeError:  # no thread can be started: the interpreter is shutting down
                    self.publisher.publish(
                        each.table, each.version, each.commit, post_commits=by_version
                    )

    def names_changed(self) -> None:
        """Update the views in DuckDB catalogs after tables were created, renamed or dropped."""
        if self.mode != "off":
            # lazy import: few catalogs have views
            from deltasql.mirror.duckdb.refresh import refresh_catalogs

            refresh_catalogs(self._catalog.store, self._catalog.config)

    # Status

    def status(self, table: str | None = None, *, files: bool = True) -> list[MirrorStatus]:
        """Return the published version of every target of a table, or of all tables.

        With `files`, each log is listed and its newest files are compared with the database, to
        find damage, such as after a power loss. Without `files`, only the database is queried.
        """
        settings = self._catalog.config.mirror
        found = []
        for target in self._targets(table):
            state = status.status_of(target, settings)
            if files and target.kind == targets.DELTA and target.table.dropped_at_ms is None:
                state = status.with_damage(state, self.faults(target))
            found.append(state)
        for each in found:
            if each.target == targets.OWN:
                self._catalog.store.set_table_gauge("mirror_lag_seconds", each.lag_s, each.table)
        if table is None:
            self._catalog.store.remove_table_gauges(but=[each.table for each in found])
        return found

    def faults(self, target: PublishTarget) -> list[LogFault]:
        """Return the damaged files of one published log; `status` makes the same checks."""
        from deltasql.verify.quick_check import log_faults  # lazy import: needed only to read logs

        return log_faults(self._catalog.store, target, self._storage(target))

    def versions(
        self, table: str, *, target: str = targets.OWN, limit: int = 20
    ) -> list[VersionStatus]:
        """Return the status of the latest versions of a table at one target; newest first."""
        chosen = targets.named(self._targets(table), target)
        return status.versions_of(self._catalog.store, chosen, limit)

    def lag(self, table: str) -> float:
        """Return the age in seconds of the oldest version that is missing at one of the targets."""
        return max(each.lag_s for each in self.status(table, files=False))

    # Publish and repair

    def publish(
        self,
        table: str | None = None,
        *,
        target: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> int:
        """Publish all missing versions now and return their number; raise the error if one fails.

        With `target`, versions are published only there. `on_progress` is called with a
        `Progress` that counts versions.
        """
        published, failure = 0, None
        chosen = list(self._targets(table, with_row=True))
        if target is not None:
            chosen = [targets.named(chosen, target)]
        total = sum(each.pending for each in chosen)
        meter = Meter(table or "", on_progress)
        meter.begin("publishing", "versions", total)
        for each in chosen:
            current, error = each, None
            while current.pending and error is None:
                progress = ProgressReporter(meter, published, total)
                outcome = self.publisher.advance(
                    current, current.head_version, stop=progress, converge=True
                )
                published, error = published + outcome.published, outcome.error
                current = targets.advanced(current, outcome.published)
                if progress.error is None:
                    progress.report(published)
                if progress.error is not None:
                    raise progress.error
                if not outcome.published:
                    break
            failure = failure or error
        if failure is not None:
            raise failure
        return published

    def run(
        self,
        stop: threading.Event | None = None,
        *,
        once: bool = False,
        on_progress: Callable[[PublishedBatch], None] | None = None,
    ) -> int:
        """Run the reconciler until `stop` is set, or once; returns the number of new versions.

        Tables with the property `delta.autoOptimize.autoCompact` are compacted in a second thread,
        every `mirror.auto_compact_s` seconds; with `once`, they are compacted at the end.
        """
        # lazy import: the reconciler usually runs in its own process
        from deltasql.api.catalog.auto_compact import AutoCompactor
        from deltasql.mirror.publish.reconcile import Reconciler

        catalog = self._catalog
        reconciler = Reconciler(
            catalog.store, catalog.config, on_progress=on_progress, publisher=self.publisher
        )
        compactor = AutoCompactor(catalog, self)
        stop = stop or threading.Event()
        if once:
            published = reconciler.run_once(stop)
            if compactor.run_once(stop) and not stop.is_set():
                published += reconciler.run_once(stop)
            return published
        with compactor.running(stop):
            return reconciler.run(stop)

    def verify(
        self,
        table: str | None = None,
        *,
        versions: Versions = "head",
        sample: int = 20,
        with_deltalake: bool = True,
        checkpoints: bool = True,
        data: DataChecks | bool = False,
        data_versions: Versions = "head",
        engine: str | None = None,
        target: str = targets.OWN,
        on_progress: OnProgress | None = None,
    ) -> list[VerifyReport]:
        """Compare the published log of a table, or of all tables, with the database.

        All commit files are compared. `versions` selects the versions whose whole state is also
        compared: "head", "all", "sample" (`sample` of them), or a list.

        `data` also checks the data files of the versions in `data_versions`, on the engine
        `engine`:

        - "files": each file exists and has the size that the log records
        - "counts": in addition, the number of rows in each file matches its statistics
        - "rows" or True: in addition, reading through the database and through the log gives the
          same rows

        If another writer added a commit to the log, publishing of the table is quarantined; the
        table itself stays usable.
        """
        # lazy import: needed only to read logs
        from deltasql.verify.verify_log import chosen_versions, verify_table

        reports = []
        for each in self._logs(table, target):
            meter = Meter(each.table.full_name, on_progress)
            report = verify_table(
                self._catalog.store,
                each.table,
                self._storage(each),
                versions=versions,
                sample=sample,
                with_deltalake=with_deltalake,
                checkpoints=checkpoints,
                storage_options=self._catalog.config.storage.plain_options(each.location),
                target=target,
                meter=meter,
            )
            if report.first_foreign is not None:
                self._quarantine(each, report.first_foreign)
            if data and report.checked_from is not None and report.log_version is not None:
                last = min(report.log_version, report.sql_version)
                chosen = chosen_versions(data_versions, report.checked_from, last, sample)
                checks = "rows" if data is True else data
                data_reports = [*self._verify_data(each, chosen, checks, engine, meter)]
                report = replace(report, data=data_reports)
            reports.append(report)
        return reports

    def _verify_data(
        self,
        target: PublishTarget,
        versions: Sequence[int],
        checks: DataChecks,
        engine: str | None,
        meter: Meter,
    ) -> Iterator[DataReport]:
        # lazy import: needed only to read rows
        from deltasql.verify.verify_data import verify_snapshot

        catalog = self._catalog
        from deltasql.engine.choose import open_engine  # lazy import: start-up time

        with open_engine(catalog.config, name=engine) as opened:
            for version in versions:
                snapshot = open_snapshot(
                    catalog.store, target.table, catalog.cache, version=version
                )
                yield verify_snapshot(
                    snapshot,
                    opened,
                    catalog.config,
                    checks=checks,
                    location=target.location,
                    meter=meter,
                )

    def _quarantine(self, target: PublishTarget, version: int) -> None:
        error = MirrorDivergedError(
            f"version {version} of {target.table.full_name} was written by another program",
            table=target.table.full_name,
            version=version,
            location=target.location,
        )
        rows = status.targets_with_own(self._catalog.store, target.table)
        (chosen,) = [each for each in rows if each.name == target.name]
        status.quarantine(self._catalog.store, chosen, version, error)

    def repair(
        self,
        table: str,
        *,
        force: bool = False,
        target: str = targets.OWN,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
    ) -> RepairReport:
        """Write missing files of a published log; `force` also replaces commits of other writers.

        Replaced commit files are backed up in a folder. With `dry_run`, nothing is changed, and
        the report contains what would be written.
        """
        # lazy import: needed only to read logs
        from deltasql.verify.repair import plan_repair, repair

        chosen = self._writable_log(table, target)
        storage, meter = self._storage(chosen), Meter(chosen.table.full_name, on_progress)
        work = plan_repair if dry_run else repair
        report = work(
            self._catalog.store, chosen.table, storage, force=force, target=target, meter=meter
        )
        if report.released:
            self.publish(table)
        return report

    def checkpoint(
        self, table: str, *, target: str = targets.OWN, version: int | None = None
    ) -> CheckpointInfo:
        """Publish missing versions, then write a checkpoint of a version, by default the latest."""
        # lazy import: loads the Parquet writer
        from deltasql.mirror.checkpoint.write import write_checkpoint

        self.publish(table)
        chosen = self._writable_log(table, target)
        wanted = chosen.published_version if version is None else version
        return write_checkpoint(self._catalog.store, chosen.table, self._storage(chosen), wanted)

    def compact_log(self, table: str, first: int, last: int) -> None:
        """Publish missing versions, then write the versions first..last as a compacted log file."""
        from deltasql.mirror.log.compact import compact_log  # lazy import: few logs are compacted

        self.publish(table)
        own = self._writable_log(table, targets.OWN)
        if last > own.published_version:
            raise VersionNotFoundError(
                f"Requested snapshot version {last} is not available: {table} has no published "
                f"version {last}",
                version=last,
                prefix=KERNEL_ERROR,
                latest=own.published_version,
            )
        compact_log(self._catalog.store, own.table, self._storage(own), first, last)

    def clean_log(self, table: str) -> int:
        """Delete published log files older than the table's log retention; returns how many."""
        own = self._writable_log(table, targets.OWN)
        store = self._catalog.store
        configuration = open_snapshot(store, own.table, self._catalog.cache).metadata.configuration
        return clean_log(store, own.table, self._storage(own), configuration, even_if_disabled=True)

    def write_manifests(self, snapshot: Snapshot) -> list[str]:
        """Write `_symlink_format_manifest` for a version, for engines without Delta."""
        # lazy import: few tables have manifests
        from deltasql.mirror.publish.symlink_manifest import write_manifests

        settings = self._catalog.config.storage
        if snapshot.table.is_following:
            raise follows_another_log(snapshot.table)
        return write_manifests(snapshot, open_storage(snapshot.table.location, settings))

    def adopt(self, table: str) -> ForeignReport:
        """Import the commits that another writer wrote to a table's `_delta_log`."""
        # lazy import: needed only to read logs
        from deltasql.migrate.authority.foreign_commits import adopt

        own = self._writable_log(table, targets.OWN)
        catalog = self._catalog
        report = adopt(catalog.store, catalog.committer, own.table, self._storage(own))
        self.publish(table)
        return report

    def reject(self, table: str, *, dry_run: bool = False) -> ForeignReport:
        """Back up the commit files of another writer, and replace them with our own commits."""
        # lazy import: needed only to read logs
        from deltasql.migrate.authority.foreign_commits import reject

        own = self._writable_log(table, targets.OWN)
        report = reject(self._catalog.store, own.table, self._storage(own), dry_run=dry_run)
        if not dry_run:
            self.publish(table)
        return report

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until the background publisher has published all commits; False after a timeout."""
        return self._background.flush(timeout)

    def close(self) -> None:
        """Flush and stop the background publisher."""
        self._background.close()

    # Targets

    def targets(self, table: str) -> list[PublishTarget]:
        """Return the targets that a table is published to, its own location first."""
        return self._targets(table)

    def add_target(self, table: str, name: str, location: str, *, kind: str = "delta") -> None:
        """Also publish a table to a replica with its data, or to a DuckDB file with views."""
        targets.add_target(
            self._catalog.store,
            self._catalog.resolve(table, fresh=True),
            name,
            location,
            kind,
            allow_nested=self._catalog.config.table.allow_nested_location,
        )

    def remove_target(self, table: str, name: str) -> None:
        """Stop publishing a table to a target; no files of the target are deleted."""
        targets.remove_target(self._catalog.store, self._catalog.resolve(table, fresh=True), name)

    def _targets(self, table: str | None, *, with_row: bool = False) -> list[PublishTarget]:
        store = self._catalog.store
        if table is None:
            if with_row:
                status.add_missing_targets(store)
            return targets.all_targets(store)
        row = self._catalog.resolve(table, fresh=True)
        return status.targets_with_own(store, row) if with_row else targets.targets_of(store, row)

    def _logs(self, table: str | None, target: str) -> list[PublishTarget]:
        """Return the published logs at the targets of this name, except those of dropped tables."""
        found = [each for each in self._targets(table) if each.name == target]
        if table is not None and not any(each.kind == targets.DELTA for each in found):
            raise TxnLogMirrorError(
                f"{table} has no mirror target {target!r} that is a Delta log",
                table=table,
                help="List the targets of a table with catalog.mirror.targets().",
            )
        return [each for each in found if each.table.dropped_at_ms is None]

    def _writable_log(self, table: str, target: str) -> PublishTarget:
        """Return a log to write to; raise TableFollowsError for the log of a followed table."""
        (chosen,) = self._logs(table, target)
        if chosen.is_own and chosen.table.is_following:
            raise follows_another_log(chosen.table)
        return chosen

    def _storage(self, target: PublishTarget) -> Storage:
        return open_storage(target.location, self._catalog.config.storage)
