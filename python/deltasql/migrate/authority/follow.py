"""Follow a log: keep a read-only index of a table that other writers commit to.

The log stays the authority, and nothing is written to it. A refresh appends the new commits of the
log to the database, with the same versions. If the log was replaced, or old commits were cleaned up
before a refresh, the whole table is loaded again and replaces the old one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from deltasql.exceptions import (
    MissingDataFilesError,
    TableExistsError,
    TxnLogTableNotFoundError,
    VersionTakenError,
)
from deltasql.migrate.importing.import_table import import_table
from deltasql.migrate.importing.load_log import LogLoader
from deltasql.migrate.importing.load_table import LoadCounts, load_commits, set_published_version
from deltasql.migrate.importing.log_source import LocalLog
from deltasql.migrate.importing.run import ImportOptions
from deltasql.mirror.log.encode import commit_file
from deltasql.mirror.log.listing import LOG_FOLDER, list_log, sort_files
from deltasql.mirror.log.same_commit import has_commit
from deltasql.model.counts import many
from deltasql.model.progress import Meter
from deltasql.model.report import Report
from deltasql.storage import absolute_location, open_storage
from deltasql.store.locations import tables_at
from deltasql.store.records import TableRow
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from deltasql.config import StorageSettings
    from deltasql.migrate.importing.report import ImportReport
    from deltasql.mirror.log.listing import LogListing
    from deltasql.model.progress import OnProgress
    from deltasql.storage import Storage
    from deltasql.store.records import Head
    from deltasql.store.store import Store

FollowState = Literal["followed", "refreshed", "up to date", "loaded anew"]
_ATTEMPTS = 10
_FOLLOWING = {TableRow.FOLLOWING: "true"}


@dataclass(frozen=True, slots=True)
class FollowReport(Report):
    """The result of a refresh; `commits` and `files` count what the refresh added."""

    source: str
    table: str
    state: FollowState = "up to date"
    first_version: int | None = None
    last_version: int | None = None
    commits: int = 0
    files: int = 0
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def summary(self) -> str:
        """Return the report as text."""
        added = f"{many(self.commits, 'commit')} with {many(self.files, 'file')} added"
        lines = [
            f"{self.table}: {self.state}, versions {self.first_version} to {self.last_version}, "
            f"{added}, from {self.source}"
        ]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def follow(
    store: Store,
    source: str,
    *,
    name: str | None = None,
    namespace: str | None = None,
    batch_size: int | None = None,
    allow_nested_location: bool = False,
    settings: StorageSettings,
    on_progress: OnProgress | None = None,
) -> FollowReport:
    """Follow the log at a location: create a table for it, or refresh the existing table."""
    storage = open_storage(absolute_location(source), settings)
    known = table_at(store, storage.location) if store.exists() else None
    if known is not None:
        _check_followable(known, storage, name, namespace)
        return refresh(
            store, known, batch_size=batch_size, settings=settings, on_progress=on_progress
        )
    options = ImportOptions(
        name=name,
        namespace=namespace,
        batch_size=batch_size,
        allow_nested_location=allow_nested_location,
        properties=_FOLLOWING,
    )
    return _load(store, storage, options, settings, on_progress)


def refresh(
    store: Store,
    table: TableRow,
    *,
    batch_size: int | None = None,
    settings: StorageSettings,
    on_progress: OnProgress | None = None,
) -> FollowReport:
    """Append the new commits of its log to a followed table."""
    storage = open_storage(table.location, settings)
    attempt = 0
    while True:
        attempt += 1
        try:
            return _Refresh(store, table, storage, settings, on_progress).run(batch_size)
        except VersionTakenError:
            # Another process refreshed the table at the same time.
            if attempt >= _ATTEMPTS:
                raise


def table_at(store: Store, location: str) -> TableRow | None:
    """Return the live table at a location, in any spelling; None if there is no table."""
    found = tables_at(store.query, location)
    return next((table for table in found if table.dropped_at_ms is None), None)


class _Refresh:
    """One attempt to refresh a followed table."""

    def __init__(
        self,
        store: Store,
        table: TableRow,
        storage: Storage,
        settings: StorageSettings,
        on_progress: OnProgress | None,
    ) -> None:
        self._store, self._table, self._storage = store, table, storage
        self._settings, self._on_progress = settings, on_progress
        self._name = join_table_name(table.namespace, table.name)
        self._began_s = time.monotonic()

    def run(self, batch_size: int | None) -> FollowReport:
        store, table = self._store, self._table
        head = store.head(table.table_id)
        if head is None:
            raise TxnLogTableNotFoundError(f"table {self._name} no longer exists", table=self._name)
        # List only the end of the log, because listing a long log is slow.
        after = commit_file(head.version).removesuffix(".json")
        listing = sort_files(
            self._storage.location, self._storage.list(LOG_FOLDER, start_after=after)
        )
        reason = self._reload_reason(listing, head)
        if reason is not None:
            return self._reload(reason)
        last = max(listing.commits, default=head.version)
        loaded = LoadCounts()
        self._append(listing, head, last, loaded, batch_size)
        return FollowReport(
            self._storage.location,
            self._name,
            "refreshed" if loaded.commits else "up to date",
            store.query("version_bounds", table_id=table.table_id)[0][0],
            max(last, head.version),
            loaded.commits,
            loaded.files,
            loaded.notes(),
            time.monotonic() - self._began_s,
        )

    def _append(
        self,
        listing: LogListing,
        head: Head,
        last: int,
        loaded: LoadCounts,
        batch_size: int | None,
    ) -> None:
        store, table = self._store, self._table
        meter, total = Meter(self._name, self._on_progress), max(0, last - head.version)
        if last > head.version:
            load_commits(
                LogLoader(store, table),
                LocalLog(self._storage, listing),
                head.version + 1,
                last,
                loaded,
                batch_actions=batch_size,
                on_batch=lambda: loaded.report(meter, "loading", total),
                before_commit=lambda session, version: set_published_version(
                    session, table.table_id, version
                ),
            )
        loaded.report(meter, "done", total)

    def _reload_reason(self, listing: LogListing, head: Head) -> str | None:
        """Return why the log does not continue the versions in the database; None if it does."""
        version, commits = head.version, listing.commits
        if version in commits:
            data = self._storage.read(commits[version].name)
            if not has_commit(self._store, self._table, version, data):
                return f"the log has another commit as version {version}"
        newest = max([*commits, *(each.version for each in listing.checkpoints)], default=-1)
        if newest < version:
            last = list_log(self._storage).last_version
            if last < version:
                return f"the log ends at version {last}; it had version {version} before"
            return None  # the commit was written after the first listing
        if newest > version and version + 1 not in commits:
            listed = list_log(self._storage)
            if listed.first_version > version + 1 or version + 1 not in listed.commits:
                return f"versions from {version + 1} on were deleted before the catalog read them"
        return None

    def _reload(self, reason: str) -> FollowReport:
        options = ImportOptions(
            name=self._table.name,
            namespace=self._table.namespace,
            force=True,
            verify=False,
            properties=_FOLLOWING,
        )
        report = _load(self._store, self._storage, options, self._settings, self._on_progress)
        return replace(report, state="loaded anew", notes=[reason, *report.notes])


def _load(
    store: Store,
    storage: Storage,
    options: ImportOptions,
    settings: StorageSettings,
    on_progress: OnProgress | None,
) -> FollowReport:
    """Load a whole log. Missing data files are only a warning, because another writer owns them."""
    try:
        found = import_table(
            store, storage.location, options, settings=settings, on_progress=on_progress
        )
    except MissingDataFilesError as error:
        found = import_table(
            store,
            storage.location,
            replace(options, verify=False),
            settings=settings,
            on_progress=on_progress,
        )
        found = replace(found, warnings=[*found.warnings, error.message])
    return _report(found)


def _report(found: ImportReport) -> FollowReport:
    return FollowReport(
        found.source,
        found.table or found.source,
        "followed",
        found.first_version,
        found.last_version,
        found.commits,
        found.files,
        [*found.notes, *found.warnings],
        found.seconds,
    )


def _check_followable(
    table: TableRow, storage: Storage, name: str | None, namespace: str | None
) -> None:
    """Raise if the database manages the table, or if it is followed under another name."""
    known = join_table_name(table.namespace, table.name)
    if not table.is_following:
        raise TableExistsError(
            f"the table {known} at {storage.location} cannot follow its log, because its authority "
            "is the database",
            table=known,
            help="Update it from its log with `deltasql import`, or roll it back first.",
        )
    if (name or table.name, namespace or table.namespace) != (table.name, table.namespace):
        raise TableExistsError(
            f"the table {known} already follows the log at {storage.location}",
            table=known,
            help="Omit the name to refresh it, or rename the table in the catalog.",
        )
