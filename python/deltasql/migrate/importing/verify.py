"""What is read only to find out what is wrong: before a log is loaded, and after it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql._core import FileList, LiveFiles
from deltasql.exceptions import ImportMismatchError, TxnLogProtocolError
from deltasql.migrate.importing.files import check_files, live_pages
from deltasql.migrate.importing.fingerprint import fingerprint, sql_pages
from deltasql.migrate.importing.load_log import check_metadata
from deltasql.migrate.importing.load_table import Loaded, pieces
from deltasql.mirror.log.read import read_commits, stream_state
from deltasql.mirror.publish.targets import targets_of
from deltasql.mirror.verify.check_log import check_commits, compare_facts
from deltasql.mirror.verify.sql_state import SqlState
from deltasql.mirror.verify.verify import VerifyReport, missing_versions, verify_table
from deltasql.model.protocol import check_readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.config import StorageSettings
    from deltasql.migrate.authority.check_foreign import ForeignChecker
    from deltasql.migrate.importing.checks import Start
    from deltasql.migrate.importing.run import ImportRun
    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.log.read import LogCommit
    from deltasql.mirror.verify.differences import Difference
    from deltasql.model.progress import Meter
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

# More files than these are not held twice to be compared; with deltalake each value costs time.
_LARGE = 200_000
_COMPARED_WITH_STOCK = 20_000
_PAGE = 50_000
# What repeats in a log what the commits say.
_BESIDE = {"checkpoint": "checkpoint", "crc": "checksum"}


def look_ahead(
    run: ImportRun,
    listing: LogListing,
    first: int,
    last: int,
    checker: ForeignChecker | None = None,
) -> None:
    """Read the commits that a table lacks: it is seen by all, so nothing of them may be wrong."""
    seen, live = Loaded(), LiveFiles()
    for commit in _read(run, listing, first, last, seen):
        if checker is not None:
            checker.check(commit)
        live.apply(commit.version, commit.actions)
    if run.options.dry_run:
        run.count(seen)
    if run.options.verify:
        check_files(run, _added_pages(run, listing, first, last, live), len(live))


def look_at_all(run: ImportRun, start: Start, listing: LogListing, last: int) -> None:
    """Read the whole log of a table that is new, and the state it ends with."""
    seen, live = Loaded(), LiveFiles()
    first, metadata = start.version, start.metadata
    protocol = None
    if start.state is not None:
        protocol, seen.commits = start.state.protocol, 1
        for piece in pieces(start.state.files):
            live.add(first, FileList.from_arrow(piece))
            seen.files += piece.num_rows
            run.tell("reading", seen)
    for commit in _read(run, listing, first if start.state is None else first + 1, last, seen):
        live.apply(commit.version, commit.actions)
        protocol = commit.actions.protocol or protocol
        metadata = commit.actions.metadata or metadata
    assert protocol is not None  # the first commit of a log has one
    run.describe(len(live), live.size, protocol, metadata)
    run.count(seen)
    if run.options.verify:
        check_files(run, _all_pages(run, start, listing, last, live), len(live))


def _all_pages(
    run: ImportRun, start: Start, listing: LogListing, last: int, live: LiveFiles
) -> Iterator[pa.Table]:
    """Read a log once more for the files that live in the end, some at a time."""
    first = start.version
    if start.state is not None:
        for piece in pieces(run.log(listing).state(first).files):
            yield piece.filter(pa.array(live.mask(first, FileList.from_arrow(piece)), pa.bool_()))
        first += 1
    yield from _added_pages(run, listing, first, last, live)


def _added_pages(
    run: ImportRun, listing: LogListing, first: int, last: int, live: LiveFiles
) -> Iterator[pa.Table]:
    """Read commits once more for the files that live in the end: all of them are never held."""
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


def describe_table(run: ImportRun, table: TableRow) -> None:
    """Put into the report what SQL knows of a table at its head."""
    head = run.store.head(table.table_id)
    assert head is not None
    state = SqlState(run.store, table, head.version)
    totals = state.totals
    run.describe(totals.num_files, totals.size_bytes, state.protocol, state.metadata)


def check_data(run: ImportRun, table: TableRow) -> None:
    """Refuse a loaded table whose live files are not there."""
    if run.options.verify:
        check_files(run, live_pages(run.store, table), run.report.live_files)


def verify_loaded(
    run: ImportRun, table: TableRow, listing: LogListing, last: int, *, since: int | None = None
) -> None:
    """Compare what was loaded with the log, by our own code and by stock deltalake.

    With `since`, what is older was compared before: the commits from there on are, and the head.
    """
    if not run.options.verify:
        return
    run.tell("verifying")
    report, log = run.report, listing.up_to(last)
    found = verify_by_size(run.store, table, run.storage, log, run.settings, since=since)
    report.verification = found
    ours, theirs = whose(found.differences)
    report.warnings += _told(theirs)
    if ours:
        raise ImportMismatchError(
            f"{report.table} is not what its log says: {len(ours)} differences",
            table=report.table,
            location=run.storage.location,
            differences=tuple(str(each) for each in ours),
        )


def verify_by_size(
    store: Store,
    table: TableRow,
    storage: Storage,
    log: LogListing,
    settings: StorageSettings,
    *,
    meter: Meter | None = None,
    since: int | None = None,
) -> VerifyReport:
    """Compare a table with its log: by what all its files come to, where it has very many."""
    high = store.query("version_bounds", table_id=table.table_id)[0][1]
    last = min(high, log.last_version)
    files = SqlState(store, table, last).totals.num_files
    if files > _LARGE:
        streamed = _verify_streamed(store, table, storage, log.up_to(last), since or 0, meter)
        if streamed is not None:
            return streamed
    found = verify_table(
        store,
        table,
        storage,
        log=log,
        storage_options=settings.plain_options(storage.location),
        with_deltalake=files <= _COMPARED_WITH_STOCK,
        meter=meter,
        since=since,
    )
    if files > _COMPARED_WITH_STOCK:
        found.notes.append("too many files to be compared with deltalake")
    return found


def whose(differences: Sequence[Difference]) -> tuple[list[Difference], list[Difference]]:
    """Part what is wrong with SQL from what is wrong with the source.

    The commits decide. A checkpoint or a checksum that says otherwise contradicts them, and so
    does deltalake, which starts from that checkpoint, or which cannot read the table at all.
    """
    contradicts = any(each.source in _BESIDE for each in differences)
    ours: list[Difference] = []
    theirs: list[Difference] = []
    for each in differences:
        by_deltalake = each.source == "deltalake" and (contradicts or each.kind == "unreadable")
        (theirs if by_deltalake or each.source in _BESIDE else ours).append(each)
    return ours, theirs


def _verify_streamed(
    store: Store,
    table: TableRow,
    storage: Storage,
    log: LogListing,
    since: int,
    meter: Meter | None,
) -> VerifyReport | None:
    """Compare a table that is too large to be held twice; None when it has to be looked at whole.

    Every commit from `since` on is compared, and the files at the last version by what all of
    them come to.
    """
    last, low = log.last_version, store.query("version_bounds", table_id=table.table_id)[0][0]
    if missing_versions(log, low, max(last, _published(store, table))):
        return None
    sql = SqlState(store, table, last)
    try:
        state = stream_state(storage, last, listing=log)
        if fingerprint(state.files) != fingerprint(sql_pages(store, sql.snapshot)):
            return None
    except (TxnLogProtocolError, FileNotFoundError):
        return None  # by a checkpoint that SQL was not loaded from
    report = VerifyReport(table.full_name, storage.location, last, last, low, [last])
    report.commits, report.foreign_bytes = check_commits(
        store,
        table,
        storage,
        log,
        range(max(low + 1 if low else 0, since), last + 1),
        report.found,
        meter,
    )
    compare_facts(sql, state, report.found)
    report.notes.append(
        "too many files to be compared with deltalake, and checkpoint by checkpoint"
    )
    return report


def _published(store: Store, table: TableRow) -> int:
    return max((t.published_version for t in targets_of(store, table) if t.is_own), default=-1)


def _read(
    run: ImportRun, listing: LogListing, first: int, last: int, seen: Loaded
) -> Iterator[LogCommit]:
    for commit in read_commits(run.storage, listing, first, last):
        if commit.actions.protocol is not None:
            check_readable(commit.actions.protocol)
        if commit.actions.metadata is not None:
            check_metadata(commit.actions.metadata, commit.file.name)
        seen.take(commit)
        run.tell("reading", seen)
        yield commit


def _told(differences: Sequence[Difference]) -> list[str]:
    """Say what is wrong with the source, once for each file of the log."""
    found: dict[str, list[Difference]] = {}
    for each in differences:
        found.setdefault(f"{_BESIDE.get(each.source, each.source)} {each.version}", []).append(each)
    lines = []
    for what, those in found.items():
        unreadable = next((each.log for each in those if each.kind == "unreadable"), None)
        if those[0].source == "deltalake":
            why = unreadable or f"{len(those)} differences, by a checkpoint that is wrong"
            lines.append(f"stock deltalake does not read version {those[0].version}: {why}")
        elif unreadable is not None:
            lines.append(f"{what} cannot be used: {unreadable}")
        else:
            lines.append(
                f"{what} contradicts the commits and was not used: {len(those)} differences, "
                f"the first is {those[0]}"
            )
    return lines
