"""Rebuild a lost catalog: load every published log below some folders into the database.

A table stays hidden until its whole log is loaded, so an interrupted rebuild can be repeated.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from deltasql.exceptions import TxnLogError, VersionTakenError
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
from deltasql.store.locations import tables_at
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


@dataclass(slots=True)
class RebuiltTable(Report):
    """The result of loading one table."""

    location: str
    name: str | None = None
    state: State = "loaded"
    first_version: int | None = None
    last_version: int | None = None
    loaded: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
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
    """Load the tables below the roots that the catalog lacks, completely or in part."""
    report = RebuildReport()
    unnamed: list[tuple[RebuiltTable, TableRow, str]] = []
    for root in roots:
        root_location = absolute_location(root)
        for folder in find_tables(open_storage(root_location, settings)):
            location = join_location(root_location, *folder.split("/")) if folder else root_location
            found = RebuiltTable(location)
            report.tables.append(found)
            store.check_exists() if dry_run else store.create()
            try:
                storage = open_storage(location, settings)
                meter = Meter(location, on_progress)
                table = _load(store, storage, folder, found, meter, dry_run=dry_run)
            except (TxnLogError, OSError) as error:
                found.state = "failed"
                found.notes.append(str(error).splitlines()[0])
            else:
                if table is not None:
                    unnamed.append((found, table, folder))
    # If several tables have the same name, the newest one gets it. The others had been dropped
    # before.
    for found, table, folder in sorted(unnamed, key=lambda each: -_last_commit_ms(store, each[1])):
        _give_name(store, table, folder, found)
    return report


def _load(
    store: Store,
    storage: Storage,
    folder: str,
    found: RebuiltTable,
    meter: Meter,
    *,
    dry_run: bool,
) -> TableRow | None:
    """Load the missing versions of a table; return the table if it still needs a name."""
    listing = list_log(storage)
    found.first_version, found.last_version = listing.first_version, listing.last_version
    known = tables_at(store.query, storage.location)
    table = known[0] if known else None
    if table is not None and not table.is_loading:
        found.name = join_table_name(table.namespace, table.name)
        if table.dropped_at_ms is not None:
            found.state = "skipped"
            found.notes.append("a dropped table of the catalog has this location")
            return None
        if not _can_continue(store, table, storage, listing, found):
            return None
    if dry_run:
        metadata = stream_state(storage, listing.last_version, listing=listing).metadata
        named = name_from_layout(metadata, storage.location, folder)
        found.name = found.name or join_table_name(*named)
        found.state = "would load"
        return None
    if table is None:
        table = _load_new(store, storage, listing, found, meter)
    else:
        loader = LogLoader(store, table, times="commit")
        found.state = "loaded" if loader.next_version is None else "continued"
        _append(loader, storage, listing, found, meter)
    flush_log(storage)
    mark_published(store, table, listing.last_version)
    return table if found.name is None else None


def _load_new(
    store: Store,
    storage: Storage,
    listing: LogListing,
    found: RebuiltTable,
    meter: Meter,
) -> TableRow:
    """Load a whole log into a hidden table; delete the table if the log cannot be loaded."""
    state = stream_state(storage, listing.first_version, listing=listing)
    name, token = name_in_log(state.metadata, storage.location), str(uuid.uuid4())
    table = begin_loading(store, storage, state.metadata, name, listing.last_version, token=token)
    found.state = "loaded"
    try:
        _append(
            LogLoader(store, table, token=token, times="commit"),
            storage,
            listing,
            found,
            meter,
        )
    except Exception as error:
        if not can_resume(error):
            discard(store, table, token)
        raise
    return table


def _can_continue(
    store: Store, table: TableRow, storage: Storage, listing: LogListing, found: RebuiltTable
) -> bool:
    """Return whether the log has commits that the database lacks; if not, record the reason."""
    head = store.head(table.table_id)
    assert head is not None
    if head.version >= listing.last_version:
        found.state = "up to date"
        return False
    if not has_head_of(store, table, storage, listing):
        found.state = "failed"
        found.notes.append(
            f"version {head.version} is not the same commit in the database and in the log: "
            "nothing was loaded"
        )
        return False
    return True


def _append(
    loader: LogLoader,
    storage: Storage,
    listing: LogListing,
    found: RebuiltTable,
    meter: Meter,
) -> None:
    loaded = LoadCounts()
    is_new = loader.next_version is None
    version = loader.next_version or listing.first_version
    total = listing.last_version - version + 1

    def count() -> None:
        found.loaded = loaded.commits
        loaded.report(meter, "loading", total)

    if is_new and (version > 0 or version not in listing.commits):
        state = stream_state(storage, version, listing=listing)
        load_state(loader, storage, listing, state, loaded, count)
        found.notes.append(f"begins at version {version}: older commits were cleaned up")
        version += 1
    log = LocalLog(storage, listing)
    load_commits(loader, log, version, listing.last_version, loaded, on_batch=count)
    found.loaded = loaded.commits
    found.notes += loaded.notes()


def _last_commit_ms(store: Store, table: TableRow) -> int:
    head = store.head(table.table_id)
    return 0 if head is None else head.committed_at_ms


def _give_name(store: Store, table: TableRow, folder: str, found: RebuiltTable) -> None:
    """Make a loaded table visible; append a number to its name if the name is in use."""
    wanted = restored_name(store, table, folder)
    number, namespace, name = 1, *wanted
    while True:
        try:
            finish_loading(store, table, namespace, name)
            break
        except VersionTakenError as error:
            found.state = "failed"
            found.notes.append(error.message)
            return
        except TxnLogError as error:
            cause = error.__cause__
            if cause is None or store.classify(cause) is not Fault.DUPLICATE:
                raise
            if any(each.dropped_at_ms is None for each in tables_at(store.query, table.location)):
                found.state = "failed"
                found.notes.append("another table has this location")
                return
            number += 1
            name = f"{wanted[1]}-{number}"
    found.name = join_table_name(namespace, name)
    if number > 1:
        found.notes.append(f"{join_table_name(*wanted)} is the name of a newer table")
