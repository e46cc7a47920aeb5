"""What is read only to find out what is wrong: before a log is loaded, and after it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.exceptions import ImportMismatchError, TxnLogProtocolError
from deltasql.migrate.import_files import check_files, live_pages
from deltasql.migrate.load_table import Loaded, pieces
from deltasql.mirror.fingerprint import fingerprint, sql_pages
from deltasql.mirror.read_log import read_commits, read_state, stream_state
from deltasql.mirror.sql_state import SqlState
from deltasql.mirror.targets import targets_of
from deltasql.mirror.verify import VerifyReport, missing_versions, verify_table
from deltasql.mirror.verify_checks import check_commits, compare_facts
from deltasql.model.protocol import check_readable
from deltasql.store.records import dump

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.config import StorageSettings
    from deltasql.migrate.check_foreign import ForeignChecker
    from deltasql.migrate.import_checks import Start
    from deltasql.migrate.import_run import ImportRun
    from deltasql.mirror.compare import Difference
    from deltasql.mirror.log_listing import LogListing
    from deltasql.mirror.read_log import LogCommit
    from deltasql.model.progress import Meter
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

# More files than these are not held twice to be compared; with deltalake each value costs time.
_LARGE = 200_000
_COMPARED_WITH_STOCK = 20_000
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
    seen = Loaded()
    added: dict[str, str | None] = {}
    for commit in _read(run, listing, first, last, seen):
        if checker is not None:
            checker.check(commit)
        for gone in commit.actions.removes:
            added.pop(gone.path, None)
        added.update((each.path, _vector_text(each)) for each in commit.actions.adds)
    if run.options.dry_run:
        run.count(seen)
    if run.options.verify:
        files = pa.table(
            {
                "path": pa.array(list(added), pa.string()),
                "deletion_vector": pa.array(list(added.values()), pa.string()),
            }
        )
        check_files(run, [files], len(added))


def look_at_all(run: ImportRun, start: Start, listing: LogListing, last: int) -> None:
    """Read the whole log of a table that is new, and the state it ends with."""
    seen = Loaded()
    first = start.version
    if start.state is not None:
        first, seen.commits = first + 1, 1
        seen.files = sum(piece.num_rows for piece in pieces(start.state.files))
    for _ in _read(run, listing, first, last, seen):
        pass
    state = read_state(run.storage, last, listing=listing, use_checkpoint=False)
    size = pc.sum(state.files["size"]).as_py() or 0
    run.describe(state.files.num_rows, size, state.protocol, state.metadata)
    run.count(seen)
    if run.options.verify:
        check_files(run, [state.files], state.files.num_rows)


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


def verify_loaded(run: ImportRun, table: TableRow, listing: LogListing, last: int) -> None:
    """Compare what was loaded with the log, by our own code and by stock deltalake."""
    if not run.options.verify:
        return
    run.tell("verifying")
    report, log = run.report, listing.up_to(last)
    found = verify_by_size(run.store, table, run.storage, log, run.settings)
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
) -> VerifyReport:
    """Compare a table with its log: by what all its files come to, where it has very many."""
    high = store.query("version_bounds", table_id=table.table_id)[0][1]
    last = min(high, log.last_version)
    files = SqlState(store, table, last).totals.num_files
    found = None
    if files > _LARGE:
        found = _verify_streamed(store, table, storage, log.up_to(last), meter)
    if found is not None:
        return found
    found = verify_table(
        store,
        table,
        storage,
        log=log,
        storage_options=settings.plain_options(storage.location),
        with_deltalake=files <= _COMPARED_WITH_STOCK,
        meter=meter,
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
    store: Store, table: TableRow, storage: Storage, log: LogListing, meter: Meter | None
) -> VerifyReport | None:
    """Compare a table that is too large to be held twice; None when it has to be looked at whole.

    Every commit is compared, and the files at the last version by what all of them come to.
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
        store, table, storage, log, range(low + 1 if low else 0, last + 1), report.found, meter
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
        seen.take(commit)
        run.tell("reading", seen)
        yield commit


def _vector_text(file: Any) -> str | None:
    vector = file.deletion_vector
    return None if vector is None else dump(vector.body())


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
