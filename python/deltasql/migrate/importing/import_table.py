"""Import the log of a Delta table into the database, version by version.

The data files stay where they are. A new table stays hidden until it is loaded and compared with
its log. An existing table is updated from its log after all new commits were checked. If a log is
damaged, no part of it becomes visible.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import replace
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
from deltasql.migrate.authority.log_owner import check_owner, record_taken_over
from deltasql.migrate.authority.validate_foreign import ForeignValidator
from deltasql.migrate.importing.checks import (
    check_data,
    check_log,
    check_new_commits,
    check_not_diverged,
    describe_table,
    empty_commits,
    no_table,
    verify_loaded,
)
from deltasql.migrate.importing.load_checkpoint import BATCH_FILES
from deltasql.migrate.importing.load_log import LogLoader
from deltasql.migrate.importing.load_table import (
    LoadCounts,
    begin_loading,
    can_resume,
    claim_loading,
    discard,
    finish_loading,
    load_commits,
    load_state,
    set_published_version,
)
from deltasql.migrate.importing.names import (
    check_all_published,
    check_same_name,
    name_for,
    name_taken,
    table_to_replace,
)
from deltasql.migrate.importing.run import ImportOptions, ImportRun
from deltasql.migrate.importing.start import StartFinder, last_version
from deltasql.mirror.log.listing import find_log
from deltasql.mirror.log.same_commit import has_head_of
from deltasql.mirror.publish import status
from deltasql.mirror.publish.targets import OWN, named
from deltasql.storage.location import is_same_location
from deltasql.store.dialect import Fault
from deltasql.store.locations import reject_nested_location, reject_replica, tables_at
from deltasql.store.records import TableRow
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from deltasql.config import StorageSettings
    from deltasql.migrate.importing.load_log import BeforeCommit
    from deltasql.migrate.importing.report import ImportReport, ImportState
    from deltasql.migrate.importing.start import Start
    from deltasql.mirror.log.listing import LogListing
    from deltasql.model.progress import OnProgress
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
    on_progress: OnProgress | None = None,
) -> ImportReport:
    """Create a table from the log at a location, or update the table with this location."""
    attempt = 0
    while True:
        attempt += 1
        run = ImportRun(store, source, options, settings, on_progress)
        try:
            with telemetry.span("import", source=run.storage.location):
                _import(run)
        except VersionTakenError:
            # Another process imports the table or commits to it, so start again from the new state.
            if attempt >= _ATTEMPTS:
                raise
            # Exponential backoff with jitter, so that one of several imports succeeds.
            time.sleep(random.uniform(0.5, 1) * min(_LONGEST_PAUSE_S, _PAUSE_S * 2**attempt))
            continue
        except FileNotFoundError as error:
            raise TxnLogStorageError(
                redact(f"a file of the log is missing: {error.filename or error}"),
                location=run.storage.location,
                help="Restore it from a copy. If it is part of a checkpoint, any writer of the "
                "table can write a new checkpoint.",
            ) from error
        _log_done(run.report)
        return run.report


def _import(run: ImportRun) -> None:
    # List the log before reading the database. Otherwise a commit that is published in between
    # would look like a foreign commit.
    listing = find_log(run.storage)
    if listing is None:
        raise no_table(run.storage)
    last = last_version(listing, run.options.up_to_version)
    if not run.options.dry_run:
        run.store.create()
    known = tables_at(run.store.query, run.storage.location)
    live = next((each for each in known if each.dropped_at_ms is None), None)
    loading = next((each for each in known if each.is_loading), None)
    check_owner(run, listing, known)
    if live is None:
        if not run.options.allow_nested_location:
            reject_nested_location(run.store.query, run.storage.location)
        reject_replica(
            run.store.query,
            run.storage.location,
            allow_nested=run.options.allow_nested_location,
        )
        check_all_published(run, known)
        _import_new(run, listing, last, loading)
    else:
        check_same_name(run, live)
        _update(run, listing, last, loading, live)
    record_taken_over(run, listing)
    run.report.warnings.extend(empty_commits(listing, run.report.first_version, last))
    run.report = replace(run.report, seconds=run.seconds)
    run.report_progress("done")


def _update(
    run: ImportRun, listing: LogListing, last: int, loading: TableRow | None, live: TableRow
) -> None:
    """Append the new commits of a log; with `force`, replace a table that diverged from it."""
    head = run.store.head(live.table_id)
    assert head is not None
    run.expect(join_table_name(live.namespace, live.name), max(0, last - head.version))
    try:
        _check_continues(run, listing, last, live, head)
    except (TxnLogMirrorError, VersionGapError):
        if not run.options.force:
            raise
        _import_new(run, listing, last, loading, replaces=live)
        return
    low = run.store.query("version_bounds", table_id=live.table_id)[0][0]
    run.report = replace(run.report, first_version=low, last_version=max(last, head.version))
    if last > head.version:
        _catch_up(run, listing, last, live, head)
        return
    run.report = replace(run.report, state="up to date")
    describe_table(run, live)
    if listing.last_version < head.version:
        first = listing.last_version + 1
        run.report.notes.append(f"versions {first} to {head.version} are not in the log yet")
    _resume_publishing(run, listing, live, last, head.version)


def _check_continues(
    run: ImportRun, listing: LogListing, last: int, table: TableRow, head: Head
) -> None:
    since = run.options.since
    if since is not None and since > head.version + 1:
        raise VersionGapError(
            f"{table.full_name} ends at version {head.version}: an import from version {since} "
            "would leave a gap",
            table=table.full_name,
            first_missing=head.version + 1,
            last_missing=since - 1,
            help=f"Import from version {head.version + 1} or an earlier one.",
        )
    check_not_diverged(run.store, table, run.storage, listing, head, since)
    if last > head.version:
        listing.commits_from(head.version + 1, last)


def _catch_up(run: ImportRun, listing: LogListing, last: int, table: TableRow, head: Head) -> None:
    """Append the commits of the log that the database lacks."""
    first = head.version + 1
    check_new_commits(run, listing, first, last, _validator(run, table, head))
    if run.options.dry_run:
        run.report = replace(run.report, state="would continue")
        return
    run.report = replace(run.report, state="continued")
    status.targets_with_own(run.store, table)

    def record_published(session: Session, version: int) -> None:
        set_published_version(session, table.table_id, version)

    _append(run, LogLoader(run.store, table), listing, first, last, record_published)
    _resume_publishing(run, listing, table, last, last)
    describe_table(run, table)
    run.count(run.loaded)
    verify_loaded(run, table, listing, last, since=first)


def _validator(run: ImportRun, table: TableRow, head: Head) -> ForeignValidator | None:
    """Return the validator for foreign commits; None if the database does not manage the table."""
    validator = ForeignValidator(run.store, table, head)
    return None if table.is_following or not validator.is_managed_by_sql else validator


def _resume_publishing(
    run: ImportRun, listing: LogListing, table: TableRow, version: int, head: int
) -> None:
    """Record the published version, and end the quarantine that a foreign commit caused.

    If the log has more commits than the database, the quarantine stays, because publishing would
    use the same versions again.
    """
    if run.options.dry_run:
        return
    own = named(status.targets_with_own(run.store, table), OWN)
    if version > own.published_version:
        status.mark_published(run.store, table, version)
    if not own.is_quarantined:
        return
    if listing.last_version > head:
        run.report.notes.append(
            f"publishing stays quarantined: the log continues to version {listing.last_version}"
        )
        return
    status.release(run.store, table)
    run.report.notes.append("publishing has resumed")


def _import_new(
    run: ImportRun,
    listing: LogListing,
    last: int,
    loading: TableRow | None,
    *,
    replaces: TableRow | None = None,
) -> None:
    """Load a new table from the first version of its log that can be loaded."""
    since = run.options.since
    finder = StartFinder(
        run.storage,
        listing,
        since=since,
        last=last,
        log=run.log,
        # If a followed log has a gap, leave out the commits before the gap.
        skip_gaps=TableRow.FOLLOWING in run.options.properties,
    )
    while True:
        start = finder.find()
        try:
            _load_new(run, start, finder.listing, last, loading, replaces)
            break
        except (LogParseError, FileNotFoundError) as error:
            # Damage of a checkpoint may be noticed only when its files are read.
            if not finder.skip_checkpoint(error):
                raise
            loading = None
    run.report.warnings.extend(finder.warnings)
    if start.note is not None:
        run.report.notes.append(start.note)


def _load_new(
    run: ImportRun,
    start: Start,
    listing: LogListing,
    last: int,
    loading: TableRow | None,
    replaces: TableRow | None,
) -> None:
    run.report = replace(run.report, first_version=start.version, last_version=last)
    namespace, name = name_for(run, start.metadata, replaces)
    replaced = replaces or table_to_replace(run, namespace, name)
    run.expect(join_table_name(namespace, name), last - start.version + 1)
    if run.options.dry_run:
        check_log(run, start, listing, last)
        state: ImportState = "would replace" if replaced else "would import"
        run.report = replace(run.report, state=state)
        return
    run.report = replace(run.report, state="replaced" if replaced else "imported")
    table = _unfinished(run, start, listing, loading, last)
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
            run.loaded = LoadCounts()
        raise
    run.count(run.loaded)
    _give_name(run, table, namespace, name, last, replaced)


def _unfinished(
    run: ImportRun, start: Start, listing: LogListing, loading: TableRow | None, last: int
) -> TableRow | None:
    """Return the hidden table of an interrupted run; None if this run cannot continue it."""
    if loading is None:
        return None
    claim_loading(run.store, loading, run.token)
    low, high = run.store.query("version_bounds", table_id=loading.table_id)[0]
    fits = low is None or (low == start.version and high <= last)
    if not fits or not has_head_of(run.store, loading, run.storage, listing):
        discard(run.store, loading, run.token)
        return None
    if high is not None:
        run.report.notes.append(f"continues after version {high}, where a run was interrupted")
        status.mark_published(run.store, loading, last)
    return loading


def _fill(run: ImportRun, table: TableRow, start: Start, listing: LogListing, last: int) -> None:
    run.report_progress("loading")
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
                lambda: run.report_progress("loading"),
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
    before_commit: BeforeCommit | None = None,
) -> None:
    load_commits(
        loader,
        run.log(listing),
        first,
        last,
        run.loaded,
        batch_actions=run.options.batch_size,
        before_commit=before_commit,
        on_batch=lambda: run.report_progress("loading"),
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
            replaces=replaced,
            properties=run.options.properties,
        )
    except TxnLogError as error:
        cause = error.__cause__
        if cause is None or run.store.classify(cause) is not Fault.DUPLICATE:
            raise
        discard(run.store, table, run.token)
        existing = run.store.find_table(namespace, name, fresh=True)
        if existing is not None and is_same_location(existing.location, run.storage.location):
            # Another process imported the same table first, so update that table.
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
