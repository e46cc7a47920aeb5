"""`catalog.inspect`: read-only reports for Python, the command line and the console."""

from __future__ import annotations

import threading
import time
import warnings
from typing import TYPE_CHECKING

from deltasql.api.inspect import (
    advice,
    audit,
    definition,
    diff,
    doctor,
    files,
    history,
    overview,
    publishing,
    stats,
)
from deltasql.api.inspect.totals import TotalsCache
from deltasql.mirror.publish.status import release
from deltasql.mirror.publish.targets import OWN, named

if TYPE_CHECKING:
    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.api.catalog.mirror import Mirror
    from deltasql.api.inspect.advice import MaintenanceAdvice
    from deltasql.api.inspect.audit import AuditEntry
    from deltasql.api.inspect.definition import Column, SchemaChange
    from deltasql.api.inspect.diff import VersionDiff
    from deltasql.api.inspect.doctor import DoctorReport
    from deltasql.api.inspect.files import FileEntry
    from deltasql.api.inspect.history import (
        CommitEntry,
        CommitWatch,
        FileChanges,
        RecentCommit,
        TransactionEvent,
    )
    from deltasql.api.inspect.overview import HourCount, Overview, TableSummary
    from deltasql.api.inspect.page import Page
    from deltasql.api.inspect.stats import Measured, PartitionStats, TableStats
    from deltasql.mirror.publish.status import MirrorStatus, VersionStatus
    from deltasql.model.progress import OnProgress

# The file sizes of this many tables are cached; each file takes 48 bytes.
_MAX_CACHED = 4
_MAX_CACHED_ADVICE = 10_000
_ADVICE_S = 60.0


