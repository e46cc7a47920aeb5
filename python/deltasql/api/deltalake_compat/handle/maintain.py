"""Care for the files and the log of a handle."""

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
    """The maintenance half of deltalake's RawDeltaTable."""

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
        """Make few large files of many small ones; returns metrics as JSON.

        How many tasks run at once, and where they spill, is a matter of the engine's settings.
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
        """Bring rows that are near in several columns into the same files; metrics as JSON."""
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
        """Rewrite bins of files, in one commit or in one whenever an interval is over."""
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
                # Every commit looks at the version that was planned from: whoever takes one of
                # its files away in the meantime is found.
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
        """Make the table what it was at a version or a moment; returns metrics as JSON."""
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
        """Take back the last commit; stock deltalake has no such call."""
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
        """Take files out of the table that are gone from storage; returns metrics as JSON."""
        check_flags(dry_run)
        metrics = self._commit(
            lambda tx: tx.repair(self.name, dry_run=dry_run),
            commit_properties,
            post_commithook_properties,
        )
        # JSON inside of JSON: deltalake's class decodes the list by itself.
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
            operator.index(retention_hours)  # refuses what is no whole number
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
        """Write a checkpoint of the version this handle looks at into the published log."""
        self.catalog.mirror.checkpoint(self.name, version=self.snapshot.version)

    def cleanup_metadata(self) -> None:
        """Delete published log files that are older than the table keeps them."""
        self.catalog.mirror.clean_log(self.name)

    def compact_logs(self, starting_version: int, ending_version: int) -> None:
        """Write a span of versions as one file of the published log."""
        self.catalog.mirror.compact_log(self.name, starting_version, ending_version)

    def generate(self) -> None:
        """Write symlink manifests of the version this handle looks at."""
        self.catalog.mirror.write_manifests(self.snapshot)
