"""The status of each publish target in the database.

It consists of the published version, failures, quarantine and the lease. These writes do not wait
for the disk. If a power loss undoes one, publishing repeats the version and finds the commit file
with the same content.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from deltasql.exceptions import redact
from deltasql.mirror.publish.targets import (
    ACTIVE,
    DAMAGED,
    FAILED,
    FOLLOWING,
    OWN,
    QUARANTINED,
    PublishTarget,
    insert_missing_targets,
    insert_target,
    targets_of,
)
from deltasql.model.clock import from_ms, now_ms
from deltasql.model.report import Report
from deltasql.store import audit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from deltasql.config import MirrorSettings
    from deltasql.store.dialect import Row
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

_LONGEST_ERROR = 2000


@dataclass(frozen=True, slots=True)
class MirrorStatus(Report):
    """The publishing status of one table at one target."""

    table: str
    target: str
    kind: str
    location: str
    state: str
    version: int  # the latest version in the database
    published_version: int  # the latest published version, -1 if there is none
    pending: int
    lag_s: float
    attempts: int
    last_error: str | None
    claimed_by: str | None
    is_unhealthy: bool  # quarantined, damaged, or further behind than mirror.alert_lag_s
    damage: str | None = None  # what is damaged in the log; only if its files were checked


@dataclass(frozen=True, slots=True)
class VersionStatus(Report):
    """The status of one version at one target: PENDING, IN_FLIGHT, COMPLETE or FAILED."""

    version: int
    target: str
    status: str
    attempts: int
    last_error: str | None
    updated_at: datetime | None
    committed_at: datetime | None


def status_of(
    target: PublishTarget, settings: MirrorSettings, at_ms: int | None = None
) -> MirrorStatus:
    """Return the status of a target, by default at the current time."""
    now = now_ms() if at_ms is None else at_ms
    lag_s = target.lag_ms(now) / 1000
    return MirrorStatus(
        table=target.table.full_name,
        target=target.name,
        kind=target.kind,
        location=target.location,
        state=FOLLOWING if target.is_own and target.table.is_following else target.state,
        version=target.head_version,
        published_version=target.published_version,
        pending=target.pending,
        lag_s=lag_s,
        attempts=target.attempts,
        last_error=target.last_error,
        claimed_by=target.claimed_by if target.claimed_until_ms > now else None,
        is_unhealthy=target.is_quarantined or lag_s > settings.alert_lag_s,
    )


class LogFault(NamedTuple):
    """A problem with the files of a log: damage, or a commit that another program wrote."""

    text: str
    is_damage: bool = True
    is_after_head: bool = False  # a commit that `mirror adopt` loads and `mirror reject` moves


def with_damage(status: MirrorStatus, faults: Sequence[LogFault]) -> MirrorStatus:
    """Return a status with the problems that were found in the log files."""
    if not faults:
        return status
    more = f", and {len(faults) - 1:,} more" if len(faults) > 1 else ""
    is_damaged = status.state == ACTIVE and any(each.is_damage for each in faults)
    return replace(
        status,
        damage=f"{faults[0].text}{more}",
        state=DAMAGED if is_damaged else status.state,
        is_unhealthy=True,
    )


def targets_with_own(store: Store, table: TableRow) -> list[PublishTarget]:
    """Return the targets of a table, its own location first.

    If the own location has no row in the database yet, insert the row.
    """
    found = targets_of(store, table)
    if found and found[0].is_own and found[0].has_row:
        return found
    with store.relaxed() as session:
        insert_target(session, table, OWN)
        insert_missing_targets(session)
    return targets_of(store, table)


def add_missing_targets(store: Store) -> None:
    """Insert missing targets: tables' own locations, and DuckDB files that show all tables."""
    with store.relaxed() as session:
        insert_missing_targets(session)


def versions_of(store: Store, target: PublishTarget, limit: int) -> list[VersionStatus]:
    """Return the status of the latest versions, newest first, with one statement."""
    head = target.head_version
    rows = store.query(
        "mirror_statuses",
        table_id=target.table.table_id,
        target=target.name,
        after=head - limit,
        last=head,
    )
    return [version_status(row, target) for row in rows]


