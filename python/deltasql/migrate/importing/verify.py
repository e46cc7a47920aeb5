"""Compare a table in SQL with the log that it was loaded from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.exceptions import ImportMismatchError, TxnLogProtocolError
from deltasql.migrate.importing.fingerprint import fingerprint, sql_pages
from deltasql.mirror.log.read import stream_state
from deltasql.mirror.publish.targets import targets_of
from deltasql.mirror.verify.check_log import check_commits, compare_facts
from deltasql.mirror.verify.sql_state import SqlState
from deltasql.mirror.verify.verify import VerifyReport, missing_versions, verify_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.config import StorageSettings
    from deltasql.migrate.importing.run import ImportRun
    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.verify.differences import Difference
    from deltasql.model.progress import Meter
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

# With more files than this, the two lists of files are not held in memory together.
_LARGE = 200_000
# deltalake compares value by value, which is slow for more files than this.
_MAX_FOR_DELTALAKE = 20_000
# Files of a log that repeat the content of its commits, and their names in warnings.
_DERIVED = {"checkpoint": "checkpoint", "crc": "checksum"}


def describe_table(run: ImportRun, table: TableRow) -> None:
    """Put the latest state of a table in SQL into the report."""
    head = run.store.head(table.table_id)
    assert head is not None
    state = SqlState(run.store, table, head.version)
    totals = state.totals
    run.describe(totals.num_files, totals.size_bytes, state.protocol, state.metadata)


def verify_loaded(
    run: ImportRun, table: TableRow, listing: LogListing, last: int, *, since: int | None = None
) -> None:
    """Compare a loaded table with its log, as this package and as stock deltalake read it.

    With `since`, only the commits from that version on and the latest state are compared.
    """
    if not run.options.verify:
        return
    run.report_progress("verifying")
    report, log = run.report, listing.up_to(last)
    found = verify_by_size(run.store, table, run.storage, log, run.settings, since=since)
    report.verification = found
    in_sql, in_log = split_by_cause(found.differences)
    report.warnings += _warnings(in_log)
    if in_sql:
        raise ImportMismatchError(
            f"{report.table} differs from its log: {len(in_sql)} differences",
            table=report.table,
            location=run.storage.location,
            differences=tuple(str(each) for each in in_sql),
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
    """Compare a table with its log; very large tables by a fingerprint of their files."""
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
        with_deltalake=files <= _MAX_FOR_DELTALAKE,
        meter=meter,
        since=since,
    )
    if files > _MAX_FOR_DELTALAKE:
        found.notes.append("too many files to compare with deltalake")
    return found


def split_by_cause(
    differences: Sequence[Difference],
) -> tuple[list[Difference], list[Difference]]:
    """Split differences into errors in SQL and errors in the log, in this order.

    The commits of the log are right. A checkpoint or checksum that differs from them is an error
    in the log. So is a difference found by deltalake if it may have started from such a
    checkpoint, or if it cannot read the table at all.
    """
    has_wrong_checkpoint = any(each.source in _DERIVED for each in differences)
    in_sql: list[Difference] = []
    in_log: list[Difference] = []
    for each in differences:
        by_deltalake = each.source == "deltalake" and (
            has_wrong_checkpoint or each.kind == "unreadable"
        )
        (in_log if by_deltalake or each.source in _DERIVED else in_sql).append(each)
    return in_sql, in_log


def _verify_streamed(
    store: Store,
    table: TableRow,
    storage: Storage,
    log: LogListing,
    since: int,
    meter: Meter | None,
) -> VerifyReport | None:
    """Compare a table by its commits from `since` on and a fingerprint of its latest files.

    Returns None if versions are missing, the fingerprints differ or the state cannot be read: only
    the full comparison names the difference.
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
        return None  # the checkpoint is damaged, and SQL was not loaded from it
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
    report.notes.append("too many files to compare with deltalake and checkpoint by checkpoint")
    return report


def _published(store: Store, table: TableRow) -> int:
    return max((t.published_version for t in targets_of(store, table) if t.is_own), default=-1)


def _warnings(differences: Sequence[Difference]) -> list[str]:
    """Return one warning for each file of the log that is wrong."""
    found: dict[str, list[Difference]] = {}
    for each in differences:
        found.setdefault(f"{_DERIVED.get(each.source, each.source)} {each.version}", []).append(
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
