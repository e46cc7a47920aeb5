"""Take a Delta table over into SQL: all of its log, version by version; its files stay in place.

A new table is loaded out of sight, compared with its log, and only then gets its name. One that
is there is brought up to its log, once all that it lacks has been looked at. Whatever is wrong
with a log, nobody sees anything of it.
"""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING

from deltasql import telemetry
from deltasql.exceptions import (
    LogParseError,
    TxnLogError,
    TxnLogMirrorError,
    TxnLogStorageError,
    VersionGapError,
    VersionTakenError,
)
from deltasql.exceptions.redaction import redact
from deltasql.migrate.authority.check_foreign import ForeignChecker
from deltasql.migrate.authority.other_authority import note_taken_over, refuse_other_authority
from deltasql.migrate.importing.checks import Beginning, check_same, empty_commits, last_version
from deltasql.migrate.importing.find_tables import no_table
from deltasql.migrate.importing.load_checkpoint import BATCH_FILES
from deltasql.migrate.importing.load_log import LogLoader
from deltasql.migrate.importing.load_table import (
    Loaded,
    begin_loading,
    can_resume,
    discard,
    finish_loading,
    follows,
    load_commits,
    load_state,
    take_over,
)
from deltasql.migrate.importing.run import ImportOptions, ImportRun
from deltasql.migrate.importing.target import (
    holder_of,
    name_for,
    name_taken,
    refuse_other_name,
    refuse_unpublished,
)
from deltasql.migrate.importing.verify import (
    check_data,
    describe_table,
    look_ahead,
    look_at_all,
    verify_loaded,
)
from deltasql.mirror.log.listing import find_log
from deltasql.mirror.publish import status
from deltasql.mirror.publish.targets import OWN, named
from deltasql.storage.location import is_same_location
from deltasql.store.dialect import Fault
from deltasql.store.locations import refuse_nested_location, tables_at
from deltasql.store.records import TableRow
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.config import StorageSettings
    from deltasql.migrate.importing.checks import Start
    from deltasql.migrate.importing.report import ImportReport
    from deltasql.migrate.importing.run import Tell
    from deltasql.mirror.log.listing import LogListing
    from deltasql.store.dialect import Session
    from deltasql.store.records import Head
    from deltasql.store.store import Store

_ATTEMPTS = 12
_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 20.0
_log = logging.getLogger(__name__)


def import_table(
    store: Store,
    source: str,
    options: ImportOptions,
    *,
    settings: StorageSettings,
    tell: Tell | None = None,
) -> ImportReport:
    """Bring a table of the catalog up to the log at a place, or make it from that log."""
    attempt = 0
    while True:
        attempt += 1
        run = ImportRun(store, source, options, settings, tell)
        try:
            with telemetry.span("import", source=run.storage.location):
                _import(run)
        except VersionTakenError:
            # Somebody else imports it too, or commits: what is there now is looked at again.
            if attempt >= _ATTEMPTS:
                raise
            # Longer and longer, and none like the other: one of them gets to its end.
            time.sleep(random.uniform(0.5, 1) * min(_LONGEST_PAUSE_S, _PAUSE_S * 2**attempt))
            continue
        except FileNotFoundError as error:
            raise TxnLogStorageError(
                redact(f"a file that the log needs is missing: {error.filename or error}"),
                location=run.storage.location,
                help="Restore it from a copy. Where it is part of a checkpoint, any writer of the "
                "table can write a new checkpoint.",
            ) from error
        _log_done(run.report)
        return run.report


def _import(run: ImportRun) -> None:
    # In this order a commit that SQL publishes meanwhile looks late, never foreign.
    listing = find_log(run.storage)
    if listing is None:
        raise no_table(run.storage)
    last = last_version(listing, run.options.up_to_version)
    if not run.options.dry_run:
        run.store.create()
    known = tables_at(run.store.query, run.storage.location)
    live = next((each for each in known if each.dropped_at_ms is None), None)
    loading = next((each for each in known if each.is_loading), None)
    refuse_other_authority(run, listing, known)
    if live is None:
        if not run.options.allow_nested_location:
            refuse_nested_location(run.store.query, run.storage.location)
        refuse_unpublished(run, known)
        _import_new(run, listing, last, loading)
    else:
        refuse_other_name(run, live)
        _update(run, listing, last, loading, live)
    note_taken_over(run, listing)
    run.report.warnings += empty_commits(listing, run.report.first_version, last)
    run.report.seconds = run.seconds
    run.tell("done")