def version_status(row: Row, target: PublishTarget) -> VersionStatus:
    """Return the status of a version from a row of `mirror_statuses` or a similar statement."""
    version, recorded, attempts, error, updated_at_ms, committed_at_ms = row
    following = target.published_version + 1
    status = FAILED if recorded == FAILED else "COMPLETE" if version < following else "PENDING"
    if status == "PENDING" and version == following and target.claimed_until_ms > now_ms():
        status = "IN_FLIGHT"
    return VersionStatus(
        version=version,
        target=target.name,
        status=status,
        attempts=attempts or 0,
        last_error=None if error is None else redact(error),
        updated_at=None if updated_at_ms is None else from_ms(updated_at_ms),
        committed_at=None if committed_at_ms is None else from_ms(committed_at_ms),
    )


def record_published(
    store: Store, table_id: int, target: str, *, after: int, first: int, last: int
) -> int | None:
    """Record first..last as published, if `after` is published and `last` is not yet.

    Return the number of the table's other targets. Return None if nothing was recorded, because
    another process recorded these versions, reset the published version, or quarantined the target.
    """
    params: dict[str, Any] = {
        "table_id": table_id,
        "target": target,
        "after": after,
        "first": first,
        "last": last,
        "now_ms": now_ms(),
    }
    if store.dialect.has_combined_writes:
        rows = store.query("record_published", **params)
    else:
        with store.relaxed() as session:
            rows = session.query("advance_target", **params)
            if rows:
                session.execute("complete_versions", **params)
    return rows[0][0] if rows else None


def record_failure(
    store: Store,
    target: PublishTarget,
    version: int,
    error: BaseException,
    settings: MirrorSettings,
) -> None:
    """Record a failed attempt and when the next one is due."""
    _fail(store, target, version, error, FAILED, now_ms() + backoff_ms(settings, target.attempts))


def quarantine(store: Store, target: PublishTarget, version: int, error: BaseException) -> None:
    """Stop publishing to a target whose log differs from the database, until it is released."""
    _fail(store, target, version, error, QUARANTINED, 0)


def release(store: Store, table: TableRow, target: str = OWN) -> None:
    """End the quarantine of a target, so that it is due for publishing immediately."""
    with store.relaxed() as session:
        session.execute(
            "set_target_state",
            table_id=table.table_id,
            target=target,
            state=ACTIVE,
            attempts=0,
            next_attempt_ms=0,
            last_error=None,
        )
        audit.record(session, table.table_id)


def mark_published(store: Store, table: TableRow, version: int, target: str = OWN) -> None:
    """Record all versions up to this one as published, for example after an import of the log."""
    targets_with_own(store, table)
    with store.relaxed() as session:
        key: dict[str, Any] = {"table_id": table.table_id, "target": target}
        session.execute("set_published_version", **key, version=version)
        session.execute("complete_versions", **key, first=version, last=version, now_ms=now_ms())


def backoff_ms(settings: MirrorSettings, attempts: int) -> int:
    """Return the wait before the next attempt: exponential backoff, half of it random."""
    ceiling = min(settings.max_backoff_s, settings.initial_backoff_s * 2 ** min(attempts, 30))
    return int(1000 * ceiling * random.uniform(0.5, 1))


def _fail(
    store: Store,
    target: PublishTarget,
    version: int,
    error: BaseException,
    state: str,
    next_attempt_ms: int,
) -> None:
    message = str(error)[:_LONGEST_ERROR]
    key: dict[str, Any] = {"table_id": target.table.table_id, "target": target.name}
    with store.relaxed() as session:
        session.execute(
            "fail_target", **key, state=state, next_attempt_ms=next_attempt_ms, last_error=message
        )
        session.execute(
            "set_mirror_status",
            **key,
            version=version,
            status="FAILED",
            last_error=message,
            now_ms=now_ms(),
        )
