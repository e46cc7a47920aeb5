"""Rebuild a lost catalog: load every published log below some folders into the database.

A table stays hidden until its whole log is loaded, so an interrupted rebuild can be repeated.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from deltasql.exceptions import TableExistsError, TxnLogError, VersionTakenError
from deltasql.migrate.importing.import_tree import find_tables
from deltasql.migrate.importing.load_log import LogLoader
from deltasql.migrate.importing.load_table import (
    LoadCounts,
    begin_loading,
    can_resume,
    discard,
    finish_loading,
    load_commits,
    load_state,
)
from deltasql.migrate.importing.log_source import LocalLog
from deltasql.migrate.importing.names import name_from_layout, name_in_log, restored_name
from deltasql.mirror.log.listing import flush_log, list_log
from deltasql.mirror.log.read import stream_state
from deltasql.mirror.log.same_commit import has_head_of
from deltasql.mirror.publish.status import mark_published
from deltasql.model.counts import many
from deltasql.model.progress import Meter
from deltasql.model.report import Report
from deltasql.storage import absolute_location, join_location, open_storage
from deltasql.store.dialect import Fault
from deltasql.store.locations import reject_replica, tables_at
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.config import StorageSettings
    from deltasql.mirror.log.listing import LogListing
    from deltasql.model.progress import OnProgress
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

State = Literal["loaded", "continued", "up to date", "would load", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class RebuiltTable(Report):
    """The result of loading one table."""

    location: str
    name: str | None = None
    state: State = "loaded"
    first_version: int | None = None
    last_version: int | None = None
    loaded: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RebuildReport(Report):
    """The results of loading every table that was found."""

    KEYS: ClassVar[tuple[str, ...]] = ("ok", "tables")

    tables: list[RebuiltTable] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every table is in the catalog."""
        return not any(each.state == "failed" for each in self.tables)

    def summary(self) -> str:
        """Return the report as text, one line per table."""
        lines = [f"{many(len(self.tables), 'table')} found"]
        for each in self.tables:
            span = f"{each.first_version} to {each.last_version}"
            line = f"  {each.name or '?'}: {each.state}, versions {span}, {each.loaded} loaded, "
            lines += [f"{line}from {each.location}", *(f"    {note}" for note in each.notes)]
        return "\n".join(lines)


