"""Maintenance of files and log: methods of the raw table that deltalake calls."""

from __future__ import annotations

import json
import operator
import time
from typing import TYPE_CHECKING, Any

from deltasql.api.deltalake_compat.handle.arguments import (
    check_flags,
    check_unsigned,
    parse_moment,
    unsigned,
)
from deltasql.api.deltalake_compat.handle.base import RawBase, end_version_error
from deltasql.api.deltalake_compat.handle.properties import write_options
from deltasql.exceptions import VersionNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from deltalake import CommitProperties, PostCommitHookProperties, WriterProperties

    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.engine.base import WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.operations.optimize.optimize import Compaction
    from deltasql.operations.table_stage import TableStage

    Rewrite = Callable[[TableStage, pa.Table, WriteOptions], list[AddFile]]


class MaintainSide(RawBase):
    """The methods of deltalake's RawDeltaTable for maintenance."""

    def compact_optimize(
        self,
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

        Concurrency and spilling depend on the engine's settings, not on the arguments.
        """
        # late: it rewrites files
        from deltasql.operations.optimize.clustering import plan_optimize

        check_unsigned(target_size, max_concurrent_tasks, max_spill_size, max_temp_directory_size)

        def plan(target: TableStage) -> tuple[Compaction, Rewrite | None]:
            return plan_optimize(
                target, partition_filters=partition_filters, target_size=target_size
            )

        return self._rewrite(
            plan,
            write_options(writer_properties),
            min_commit_interval,
            commit_properties,
            post_commithook_properties,
        )

    def z_order_optimize(
        self,
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
        """Rewrite files so that rows with near values in the columns share files.

        Returns metrics as JSON.
        """
        from deltasql.operations.optimize.zorder import plan_z_order  # late: it rewrites files

        check_unsigned(target_size, max_concurrent_tasks, max_spill_size, max_temp_directory_size)

        def plan(target: TableStage) -> tuple[Compaction, Rewrite | None]:
            return plan_z_order(
                target,
                z_order_columns,
                partition_filters=partition_filters,
                target_size=target_size,
            )

        return self._rewrite(
            plan,
            write_options(writer_properties),
            min_commit_interval,
            commit_properties,
            post_commithook_properties,
        )

    def _rewrite(
        self,
        make: Callable[[TableStage], tuple[Compaction, Rewrite | None]],
        options: WriteOptions,
        interval_s: int | None,
        commit_properties: CommitProperties | None,
        post_commithook_properties: PostCommitHookProperties | None,
    ) -> str:
        """Rewrite bins of files, in one commit or in one commit per interval; returns metrics."""
        from deltasql.operations.optimize.optimize import stage_bins  # late: it rewrites files

        check_unsigned(interval_s)
        first, made = self.snapshot, None
        while made is None or made[0].bins:
            began_s = time.monotonic()

            def is_enough(since_s: float = began_s) -> bool:
                return interval_s is not None and time.monotonic() - since_s >= interval_s

            def operate(
                tx: MultiTableTransaction, planned: Any = made, is_enough: Any = is_enough
            ) -> tuple[Compaction, Rewrite | None]:
                # Every commit is based on the version of the plan, so that a concurrent commit
                # that removed one of its files is a conflict.
                tx.pin(self.name, first)
                target = tx.target(self.name)
                chosen = planned or make(target)
                stage_bins(
                    target, chosen[0], options=options, rewrite=chosen[1], is_enough=is_enough
                )
                return chosen

            made = self._commit(operate, commit_properties, post_commithook_properties)
        return json.dumps(made[0].metrics())

    def restore(
        self,
        target: Any,
        ignore_missing_files: bool,
        protocol_downgrade_allowed: bool,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> str:
        """Restore the table to a version or a timestamp; returns metrics as JSON."""
        check_flags(ignore_missing_files, protocol_downgrade_allowed)
        to = parse_moment(target) if isinstance(target, str) else target
        try:
            metrics = self._commit(
                lambda tx: tx.restore(
                    self.name,
                    to,
                    ignore_missing_files=ignore_missing_files,
                    protocol_downgrade_allowed=protocol_downgrade_allowed,
                ),
                commit_properties,
                post_commithook_properties,
            )
        except VersionNotFoundError as error:
            if error.latest is None:
                raise
            raise end_version_error(error, self.name) from error
        return json.dumps(metrics)

    def undo(
        self,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> str:
        """Undo the last commit; deltalake does not have this method."""
        metrics = self._commit(
            lambda tx: tx.undo(self.name), commit_properties, post_commithook_properties
        )
        return json.dumps(metrics)

    def repair(
        self,
        dry_run: bool,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> str:
        """Remove files from the table that are missing in storage; returns metrics as JSON."""
        check_flags(dry_run)
        metrics = self._commit(
            lambda tx: tx.repair(self.name, dry_run=dry_run),
            commit_properties,
            post_commithook_properties,
        )
        # JSON inside JSON: deltalake decodes the list separately.
        return json.dumps({**metrics, "files_removed": json.dumps(metrics["files_removed"])})

    def vacuum(
        self,
        dry_run: bool,
        retention_hours: int | None,
        enforce_retention_duration: bool,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
        full: bool = False,
        keep_versions: list[int] | None = None,
    ) -> list[str]:
        """Delete files that no retained version needs; returns their names."""
        from deltasql.api.catalog.vacuum import vacuum  # late: it reads logs

        check_flags(dry_run, enforce_retention_duration, full)
        if retention_hours is not None:
            operator.index(retention_hours)  # raises if it is not an integer
        kept = None if keep_versions is None else [unsigned(version) for version in keep_versions]

        def commit(operate: Callable[[MultiTableTransaction], None]) -> None:
            self._commit(operate, commit_properties, post_commithook_properties)

        return vacuum(
            self.catalog,
            self.row,
            commit,
            retention_hours=retention_hours,
            dry_run=dry_run,
            enforce_retention_duration=enforce_retention_duration,
            full=full,
            keep_versions=kept,
        )

    def create_checkpoint(self) -> None:
        """Write a checkpoint of the current snapshot to the published log."""
        self.catalog.mirror.checkpoint(self.name, version=self.snapshot.version)

    def cleanup_metadata(self) -> None:
        """Delete published log files that are older than the log retention of the table."""
        self.catalog.mirror.clean_log(self.name)

    def compact_logs(self, starting_version: int, ending_version: int) -> None:
        """Write a log compaction file for a range of versions to the published log."""
        self.catalog.mirror.compact_log(self.name, starting_version, ending_version)

    def generate(self) -> None:
        """Write symlink manifests of the current snapshot."""
        self.catalog.mirror.write_manifests(self.snapshot)
