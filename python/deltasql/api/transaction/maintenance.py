"""Optimize and restore a table inside a transaction."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TxnLogError, VersionNotFoundError
from deltasql.exceptions.prefixes import GENERIC_ERROR
from deltasql.model.clock import to_ms
from deltasql.operations import restore as restoring
from deltasql.operations.optimize.clustering import plan_optimize
from deltasql.operations.optimize.optimize import stage_bins
from deltasql.operations.optimize.zorder import plan_z_order
from deltasql.snapshot.snapshot import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.engine.base import WriteOptions
    from deltasql.model.progress import OnProgress
    from deltasql.operations.table_stage import TableStage
    from deltasql.snapshot.snapshot import Snapshot


def optimize(
    target: TableStage,
    *,
    z_order: Sequence[str] | None = None,
    partition_filters: Sequence[Any] | None,
    target_size: int | None,
    options: WriteOptions | None,
    on_progress: OnProgress | None,
    dry_run: bool,
) -> dict[str, Any]:
    """Rewrite files as fewer, larger ones; with `z_order`, rows are sorted by its columns.

    Returns metrics; with `dry_run` it stages nothing and returns what would be rewritten.
    """
    make_plan = plan_optimize if z_order is None else partial(plan_z_order, columns=z_order)
    plan, rewrite = make_plan(target, partition_filters=partition_filters, target_size=target_size)
    if dry_run:
        return plan.forecast()
    stage_bins(target, plan, options=options, rewrite=rewrite, on_progress=on_progress)
    return plan.metrics()


def restore(
    target: TableStage,
    now: Snapshot,
    to: int | str | datetime,
    *,
    ignore_missing_files: bool,
    protocol_downgrade_allowed: bool,
) -> dict[str, int]:
    """Restore a table to an older version, or as of a timestamp; returns metrics."""
    older, parameters = _older_snapshot(now, to)
    return restoring.restore(
        target,
        older,
        parameters=parameters,
        ignore_missing_files=ignore_missing_files,
        protocol_downgrade_allowed=protocol_downgrade_allowed,
    )


def undo(target: TableStage, now: Snapshot) -> dict[str, int]:
    """Restore a table to the version before its last commit; returns metrics."""
    return restoring.undo(target, _at_version(now, restoring.version_before(now)))


def _older_snapshot(now: Snapshot, to: int | str | datetime) -> tuple[Snapshot, dict[str, str]]:
    """Return the snapshot to restore, and the operation parameters for the history."""
    is_version = isinstance(to, int) and to >= 0
    if not (is_version or isinstance(to, str | datetime)):
        raise TxnLogError(
            "Either the version or datetime should be provided for restore",
            prefix=GENERIC_ERROR,
            help="Give a version (0 or higher), a datetime, or a string such as "
            "2024-05-01T00:00:00Z.",
        )
    if isinstance(to, int):
        return _at_version(now, to), {"version": str(to)}
    timestamp = _timestamp(to)
    try:
        older = open_snapshot(now.store, now.table, now.cache, timestamp=timestamp)
    except VersionNotFoundError:  # the timestamp is before the first commit
        first = now.store.query("version_bounds", table_id=now.table.table_id)[0][0]
        older = _at_version(now, first)
    return older, {"datetime": str(to_ms(timestamp))}


def _at_version(now: Snapshot, version: int) -> Snapshot:
    return open_snapshot(now.store, now.table, now.cache, version=version)


def _timestamp(to: str | datetime) -> datetime:
    if isinstance(to, str):
        try:
            parsed = datetime.fromisoformat(to)
        except ValueError as error:
            raise ValueError(f"Failed to parse datetime string: {error}") from error
    else:
        parsed = to
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
