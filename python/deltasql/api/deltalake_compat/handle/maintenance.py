"""Maintenance of files and log: methods that deltalake calls on the raw table."""

from __future__ import annotations

import json
import operator
import time
from typing import TYPE_CHECKING, Any

from deltasql.api.arguments import (
    check_flags,
    check_unsigned,
    parse_timestamp,
    unsigned,
    write_options,
)
from deltasql.api.deltalake_compat.handle.open_table import end_version_error
from deltasql.exceptions import VersionNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from deltalake import CommitProperties, PostCommitHookProperties, WriterProperties

    from deltasql.api.deltalake_compat.handle.open_table import OpenTable
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.engine.base import WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.operations.optimize.compaction import Compaction
    from deltasql.operations.table_stage import TableStage

    Rewrite = Callable[[TableStage, pa.Table, WriteOptions], list[AddFile]]
    Plan = tuple[Compaction, Rewrite | None]


def compact_optimize(
    table: OpenTable,
    partition_filters: Sequence[Any] | None = None,
    target_size: int | None = None,
    max_concurrent_tasks: int | None = None,
    max_spill_size: int | None = None,
    max_temp_directory_size: int | None = None,
    min_commit_interval: int | None = None,
    writer_properties: WriterProperties | None = None,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> str:
    """Rewrite small files as fewer, larger ones; returns metrics as JSON.

    The arguments for concurrency and spilling have no effect; the engine's settings apply.
    """
    # lazy import: needed only to rewrite files
    from deltasql.operations.optimize.optimize import plan_optimize

    check_unsigned(target_size, max_concurrent_tasks, max_spill_size, max_temp_directory_size)
    return _rewrite(
        table,
        lambda target: plan_optimize(
            target, partition_filters=partition_filters, target_size=target_size
        ),
        write_options(writer_properties),
        min_commit_interval,
        commit_properties,
        post_commithook_properties,
    )


def z_order_optimize(
    table: OpenTable,
    z_order_columns: list[str],
    partition_filters: Sequence[Any] | None = None,
    target_size: int | None = None,
    max_concurrent_tasks: int | None = None,
    max_spill_size: int | None = None,
    max_temp_directory_size: int | None = None,
    min_commit_interval: int | None = None,
    writer_properties: WriterProperties | None = None,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> str:
    """Rewrite files so that rows with similar values in the columns are in the same files.

    Returns metrics as JSON.
    """
    # lazy import: needed only to rewrite files
    from deltasql.operations.optimize.zorder import plan_z_order

    check_unsigned(target_size, max_concurrent_tasks, max_spill_size, max_temp_directory_size)
    return _rewrite(
        table,
        lambda target: plan_z_order(
            target, z_order_columns, partition_filters=partition_filters, target_size=target_size
        ),
        write_options(writer_properties),
        min_commit_interval,
        commit_properties,
        post_commithook_properties,
    )


def _rewrite(
    table: OpenTable,
    make_plan: Callable[[TableStage], Plan],
    options: WriteOptions,
    interval_s: int | None,
    commit_properties: CommitProperties | None,
    post_commithook_properties: PostCommitHookProperties | None,
) -> str:
    """Rewrite groups of files, in one commit or in one commit per interval; returns metrics."""
    # lazy import: needed only to rewrite files
    from deltasql.operations.optimize.compaction import stage_bins

    check_unsigned(interval_s)
    first = table.snapshot
    plan: Plan | None = None
    while plan is None or plan[0].bins:
        began_s = time.monotonic()

        def is_enough(began_s: float = began_s) -> bool:
            return interval_s is not None and time.monotonic() - began_s >= interval_s

        def operate(
            tx: MultiTableTransaction, planned: Plan | None = plan, is_enough: Any = is_enough
        ) -> Plan:
            # Base every commit on the version of the plan: if a concurrent commit removed one of
            # the planned files, this is a conflict.
            tx.pin(table.name, first)
            target = tx.target_to_change(table.name)
            compaction, rewrite = chosen = planned or make_plan(target)
            stage_bins(target, compaction, options=options, rewrite=rewrite, is_enough=is_enough)
            return chosen

        plan = table.commit(operate, commit_properties, post_commithook_properties)
    return json.dumps(plan[0].metrics())


def restore(
    table: OpenTable,
    target: Any,
    ignore_missing_files: bool,
    protocol_downgrade_allowed: bool,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> str:
    """Restore the table to a version or a timestamp; returns metrics as JSON."""
    check_flags(ignore_missing_files, protocol_downgrade_allowed)
    to = parse_timestamp(target) if isinstance(target, str) else target
    try:
        metrics = table.commit(
            lambda tx: tx.restore(
                table.name,
                to,
                ignore_missing_files=ignore_missing_files,
                protocol_downgrade_allowed=protocol_downgrade_allowed,
                or_first_version=True,
            ),
            commit_properties,
            post_commithook_properties,
        )
    except VersionNotFoundError as error:
        if error.latest is None:
            raise
        raise end_version_error(error, table.name) from error
    return json.dumps(metrics)


def repair(
    table: OpenTable,
    dry_run: bool,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> str:
    """Remove files from the log that are missing in storage; returns metrics as JSON."""
    check_flags(dry_run)
    metrics = table.commit(
        lambda tx: tx.repair(table.name, dry_run=dry_run),
        commit_properties,
        post_commithook_properties,
    )
    # JSON inside JSON: deltalake decodes the list separately.
    return json.dumps({**metrics, "files_removed": json.dumps(metrics["files_removed"])})


def vacuum(
    table: OpenTable,
    dry_run: bool,
    retention_hours: int | None,
    enforce_retention_duration: bool,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
    full: bool = False,
    keep_versions: list[int] | None = None,
) -> list[str]:
    """Delete files that no retained version needs; returns their names."""
    # lazy import: needed only to read logs
    from deltasql.api.catalog.vacuum import vacuum as vacuum_table

    check_flags(dry_run, enforce_retention_duration, full)
    if retention_hours is not None:
        operator.index(retention_hours)  # raises if it is not an integer
    kept = None if keep_versions is None else [unsigned(version) for version in keep_versions]

    def commit(operate: Callable[[MultiTableTransaction], None]) -> None:
        table.commit(operate, commit_properties, post_commithook_properties)

    return vacuum_table(
        table.catalog,
        table.row,
        commit,
        retention_hours=retention_hours,
        dry_run=dry_run,
        enforce_retention_duration=enforce_retention_duration,
        full=full,
        keep_versions=kept,
    )


def create_checkpoint(table: OpenTable) -> None:
    """Write a checkpoint of the current snapshot to the published log."""
    table.catalog.mirror.checkpoint(table.name, version=table.snapshot.version)


def cleanup_metadata(table: OpenTable) -> None:
    """Delete published log files that are older than the log retention of the table."""
    table.catalog.mirror.clean_log(table.name)


def compact_logs(table: OpenTable, starting_version: int, ending_version: int) -> None:
    """Write a log compaction file for a range of versions to the published log."""
    table.catalog.mirror.compact_log(table.name, starting_version, ending_version)


def generate(table: OpenTable) -> None:
    """Write symlink manifests of the current snapshot."""
    table.catalog.mirror.write_manifests(table.snapshot)