class Inspect:
    """Reports on a catalog; lists are returned in pages, and later pages take no longer to read.

    >>> import tempfile, deltasql, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> with deltasql.connect(f"deltasql://sqlite/{folder.name}/meta.db") as catalog:
    ...     with catalog.begin() as tx:
    ...         _ = tx.write("sales", pa.table({"id": [1, 2, 3]}))
    ...     found = catalog.inspect.table("sales")
    ...     (found.version, found.files, found.rows)
    (0, 1, 3)
    """

    def __init__(self, catalog: BaseCatalog, mirror: Mirror) -> None:
        self._catalog, self._mirror = catalog, mirror
        self._totals = TotalsCache(catalog.store)
        self._numbers: dict[int, Measured] = {}
        self._reading: dict[int, threading.Lock] = {}
        self._advised: dict[int, tuple[float, MaintenanceAdvice]] = {}
        self._guard = threading.Lock()

    # The catalog

    def overview(
        self, *, hours: int = 24, namespace: str | None = None, limit: int = 100
    ) -> Overview:
        """Return the first tables, the totals of all tables, and the number of commits per hour."""
        return overview.overview(
            self._catalog, self._totals, hours=hours, namespace=namespace, limit=limit
        )

    def files_to_add_up(self) -> int:
        """Return how many files the next overview must read because their totals are not cached."""
        return overview.files_to_add_up(self._catalog, self._totals)

    def tables(
        self,
        *,
        namespace: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        search: str | None = None,
        order: str = "name",
        descending: bool = False,
    ) -> Page[TableSummary]:
        """Return tables, sorted by namespace and name.

        Other orders are "version", "rows", "files", "size" and "committed". `search` selects tables
        whose name contains a text, in upper or lower case.
        """
        return overview.tables(
            self._catalog,
            self._totals,
            namespace=namespace,
            limit=limit,
            cursor=cursor,
            search=search,
            order=order,
            descending=descending,
        )

    def update_file_metrics(self) -> None:
        """Set the metric `files_active` for every table."""
        cursor, store = None, self._catalog.store
        while (page := self.tables(limit=1000, cursor=cursor)).items:
            for each in page.items:
                store.set_table_gauge("files_active", each.files, each.name)
            cursor = page.next
            if cursor is None:
                return

    def tell_files(self) -> None:
        """Deprecated name of `update_file_metrics`."""
        warnings.warn(
            "tell_files is deprecated: use update_file_metrics", DeprecationWarning, stacklevel=2
        )
        self.update_file_metrics()

    def table(self, name: str) -> TableSummary:
        """Return a summary of one table."""
        return overview.table(self._catalog, self._totals, name)

    def activity(self, *, hours: int = 24, table: str | None = None) -> tuple[HourCount, ...]:
        """Return the number of commits in each of the last hours, oldest first."""
        return overview.activity(self._catalog, hours=hours, table=table)

    def doctor(self, *, table: str | None = None) -> DoctorReport:
        """Check the catalog, or one table, for problems."""
        return doctor.doctor(self._catalog, table, self._totals)

    def check_database(self) -> DoctorReport:
        """Check that the database answers and has the schema of this release; read no table."""
        return doctor.check_database(self._catalog)

    # Sizes

    def stats(self, name: str, *, days: int = 30, partitions: int = 100) -> TableStats:
        """Return sizes, growth and skew of a table, with its largest partitions."""
        full_name = self._catalog.table(name).full_name
        return stats.table_stats(self._catalog, full_name, self._measured(name), days, partitions)

    def partitions(
        self, name: str, *, order: str = "bytes", limit: int = 100, cursor: str | None = None
    ) -> Page[PartitionStats]:
        """Return partitions by "bytes", "files" or "rows", largest first, or by "partition"."""
        return stats.partition_page(self._measured(name), order=order, limit=limit, cursor=cursor)

    def files(
        self,
        name: str,
        *,
        version: int | None = None,
        predicate: str | None = None,
        order: str = "added",
        descending: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[FileEntry]:
        """Return the files of a version, ordered by "added", "size" or "path".

        With a predicate, only files that can contain a matching row are returned.
        """
        return files.files(
            self._catalog.table(name),
            version=version,
            predicate=predicate,
            order=order,
            descending=descending,
            limit=limit,
            cursor=cursor,
        )

    def advice(self, name: str) -> MaintenanceAdvice:
        """Return what OPTIMIZE and VACUUM would do; nothing is changed.

        The result for a version is cached for only one minute, because the files that VACUUM may
        delete depend on the time.
        """
        table = self._catalog.table(name)
        snapshot = table.snapshot()
        table_id, now = snapshot.table.table_id, time.monotonic()
        with self._guard:
            since, known = self._advised.get(table_id, (0.0, None))
        wanted = (table.full_name, snapshot.version)
        if known and (known.name, known.version) == wanted and now - since < _ADVICE_S:
            return known
        found = advice.advice(self._measured(name), table.full_name)
        with self._guard:
            self._advised.pop(table_id, None)
            self._advised[table_id] = (now, found)
            while len(self._advised) > _MAX_CACHED_ADVICE:
                self._advised.pop(next(iter(self._advised)))
        return found

    # History

    def history(
        self,
        name: str,
        *,
        operation: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[CommitEntry]:
        """Return the commits of a table, newest first; `operation` selects one kind of commit."""
        return history.history(self._catalog, name, operation=operation, limit=limit, cursor=cursor)

    def first_version(self, name: str) -> int:
        """Return the first available version; above 0 if an imported log lacked old versions."""
        table_id = self._catalog.resolve(name, fresh=True).table_id
        return int(self._catalog.store.query("version_bounds", table_id=table_id)[0][0])

    def commit(self, name: str, version: int) -> CommitEntry:
        """Return one commit of a table."""
        return history.commit(self._catalog, name, version)

    def commit_json(self, name: str, version: int) -> tuple[str, ...]:
        """Return the actions of a commit as JSON: the lines of its file in `_delta_log`."""
        return history.commit_json(self._catalog, name, version)

    def schema(self, name: str, *, version: int | None = None) -> list[Column]:
        """Return the columns of a version."""
        return definition.columns_of(self._catalog.table(name).snapshot(version))

    def schema_changes(
        self, name: str, *, limit: int = 50, cursor: str | None = None
    ) -> Page[SchemaChange]:
        """Return versions that changed columns, properties or the protocol, newest first."""
        return definition.schema_changes(self._catalog, name, limit=limit, cursor=cursor)

    def diff(
        self,
        name: str,
        first: int,
        last: int,
        *,
        files_limit: int = 100,
        rows: bool = False,
        rows_limit: int = 100,
    ) -> VersionDiff:
        """Compare two versions; `rows=True` also compares the rows of files that only one has."""
        return diff.diff(
            self._catalog,
            name,
            first,
            last,
            files_limit=files_limit,
            rows=rows,
            rows_limit=rows_limit,
        )

    def transactions(
        self,
        *,
        hours: int | None = None,
        table: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[TransactionEvent]:
        """Return transactions over several tables, newest first."""
        return history.transactions(
            self._catalog, hours=hours, table=table, limit=limit, cursor=cursor
        )

    def transaction(self, txn_id: str) -> TransactionEvent:
        """Return a transaction with every table that it changed."""
        return history.transaction(self._catalog, txn_id)

    def file_changes(self, table: str, *, first: int, last: int) -> dict[int, FileChanges]:
        """Return the files that each version of a range added and removed."""
        return history.file_changes(self._catalog, table, first=first, last=last)

    def audit_log(self, *, limit: int = 50, cursor: str | None = None) -> Page[AuditEntry]:
        """Return the changes that users made through the console, newest first."""
        return audit.audit_log(self._catalog, limit=limit, cursor=cursor)

    def recent(self, *, limit: int = 50) -> tuple[RecentCommit, ...]:
        """Return the latest commits of all tables, newest first."""
        return history.recent(self._catalog, limit=limit)

    def watch(self) -> CommitWatch:
        """Return an object that polls for the commits of all tables from now on."""
        return history.CommitWatch(self._catalog)

    # The mirror

    def mirror(self, name: str | None = None) -> list[MirrorStatus]:
        """Return the state of every target of a table, or of all tables."""
        return self._mirror.status(name, files=False)

    def mirror_versions(
        self,
        name: str,
        *,
        target: str = OWN,
        only: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[VersionStatus]:
        """Return the state of versions at a target: first the failed ones, then the newest."""
        return publishing.mirror_versions(
            self._catalog, name, target=target, only=only, limit=limit, cursor=cursor
        )

    def retry(
        self,
        name: str,
        *,
        target: str = OWN,
        on_progress: OnProgress | None = None,
    ) -> int:
        """Publish the missing versions of one target now; returns how many were published.

        The backoff after a failure is ignored. A quarantined target is released first, and
        quarantined again if the foreign commit is still in its log. This is the only method of this
        class that writes.
        """
        place = named(self._mirror.targets(name), target)
        release(self._catalog.store, place.table, place.name)
        return self._mirror.publish(name, target=target, on_progress=on_progress)

    def _measured(self, name: str) -> Measured:
        """Return the file sizes of a table at its latest version, from the cache if possible."""
        table = self._catalog.table(name)
        table_id = table.row.table_id
        with self._guard:
            one_at_a_time = self._reading.setdefault(table_id, threading.Lock())
        # If another thread is reading this table, wait for its result instead of reading it again.
        with one_at_a_time:
            snapshot = table.snapshot()
            with self._guard:
                known = self._numbers.get(table_id)
            if known is None or known.snapshot.version != snapshot.version:
                known = stats.Measured(snapshot)
                with self._guard:
                    self._numbers.pop(table_id, None)
                    self._numbers[table_id] = known
                    while len(self._numbers) > _MAX_CACHED:
                        self._numbers.pop(next(iter(self._numbers)))
        return known