def _update(
    run: ImportRun, listing: LogListing, last: int, loading: TableRow | None, live: TableRow
) -> None:
    """Bring a table up to its log; where they parted, the log is imported anew if wanted."""
    head = run.store.head(live.table_id)
    assert head is not None
    run.expect(join_table_name(live.namespace, live.name), max(0, last - head.version))
    try:
        _check_continues(run, listing, last, live, head)
    except (TxnLogMirrorError, VersionGapError):
        if not run.options.force:
            raise
        _import_new(run, listing, last, loading, instead_of=live)
        return
    low = run.store.query("version_bounds", table_id=live.table_id)[0][0]
    run.report.first_version, run.report.last_version = low, max(last, head.version)
    if last > head.version:
        _catch_up(run, listing, last, live, head)
        return
    run.report.state = "up to date"
    describe_table(run, live)
    if listing.last_version < head.version:
        first = listing.last_version + 1
        run.report.notes.append(f"versions {first} to {head.version} are not in the log yet")
    _open_mirror(run, listing, live, last, head.version)


def _check_continues(
    run: ImportRun, listing: LogListing, last: int, table: TableRow, head: Head
) -> None:
    since = run.options.since
    if since is not None and since > head.version + 1:
        raise VersionGapError(
            f"{table.full_name} ends at version {head.version}: an import since version {since} "
            "would leave a gap",
            table=table.full_name,
            first_missing=head.version + 1,
            last_missing=since - 1,
            help=f"Import since version {head.version + 1} or an earlier one.",
        )
    check_same(run.store, table, run.storage, listing, head, since)
    if last > head.version:
        listing.commits_from(head.version + 1, last)


def _catch_up(run: ImportRun, listing: LogListing, last: int, table: TableRow, head: Head) -> None:
    """Append what the log has more than SQL."""
    first = head.version + 1
    look_ahead(run, listing, first, last, _checker(run, table, head))
    if run.options.dry_run:
        run.report.state = "would continue"
        return
    run.report.state = "continued"
    status.targets_with_own(run.store, table)

    def publish(session: Session, version: int) -> None:
        key = {"table_id": table.table_id, "target": OWN}
        session.execute("set_published_version", **key, version=version)

    _append(run, LogLoader(run.store, table), listing, first, last, publish)
    _open_mirror(run, listing, table, last, last)
    describe_table(run, table)
    run.count(run.loaded)
    verify_loaded(run, table, listing, last, since=first)


def _checker(run: ImportRun, table: TableRow, head: Head) -> ForeignChecker | None:
    """Return what checks the commits of others, for a table that is SQL's to write."""
    checker = ForeignChecker(run.store, table, head)
    return None if table.is_following or not checker.is_of_sql else checker


def _open_mirror(
    run: ImportRun, listing: LogListing, table: TableRow, version: int, head: int
) -> None:
    """Say how far the log is SQL's, and open a mirror that a foreign commit had shut.

    It stays shut where the log has more than SQL: that would be written over.
    """
    if run.options.dry_run:
        return
    own = named(status.targets_with_own(run.store, table), OWN)
    if version > own.published_version:
        status.mark_published(run.store, table, version)
    if not own.is_quarantined:
        return
    if listing.last_version > head:
        note = f"the mirror stays shut: the log goes on to version {listing.last_version}"
        run.report.notes.append(note)
        return
    status.release(run.store, table)
    run.report.notes.append("the mirror is open again")


def _import_new(
    run: ImportRun,
    listing: LogListing,
    last: int,
    loading: TableRow | None,
    *,
    instead_of: TableRow | None = None,
) -> None:
    """Load a table from the beginning of its log, and give it its name."""
    since = run.options.since
    beginning = Beginning(
        run.storage,
        listing,
        since=since,
        last=last,
        log=run.log,
        # What others write is read as far as it can be.
        over_gaps=TableRow.FOLLOWING in run.options.properties,
    )
    half = loading
    while True:
        start = beginning.find()
        try:
            _take_over(run, start, beginning.listing, last, half, instead_of)
            break
        except (LogParseError, FileNotFoundError) as error:
            # Only when its files are read does it show that a checkpoint is damaged.
            if not beginning.passes_over(error):
                raise
            half = None
    run.report.warnings += beginning.warnings
    if start.note is not None:
        run.report.notes.append(start.note)


