"""Check a log before its table becomes visible or is updated.

The checks cover the commits, whether they continue the versions in the database, and the data
files. After loading, the table in the database is compared with the log.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql._core import FileList, LiveFiles
from deltasql.engine.files.file_sizes import FileSizes
from deltasql.exceptions import (
    ImportMismatchError,
    MirrorDivergedError,
    MissingDataFilesError,
    TxnLogTableNotFoundError,
    VersionTakenError,
)
from deltasql.migrate.authority.foreign_commits import first_foreign
from deltasql.migrate.importing.load_log import check_metadata
from deltasql.migrate.importing.load_table import LoadCounts
from deltasql.mirror.log.listing import LOG_FOLDER, list_log
from deltasql.mirror.log.read import read_commits
from deltasql.mirror.log.same_commit import is_same_commit
from deltasql.mirror.publish.targets import OWN, named, targets_of
from deltasql.model.counts import many
from deltasql.model.protocol import check_readable
from deltasql.verify.large_tables import verify_by_size
from deltasql.verify.report import split_by_cause
from deltasql.verify.sql_state import SqlState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from deltasql.migrate.authority.validate_foreign import ForeignValidator
    from deltasql.migrate.importing.run import ImportRun
    from deltasql.migrate.importing.start import Start
    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.log.read import LogCommit
    from deltasql.storage import Storage
    from deltasql.store.records import Head, TableRow
    from deltasql.store.store import Store
    from deltasql.verify.report import Difference

_MAX_LISTED = 10_000  # the most files listed to describe a folder without a log
_PAGE = 50_000
_MAX_REPORTED = 100
# Names for the source of a difference, if it is a log file that repeats the content of commits.
_FILES_OF = {"checkpoint": "checkpoint", "crc": "checksum"}


def no_table(storage: Storage) -> TxnLogTableNotFoundError:
    """Return the error for a location without a Delta table; it describes what is there."""
    location = storage.location
    names = [each.name for each in islice(storage.list(), _MAX_LISTED)]
    below = next(
        (name.partition(f"/{LOG_FOLDER}")[0] for name in names if f"/{LOG_FOLDER}" in name), None
    )
    reason = "its _delta_log contains no commit"
    advice = "Name the folder that contains _delta_log."
    if not names:
        reason, advice = "it does not exist or is empty", "Check the path and the storage options."
    elif below is not None:
        reason = f"it contains tables, such as {below}"
        advice = "Name one of them, or import all with --recursive (import_tables)."
    return TxnLogTableNotFoundError(
        f"there is no Delta table at {location}: {reason}", table=location, help=advice
    )


def empty_commits(listing: LogListing, first: int | None, last: int) -> list[str]:
    """Return a warning for every empty commit file: it is valid, but a crash usually left it."""
    found = [
        v for v, file in listing.commits.items() if not file.size and (first or 0) <= v <= last
    ]
    return [
        f"version {version} is an empty file: its writer may have crashed while writing it"
        for version in sorted(found)
    ]


# The order of commits


def check_not_diverged(
    store: Store,
    table: TableRow,
    storage: Storage,
    listing: LogListing,
    head: Head,
    since: int | None,
) -> None:
    """Raise if the log and the database have different commits, or each has commits of its own."""
    own = named(targets_of(store, table), OWN)
    last = listing.last_version
    foreign = first_foreign(store, table, storage, listing)
    if foreign is not None and foreign <= head.version:
        raise _diverged(table, listing, foreign, head.version)
    if last < own.published_version:
        if list_log(storage).last_version >= own.published_version:
            raise VersionTakenError(table=table.full_name)  # published after the listing
        raise MirrorDivergedError(
            f"the log at {listing.location} ends at version {last}, but {table.full_name} was "
            f"published up to version {own.published_version}",
            table=table.full_name,
            version=last,
            location=listing.location,
            help="Publish the missing versions with `deltasql mirror repair`, or import the log "
            "as it is now with force=True (--force).",
        )
    common = min(last, head.version)
    low = store.query("version_bounds", table_id=table.table_id)[0][0]
    begin = common if since is None else max(since, low)
    for version in range(begin, common + 1):
        if version in listing.commits and not is_same_commit(
            store, table, storage, listing, version
        ):
            raise _diverged(table, listing, version, head.version)


def _diverged(table: TableRow, listing: LogListing, version: int, head: int) -> MirrorDivergedError:
    return MirrorDivergedError(
        f"{table.full_name} and its log diverged before version {version}: the database is at "
        f"version {head}, the log at version {listing.last_version}",
        table=table.full_name,
        version=version,
        location=listing.location,
        help="Nothing was imported. `deltasql mirror adopt` adds the log's commits after those "
        "of the database. `deltasql mirror reject` moves them out of the log. force=True (--force) "
        "drops the table from the catalog and imports the whole log.",
    )


# The content of commits


def check_new_commits(
    run: ImportRun,
    listing: LogListing,
    first: int,
    last: int,
    validator: ForeignValidator | None = None,
) -> None:
    """Read all new commits before appending any, because users see an appended commit at once."""
    seen, live = LoadCounts(), LiveFiles()
    for commit in _read(run, listing, first, last, seen):
        if validator is not None:
            validator.validate(commit)
        live.apply(commit.version, commit.actions)
    if run.options.dry_run:
        run.count(seen)
    if run.options.verify:
        _check_files(run, _added_pages(run, listing, first, last, live))


def check_log(run: ImportRun, start: Start, listing: LogListing, last: int) -> None:
    """For a dry run, read the whole log of a new table and report its latest state."""
    seen, live = LoadCounts(), LiveFiles()
    first = start.version
    protocol = None
    if start.state is not None:
        protocol, seen.commits = start.state.protocol, 1
        for piece in start.state.files:
            live.add(first, FileList.from_arrow(piece))
            seen.files += piece.num_rows
            run.report_progress("reading", seen)
    for commit in _read(run, listing, first if start.state is None else first + 1, last, seen):
        live.apply(commit.version, commit.actions)
        protocol = commit.actions.protocol or protocol
    assert protocol is not None  # the first commit of a log has one
    run.describe(len(live), live.size, protocol)
    run.count(seen)
    if run.options.verify:
        _check_files(run, _all_pages(run, start, listing, last, live))


def _read(
    run: ImportRun, listing: LogListing, first: int, last: int, seen: LoadCounts
) -> Iterator[LogCommit]:
    for commit in read_commits(run.storage, listing, first, last):
        if commit.actions.protocol is not None:
            check_readable(commit.actions.protocol)
        if commit.actions.metadata is not None:
            check_metadata(commit.actions.metadata, commit.file.name)
        seen.add(commit)
        run.report_progress("reading", seen)
        yield commit


# The data files


def check_data(run: ImportRun, table: TableRow) -> None:
    """Raise if live data files of a loaded table are missing."""
    if run.options.verify:
        _check_files(run, _live_pages(run.store, table))


def _check_files(run: ImportRun, pages: Iterable[pa.Table]) -> None:
    """Report missing data files; raise unless the import is forced or a dry run."""
    run.meter.begin("checking files", "files", 0)
    location = run.storage.location
    sizes = FileSizes(location, run.settings)
    count, first = 0, list[str]()
    for page in pages:
        missing = sizes.missing(page)
        run.meter.step(page.num_rows)
        count += len(missing)
        first += missing[: _MAX_REPORTED - len(first)]
    if not count:
        return
    if not run.options.force and not run.options.dry_run:
        raise MissingDataFilesError(
            f"{count} data files of the table at {location} are missing",
            location=location,
            count=count,
            files=tuple(first),
        )
    run.report = replace(
        run.report, accepts_missing=run.options.force, missing=count, missing_files=first
    )
    run.report.warnings.append(f"{count} data files are missing")


def _live_pages(store: Store, table: TableRow) -> Iterator[pa.Table]:
    """Yield the live files of a loaded table, page by page."""
    after = -1
    while True:
        page = store.arrow("live_files_after", table_id=table.table_id, after=after, limit=_PAGE)
        if page.num_rows:
            yield page
            after = page["file_id"][-1].as_py()
        if page.num_rows < _PAGE:
            return


def _all_pages(
    run: ImportRun, start: Start, listing: LogListing, last: int, live: LiveFiles
) -> Iterator[pa.Table]:
    """Read a log again and yield the files that are live at its last version, page by page."""
    first = start.version
    if start.state is not None:
        for piece in run.log(listing).state(first).files:
            yield piece.filter(pa.array(live.mask(first, FileList.from_arrow(piece)), pa.bool_()))
        first += 1
    yield from _added_pages(run, listing, first, last, live)


def _added_pages(
    run: ImportRun, listing: LogListing, first: int, last: int, live: LiveFiles
) -> Iterator[pa.Table]:
    """Read commits again and yield their files that are still live, page by page."""
    held: list[tuple[str, str | None]] = []
    for commit in read_commits(run.storage, listing, first, last):
        held += live.of_commit(commit.version, commit.actions)
        if len(held) >= _PAGE:
            yield _page(held)
            held = []
    if held:
        yield _page(held)


def _page(files: list[tuple[str, str | None]]) -> pa.Table:
    return pa.table(
        {
            "path": pa.array([path for path, _ in files], pa.string()),
            "deletion_vector": pa.array([vector for _, vector in files], pa.string()),
        }
    )


# The loaded table


def describe_table(run: ImportRun, table: TableRow) -> None:
    """Put the latest state of a table in the database into the report."""
    head = run.store.head(table.table_id)
    assert head is not None
    state = SqlState(run.store, table, head.version)
    totals = state.totals
    run.describe(totals.num_files, totals.size_bytes, state.protocol)


def verify_loaded(
    run: ImportRun, table: TableRow, listing: LogListing, last: int, *, since: int | None = None
) -> None:
    """Compare a loaded table with its log, which both deltasql and deltalake read.

    With `since`, only the commits from that version on and the latest state are compared.
    """
    if not run.options.verify:
        return
    run.meter.begin("verifying", "commits", 0)
    log = listing.up_to(last)
    found = verify_by_size(
        run.store, table, run.storage, log, run.settings, meter=run.meter, since=since
    )
    run.report = report = replace(run.report, verification=found)
    in_sql, in_log = split_by_cause(found.differences)
    report.warnings.extend(_warnings(in_log))
    if in_sql:
        raise ImportMismatchError(
            f"the imported {report.table} differs from its log: {many(len(in_sql), 'difference')}",
            table=report.table,
            location=run.storage.location,
            differences=tuple(str(each) for each in in_sql),
        )


def _warnings(differences: Sequence[Difference]) -> list[str]:
    """Return one warning for each wrong file of the log."""
    found: dict[str, list[Difference]] = {}
    for each in differences:
        found.setdefault(f"{_FILES_OF.get(each.source, each.source)} {each.version}", []).append(
            each
        )
    lines = []
    for file, group in found.items():
        unreadable = next((each.log for each in group if each.kind == "unreadable"), None)
        if group[0].source == "deltalake":
            reason = unreadable or f"{len(group)} differences, because a checkpoint is wrong"
            lines.append(f"stock deltalake misreads version {group[0].version}: {reason}")
        elif unreadable is not None:
            lines.append(f"{file} cannot be used: {unreadable}")
        else:
            lines.append(
                f"{file} contradicts the commits and was not used: {len(group)} differences, "
                f"the first is {group[0]}"
            )
    return lines
