"""A table that follows a log which others write: an index of it in SQL, for reading only.

The log stays the authority and is never written to. A refresh appends the commits that are new,
under their own versions. Where the log was replaced, or cleaned up before it was followed, the
table is loaded anew and takes the place of the old one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from deltasql.exceptions import (
    MissingDataFilesError,
    TableExistsError,
    TxnLogTableNotFoundError,
    VersionTakenError,
)
from deltasql.migrate.importing.import_table import import_table
from deltasql.migrate.importing.load_log import LogLoader, has_commit
from deltasql.migrate.importing.load_table import Loaded, load_commits
from deltasql.migrate.importing.report import ImportProgress
from deltasql.migrate.importing.run import ImportOptions
from deltasql.mirror.log.encode import commit_file
from deltasql.mirror.log.listing import LOG_FOLDER, list_log, sort_files
from deltasql.mirror.publish.targets import OWN
from deltasql.model.counts import many
from deltasql.storage import absolute_location, open_storage
from deltasql.store.locations import tables_at
from deltasql.store.records import TableRow
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.config import StorageSettings
    from deltasql.migrate.importing.report import ImportReport
    from deltasql.mirror.log.listing import LogListing
    from deltasql.storage import Storage
    from deltasql.store.dialect import Session
    from deltasql.store.records import Head
    from deltasql.store.store import Store

    Tell = Callable[[ImportProgress], None]

FollowState = Literal["followed", "refreshed", "up to date", "loaded anew"]
_ATTEMPTS = 10
_FOLLOWING = {TableRow.FOLLOWING: "true"}


@dataclass(slots=True)
class FollowReport:
    """What a refresh found; `commits` and `files` are what it added."""

    source: str
    table: str
    state: FollowState = "up to date"
    first_version: int | None = None
    last_version: int | None = None
    commits: int = 0
    files: int = 0
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return {
            "source": self.source,
            "table": self.table,
            "state": self.state,
            "first_version": self.first_version,
            "last_version": self.last_version,
            "commits": self.commits,
            "files": self.files,
            "notes": list(self.notes),
            "seconds": round(self.seconds, 3),
        }

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
    tell: Tell | None = None,
) -> FollowReport:
    """Follow the log at a place: make its table, or bring the one that is there up to it."""
    storage = open_storage(absolute_location(source), settings)
    known = table_at(store, storage.location) if store.exists() else None
    if known is not None:
        _refuse_other(known, storage, name, namespace)
        return refresh(store, known, batch_size=batch_size, settings=settings, tell=tell)
    options = ImportOptions(
        name=name,
        namespace=namespace,
        batch_size=batch_size,
        allow_nested_location=allow_nested_location,
        properties=_FOLLOWING,
    )
    return _loaded(store, storage, options, settings, tell)


def refresh(
    store: Store,
    table: TableRow,
    *,
    batch_size: int | None = None,
    settings: StorageSettings,
    tell: Tell | None = None,
) -> FollowReport:
    """Append what the log of a following table has more than SQL."""
    storage = open_storage(table.location, settings)
    attempt = 0
    while True:
        attempt += 1
        try:
            return _Refresh(store, table, storage, settings, tell).run(batch_size)
        except VersionTakenError:
            # Somebody else refreshes it too, and was faster.
            if attempt >= _ATTEMPTS:
                raise


def table_at(store: Store, location: str) -> TableRow | None:
    """Return the live table with its files at a location, in whatever spelling."""
    found = tables_at(store.query, location)
    return next((table for table in found if table.dropped_at_ms is None), None)


def mark_in_place(session: Session, table_id: int, version: int) -> None:
    """Note that the log has everything up to a version, in the transaction that adds it to SQL."""
    session.execute("set_published_version", table_id=table_id, target=OWN, version=version)


class _Refresh:
    """One look at a log."""

    def __init__(
        self,
        store: Store,
        table: TableRow,
        storage: Storage,
        settings: StorageSettings,
        tell: Tell | None,
    ) -> None:
        self._store, self._table, self._storage = store, table, storage
        self._settings, self._tell = settings, tell
        self._name = join_table_name(table.namespace, table.name)
        self._began_s = time.monotonic()

    def run(self, batch_size: int | None) -> FollowReport:
        store, table = self._store, self._table
        head = store.head(table.table_id)
        if head is None:
            raise TxnLogTableNotFoundError(
                f"table {self._name} does not exist any more", table=self._name
            )
        # Only what is not followed yet: a long log is not listed whole each time.
        after = commit_file(head.version).removesuffix(".json")
        listing = sort_files(
            self._storage.location, self._storage.list(LOG_FOLDER, start_after=after)
        )
        parted = self._parted(listing, head)
        if parted is not None:
            return self._load_anew(parted)
        last = max(listing.commits, default=head.version)
        loaded = Loaded()
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
        loaded: Loaded,
        batch_size: int | None,
    ) -> None:
        store, table = self._store, self._table
        progress = ImportProgress(self._storage.location, self._name, "loading")
        progress.total_commits = max(0, last - head.version)

        def tell() -> None:
            progress.commits, progress.files = loaded.commits, loaded.files
            progress.log_bytes = loaded.log_bytes
            if self._tell is not None:
                self._tell(progress)

        if last > head.version:
            load_commits(
                LogLoader(store, table),
                self._storage,
                listing,
                head.version + 1,
                last,
                loaded,
                batch_actions=batch_size,
                tell=tell,
                also=lambda session, version: mark_in_place(session, table.table_id, version),
            )
        progress.phase = "done"
        tell()

    def _parted(self, listing: LogListing, head: Head) -> str | None:
        """Say why the log does not go on where SQL ends; None when it does."""
        version, commits = head.version, listing.commits
        if version in commits:
            data = self._storage.read(commits[version].name)
            if not has_commit(self._store, self._table, version, data):
                return f"the log has another commit in the place of version {version}"
        newest = max([*commits, *(each.version for each in listing.checkpoints)], default=-1)
        if newest < version:
            last = list_log(self._storage).last_version
            if last < version:
                return f"the log ends at version {last}, it had {version}"
            return None  # written meanwhile
        if newest > version and version + 1 not in commits:
            listed = list_log(self._storage)
            if listed.first_version > version + 1 or version + 1 not in listed.commits:
                return f"versions from {version + 1} on were cleaned up before they were followed"
        return None

    def _load_anew(self, why: str) -> FollowReport:
        options = ImportOptions(
            name=self._table.name,
            namespace=self._table.namespace,
            force=True,
            verify=False,
            properties=_FOLLOWING,
        )
        report = _loaded(self._store, self._storage, options, self._settings, self._tell)
        report.state = "loaded anew"
        report.notes.insert(0, why)
        return report


def _loaded(
    store: Store,
    storage: Storage,
    options: ImportOptions,
    settings: StorageSettings,
    tell: Tell | None,
) -> FollowReport:
    """Load a log whole; data that is gone is the writers' affair, and told."""
    try:
        found = import_table(store, storage.location, options, settings=settings, tell=tell)
    except MissingDataFilesError as error:
        lenient = ImportOptions(
            name=options.name,
            namespace=options.namespace,
            batch_size=options.batch_size,
            verify=False,
            properties=options.properties,
        )
        found = import_table(store, storage.location, lenient, settings=settings, tell=tell)
        found.warnings.append(error.message)
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


def _refuse_other(
    table: TableRow, storage: Storage, name: str | None, namespace: str | None
) -> None:
    """Refuse a table that SQL owns, and one that is followed under another name."""
    known = join_table_name(table.namespace, table.name)
    if not table.is_following:
        raise TableExistsError(
            f"the table at {storage.location} is {known}, which SQL writes to: it cannot follow",
            table=known,
            help="Bring it up to its log with `deltasql import`, or roll it back first.",
        )
    if (name or table.name, namespace or table.namespace) != (table.name, table.namespace):
        raise TableExistsError(
            f"the log at {storage.location} is followed already: it is {known}",
            table=known,
            help="Leave the name out to refresh it, or rename the table in the catalog.",
        )