def _take_over(
    run: ImportRun,
    start: Start,
    listing: LogListing,
    last: int,
    loading: TableRow | None,
    instead_of: TableRow | None,
) -> None:
    report = run.report
    report.first_version, report.last_version = start.version, last
    namespace, name = name_for(run, start.metadata, instead_of)
    replaced = instead_of or holder_of(run, namespace, name)
    run.expect(join_table_name(namespace, name), last - start.version + 1)
    if run.options.dry_run:
        look_at_all(run, start, listing, last)
        report.state = "would replace" if replaced else "would import"
        return
    report.state = "replaced" if replaced else "imported"
    table = _resumed(run, start, listing, loading, last)
    if table is None:
        table = begin_loading(run.store, run.storage, start.metadata, name, last, token=run.token)
    try:
        _fill(run, table, start, listing, last)
        describe_table(run, table)
        check_data(run, table)
        verify_loaded(run, table, listing, last)
    except Exception as error:
        if not can_resume(error):
            discard(run.store, table, run.token)
            run.loaded = Loaded()
        raise
    run.count(run.loaded)
    _give_name(run, table, namespace, name, last, replaced)


def _resumed(
    run: ImportRun, start: Start, listing: LogListing, loading: TableRow | None, last: int
) -> TableRow | None:
    """Return what a run that was cut short has left, if it is of use."""
    if loading is None:
        return None
    take_over(run.store, loading, run.token)
    low, high = run.store.query("version_bounds", table_id=loading.table_id)[0]
    fits = low is None or (low == start.version and high <= last)
    if not fits or not follows(run.store, loading, run.storage, listing):
        discard(run.store, loading, run.token)
        return None
    if high is not None:
        run.report.notes.append(f"goes on after version {high}, where a run was cut short")
        status.mark_published(run.store, loading, last)
    return loading


def _fill(run: ImportRun, table: TableRow, start: Start, listing: LogListing, last: int) -> None:
    run.tell("loading")
    size = run.options.batch_size or BATCH_FILES
    loader = LogLoader(run.store, table, batch_files=size, token=run.token)
    version = loader.next_version
    if version is None:
        version = start.version
        if start.state is not None:
            load_state(
                loader,
                run.storage,
                listing,
                start.state,
                run.loaded,
                lambda: run.tell("loading"),
            )
            version += 1
    _append(run, loader, listing, version, last)
    status.mark_published(run.store, table, last)


def _append(
    run: ImportRun,
    loader: LogLoader,
    listing: LogListing,
    first: int,
    last: int,
    also: Callable[[Session, int], object] | None = None,
) -> None:
    load_commits(
        loader,
        run.storage,
        listing,
        first,
        last,
        run.loaded,
        batch_actions=run.options.batch_size,
        also=also,
        log=run.log(listing),
        tell=lambda: run.tell("loading"),
    )


def _give_name(
    run: ImportRun,
    table: TableRow,
    namespace: str,
    name: str,
    last: int,
    replaced: TableRow | None,
) -> None:
    try:
        finish_loading(
            run.store,
            table,
            namespace,
            name,
            version=last,
            instead_of=replaced,
            properties=run.options.properties,
        )
    except TxnLogError as error:
        cause = error.__cause__
        if cause is None or run.store.classify(cause) is not Fault.DUPLICATE:
            raise
        discard(run.store, table, run.token)
        holder = run.store.find_table(namespace, name, fresh=True)
        if holder is not None and is_same_location(holder.location, run.storage.location):
            # Another process was faster with the same table: look at that one.
            raise VersionTakenError(table=join_table_name(namespace, name)) from error
        for other in tables_at(run.store.query, run.storage.location):
            if other.dropped_at_ms is None:
                raise VersionTakenError(table=other.full_name) from error
        raise name_taken(join_table_name(namespace, name)) from error


def _log_done(report: ImportReport) -> None:
    telemetry.log(
        _log,
        logging.INFO,
        "import",
        source=report.source,
        table=report.table,
        state=report.state,
        version=report.last_version,
        commits=report.commits,
        files=report.files,
    )
