"""Verify a published log: compare the database with the log, read by our code and by deltalake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from deltalake.exceptions import DeltaError

from deltasql.exceptions import TxnLogProtocolError
from deltasql.mirror.log.listing import LogListing, find_log
from deltasql.mirror.log.read import read_states
from deltasql.mirror.publish.targets import OWN, targets_of
from deltasql.model.progress import Meter
from deltasql.verify.deltalake_reader import compare_deltalake, unsupported_by_deltalake
from deltasql.verify.log_files import (
    PublishedLog,
    check_checkpoints,
    check_checksums,
    check_commits,
    check_last_checkpoint,
    compare_states,
    damaged_commit,
    unreadable,
)
from deltasql.verify.report import Difference, Differences, VerifyReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

Versions = Literal["head", "all", "sample"] | Sequence[int]


def verify_table(
    store: Store,
    table: TableRow,
    storage: Storage,
    *,
    versions: Versions = "head",
    sample: int = 20,
    with_deltalake: bool = True,
    checkpoints: bool = True,
    storage_options: Mapping[str, str] | None = None,
    target: str = OWN,
    log: LogListing | None = None,
    meter: Meter | None = None,
    since: int | None = None,
) -> VerifyReport:
    """Compare a table in the database with its published log.

    Every commit file, checkpoint and checksum is compared. At the chosen versions, the state of the
    table is compared too, as replayed by our own code and as read by stock deltalake. `log` is the
    listing to compare, by default that of the whole log. With `since`, log files before that
    version are skipped, because they were compared earlier.
    """
    counter = meter or Meter()
    # Read the version bounds last: a concurrent commit may then look unpublished, but not foreign.
    published = published_version(store, table, target)
    listing = log or find_log(storage)
    low, high = store.query("version_bounds", table_id=table.table_id)[0]
    report = VerifyReport(
        table.full_name,
        storage.location,
        sql_version=high,
        log_version=None if listing is None else listing.last_version,
    )
    last, pending = _check_versions(listing, report, low, published, table)
    report = replace(report, pending=pending)
    if listing is None or last is None:
        return report
    found = report.found
    compared = PublishedLog(store, table, storage, listing)
    # The first version of a table that was imported from a checkpoint has no commit here.
    start = since or 0
    commits = range(max(low + 1 if low > 0 else low, start), last + 1)
    compared_commits, foreign_bytes = check_commits(compared, commits, found, counter)
    first = max(low, listing.first_version)
    chosen = chosen_versions(versions, first, last, sample)
    if since is None or not _is_same_from_checkpoint(compared, chosen):
        _compare_replay(compared, chosen, found, counter)
    notes = report.notes
    if with_deltalake:
        notes += _compare_with_deltalake(compared, storage_options or {}, chosen, found, counter)
    compared_checkpoints: list[int] = []
    if checkpoints:
        covered = range(max(first, start), last + 1)
        compared_checkpoints = check_checkpoints(compared, covered, found, counter)
        check_last_checkpoint(compared, found)
    checked = range(max(low, start), last + 1)
    checksums = check_checksums(compared, checked, found)
    if since is not None:
        notes.append(f"files of the log before version {since} were not compared again")
    return replace(
        report,
        checked_from=first,
        versions=chosen,
        commits=compared_commits,
        checkpoints=compared_checkpoints,
        checksums=checksums,
        foreign_bytes=foreign_bytes,
    )


def _check_versions(
    listing: LogListing | None,
    report: VerifyReport,
    low: int,
    published: int,
    table: TableRow,
) -> tuple[int | None, int]:
    """Find missing and foreign versions.

    Returns the last version that both sides have, and the number of unpublished versions.
    """
    high = report.sql_version
    commits = {} if listing is None else listing.commits
    newer = sorted(each for each in commits if each > high)
    if table.is_following and newer:
        report.notes.append(
            f"the log is at version {newer[-1]}: its latest versions are not in the catalog yet"
        )
        newer = []
    for version in newer:
        file = commits[version]
        if file.size:
            report.found.add(Difference("foreign-version", version, file.name, source="json"))
        else:  # the file is empty: a power loss destroyed the commit in the log and the database
            report.found.add(damaged_commit(version, file.name, 0))
    ours = [each for each in commits if low <= each <= high]
    last = max(ours, default=low - 1)
    for version in missing_versions(listing, low, max(last, published)):
        report.found.add(Difference("missing-version", version, source="json"))
    pending = high - max(last, published)
    if listing is not None and not ours:
        checkpointed = [each.version for each in listing.checkpoints if low <= each.version <= high]
        return max(checkpointed, default=None), pending
    return (last if ours else None), pending


def published_version(store: Store, table: TableRow, target: str) -> int:
    """Return the published version of a target; -1 if nothing was published to it."""
    found = (each for each in targets_of(store, table) if each.name == target)
    return max((each.published_version for each in found), default=-1)


def missing_versions(listing: LogListing | None, low: int, last: int) -> list[int]:
    """Return the versions of low..last that are missing from the log.

    Versions before a checkpoint may be missing, because log cleanup deletes the oldest versions.
    """
    if listing is None:
        return list(range(low, last + 1))
    oldest = min((each for each in listing.commits if each >= low), default=last + 1)
    is_covered = any(each.version >= oldest - 1 for each in listing.checkpoints)
    start = oldest if is_covered else low
    return [each for each in range(start, last + 1) if each not in listing.commits]


def chosen_versions(versions: Versions, first: int, last: int, sample: int = 20) -> list[int]:
    """Return the versions to compare; a sample is evenly spaced and includes both ends.

    >>> chosen_versions("sample", 3, 100, sample=4), chosen_versions("sample", 0, 2)
    ([3, 35, 67, 100], [0, 1, 2])
    """
    if versions == "head":
        return [last]
    if versions == "all":
        return list(range(first, last + 1))
    if versions == "sample":
        steps = min(max(sample, 2), last - first + 1) - 1
        return [first + (last - first) * step // max(steps, 1) for step in range(steps + 1)]
    assert not isinstance(versions, str)
    return sorted({each for each in versions if first <= each <= last})


def _is_same_from_checkpoint(log: PublishedLog, versions: Sequence[int]) -> bool:
    """Return whether the states are the same if reading the log starts from checkpoints.

    This is fast. If the states differ, only a full replay shows the differences.
    """
    found = Differences()
    try:
        for state in read_states(log.storage, versions, listing=log.listing):
            compare_states(log.sql_state(state.version), state, found)
    except (TxnLogProtocolError, FileNotFoundError):
        return False
    return found.total == 0


def _compare_replay(
    log: PublishedLog, chosen: Sequence[int], found: Differences, meter: Meter
) -> None:
    # Avoid checkpoints if possible, because they are compared separately.
    states = read_states(log.storage, chosen, use_checkpoint=False, listing=log.listing)
    try:
        for state in meter.over("comparing states", "versions", states, len(chosen)):
            compare_states(log.sql_state(state.version), state, found)
    except (TxnLogProtocolError, FileNotFoundError) as error:
        found.add(unreadable(error, "replay"))


def _compare_with_deltalake(
    log: PublishedLog,
    options: Mapping[str, str],
    chosen: Sequence[int],
    found: Differences,
    meter: Meter,
) -> list[str]:
    """Compare versions as stock deltalake reads them; return notes."""
    for version in meter.over("comparing with deltalake", "versions", chosen, len(chosen)):
        sql = log.sql_state(version)
        unsupported = unsupported_by_deltalake(sql.protocol)
        if unsupported:
            return [
                f"version {version} not compared with deltalake, which does not support "
                f"{unsupported}"
            ]
        try:
            compare_deltalake(sql, log.storage.location, options, found)
        except (DeltaError, OSError, ValueError) as error:
            found.add(unreadable(error, "deltalake", version))
    return []