def rebuild_catalog(
    store: Store,
    roots: Sequence[str],
    *,
    settings: StorageSettings | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> RebuildReport:
    """Load the tables below the roots, and the commits, that the catalog does not have yet."""
    loads: list[_TableLoad] = []
    for root in roots:
        root_location = absolute_location(root)
        for folder in find_tables(open_storage(root_location, settings)):
            location = join_location(root_location, *folder.split("/")) if folder else root_location
            load = _TableLoad(store, location, folder, Meter(location, on_progress))
            loads.append(load)
            store.check_exists() if dry_run else store.create()
            try:
                load.run(open_storage(location, settings), dry_run=dry_run)
            except (TxnLogError, OSError) as error:
                load.fail(str(error).splitlines()[0])
    # If several tables have the same name, the table with the newest commit gets it: the others
    # must have been dropped before.
    unnamed = [(each, each.unnamed) for each in loads if each.unnamed is not None]
    for load, table in sorted(unnamed, key=lambda each: -_last_commit_ms(store, each[1])):
        load.give_name(table)
    return RebuildReport([each.report for each in loads])


class _TableLoad:
    """Loads one table. `unnamed` is the loaded table while it has no name yet."""

    def __init__(self, store: Store, location: str, folder: str, meter: Meter) -> None:
        self._store, self._folder, self._meter = store, folder, meter
        self.report = RebuiltTable(location)
        self.unnamed: TableRow | None = None

    def fail(self, note: str) -> None:
        """Record that the table could not be loaded, and why."""
        self._set_state("failed")
        self.report.notes.append(note)

    def run(self, storage: Storage, *, dry_run: bool) -> None:
        """Load the missing versions of the table."""
        store, listing = self._store, list_log(storage)
        self.report = replace(
            self.report, first_version=listing.first_version, last_version=listing.last_version
        )
        known = tables_at(store.query, storage.location)
        table = known[0] if known else None
        if table is None:
            try:
                reject_replica(store.query, storage.location, allow_nested=True)
            except TableExistsError as error:
                self._set_state("skipped")
                self.report.notes.append(error.message)
                return
        if table is not None and not table.is_loading:
            self._set_name(join_table_name(table.namespace, table.name))
            if table.dropped_at_ms is not None:
                self._set_state("skipped")
                self.report.notes.append("a dropped table of the catalog has this location")
                return
            if not self._can_continue(table, storage, listing):
                return
        if dry_run:
            metadata = stream_state(storage, listing.last_version, listing=listing).metadata
            named = name_from_layout(metadata, storage.location, self._folder)
            self._set_name(self.report.name or join_table_name(*named))
            self._set_state("would load")
            return
        if table is None:
            table = self._load_new(storage, listing)
        else:
            loader = LogLoader(store, table, times="commit")
            self._set_state("loaded" if loader.next_version is None else "continued")
            self._append(loader, storage, listing)
        flush_log(storage)
        mark_published(store, table, listing.last_version)
        if self.report.name is None:
            self.unnamed = table

    def give_name(self, table: TableRow) -> None:
        """Make the loaded table visible; append a number to its name if the name is in use."""
        store = self._store
        wanted = restored_name(store, table, self._folder)
        number, namespace, name = 1, *wanted
        while True:
            try:
                finish_loading(store, table, namespace, name)
                break
            except VersionTakenError as error:
                self.fail(error.message)
                return
            except TxnLogError as error:
                cause = error.__cause__
                if cause is None or store.classify(cause) is not Fault.DUPLICATE:
                    raise
                others = tables_at(store.query, table.location)
                if any(each.dropped_at_ms is None for each in others):
                    self.fail("another table has this location")
                    return
                number += 1
                name = f"{wanted[1]}-{number}"
        self._set_name(join_table_name(namespace, name))
        if number > 1:
            note = f"{join_table_name(*wanted)} is the name of a newer table"
            self.report.notes.append(note)

    def _set_state(self, state: State) -> None:
        self.report = replace(self.report, state=state)

    def _set_name(self, name: str) -> None:
        self.report = replace(self.report, name=name)

    def _load_new(self, storage: Storage, listing: LogListing) -> TableRow:
        """Load a whole log into a hidden table; delete the table if the log cannot be loaded."""
        store = self._store
        state = stream_state(storage, listing.first_version, listing=listing)
        name, token = name_in_log(state.metadata, storage.location), str(uuid.uuid4())
        table = begin_loading(
            store, storage, state.metadata, name, listing.last_version, token=token
        )
        try:
            self._append(LogLoader(store, table, token=token, times="commit"), storage, listing)
        except Exception as error:
            if not can_resume(error):
                discard(store, table, token)
            raise
        return table

    def _can_continue(self, table: TableRow, storage: Storage, listing: LogListing) -> bool:
        """Return whether the log has commits that the database lacks; if not, record the reason."""
        head = self._store.head(table.table_id)
        assert head is not None
        if head.version >= listing.last_version:
            self._set_state("up to date")
            return False
        if not has_head_of(self._store, table, storage, listing):
            self.fail(
                f"version {head.version} is not the same commit in the database and in the log: "
                "nothing was loaded"
            )
            return False
        return True

    def _append(self, loader: LogLoader, storage: Storage, listing: LogListing) -> None:
        loaded, notes = LoadCounts(), self.report.notes
        is_new = loader.next_version is None
        version = loader.next_version or listing.first_version
        total = listing.last_version - version + 1

        def count() -> None:
            self.report = replace(self.report, loaded=loaded.commits)
            loaded.report(self._meter, "loading", total)

        if is_new and (version > 0 or version not in listing.commits):
            state = stream_state(storage, version, listing=listing)
            load_state(loader, storage, listing, state, loaded, count)
            notes.append(f"begins at version {version}: older commits were cleaned up")
            version += 1
        log = LocalLog(storage, listing)
        load_commits(loader, log, version, listing.last_version, loaded, on_batch=count)
        self.report = replace(self.report, loaded=loaded.commits)
        notes.extend(loaded.notes())


def _last_commit_ms(store: Store, table: TableRow) -> int:
    head = store.head(table.table_id)
    return 0 if head is None else head.committed_at_ms
