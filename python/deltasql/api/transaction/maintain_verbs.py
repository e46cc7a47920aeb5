"""Care for a table inside of a transaction."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TxnLogError, VersionNotFoundError
from deltasql.exceptions.prefixes import GENERIC_ERROR
from deltasql.model.clock import to_ms
from deltasql.snapshot.snapshot import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.engine.base import WriteOptions
    from deltasql.operations.table_stage import TableStage
    from deltasql.operations.verify.report import DataChecks, DataReport
    from deltasql.snapshot.snapshot import Snapshot


class MaintainVerbs:
    """The operations that keep a table in shape; each stages its part of the commit."""

    if TYPE_CHECKING:
        catalog: Catalog

        def target(
            self, table: str, data: object = None, *, engine: str | None = None
        ) -> TableStage: ...

        def snapshot(self, table: str) -> Snapshot: ...

    def optimize(
        self,
        table: str,
        *,
        partition_filters: Sequence[Any] | None = None,
        target_size: int | None = None,
        options: WriteOptions | None = None,
        engine: str | None = None,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Make few large files of many small ones; returns deltalake's metrics.

        A clustered table has the rows of files that are not clustered yet sorted, too.

        `on_progress` is told how many new files are done, and of how many. With `dry_run` nothing
        is staged; it returns what would be rewritten.
        """
        # late: it rewrites files
        from deltasql.operations.optimize.clustering import plan_optimize
        from deltasql.operations.optimize.optimize import stage_bins

        target = self.target(table, engine=engine)
        plan, rewrite = plan_optimize(
            target, partition_filters=partition_filters, target_size=target_size
        )
        if dry_run:
            return plan.forecast()
        stage_bins(target, plan, options=options, rewrite=rewrite, on_progress=on_progress)
        return plan.metrics()

    def z_order(
        self,
        table: str,
        columns: Sequence[str],
        *,
        partition_filters: Sequence[Any] | None = None,
        target_size: int | None = None,
        options: WriteOptions | None = None,
        engine: str | None = None,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Bring rows that are near in several columns into the same files; returns metrics.

        `on_progress` and `dry_run` are those of `optimize`.
        """
        # late: it rewrites files
        from deltasql.operations.optimize.optimize import stage_bins
        from deltasql.operations.optimize.zorder import plan_z_order

        target = self.target(table, engine=engine)
        plan, rewrite = plan_z_order(
            target, columns, partition_filters=partition_filters, target_size=target_size
        )
        if dry_run:
            return plan.forecast()
        stage_bins(target, plan, options=options, rewrite=rewrite, on_progress=on_progress)
        return plan.metrics()

    def restore(
        self,
        table: str,
        to: int | str | datetime,
        *,
        ignore_missing_files: bool = False,
        protocol_downgrade_allowed: bool = False,
    ) -> dict[str, int]:
        """Make a table what it was at a version or a moment; returns metrics."""
        from deltasql.operations import restore  # late: it tells change data

        older, parameters = _older(self.snapshot(table), to)
        return restore.restore(
            self.target(table),
            older,
            parameters=parameters,
            ignore_missing_files=ignore_missing_files,
            protocol_downgrade_allowed=protocol_downgrade_allowed,
        )

    def undo(self, table: str) -> dict[str, int]:
        """Take back the last commit of a table; undoing that brings it back."""
        from deltasql.operations import restore  # late: it tells change data

        now = self.snapshot(table)
        before = _at_version(now, restore.version_before(now))
        return restore.undo(self.target(table), before)

    def verify_data(
        self, table: str, *, checks: DataChecks = "counts", engine: str | None = None
    ) -> DataReport:
        """Compare every live file, and its rows, with what the log tells; changes nothing."""
        from deltasql.operations.verify.verify import verify_data  # late: it reads rows

        return verify_data(self.target(table, engine=engine), checks=checks)

    def repair(self, table: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Take files out of the table that are gone from storage; returns which."""
        from deltasql.operations import repair  # late: it lists files

        return repair.repair(self.target(table), dry_run=dry_run)


def _older(now: Snapshot, to: int | str | datetime) -> tuple[Snapshot, dict[str, str]]:
    """Open what a table is restored to, and say how the history tells it."""
    is_version = isinstance(to, int) and to >= 0
    if not (is_version or isinstance(to, str | datetime)):
        raise TxnLogError(
            "Either the version or datetime should be provided for restore",
            prefix=GENERIC_ERROR,
            help="Give a version from 0 on, a datetime, or a text such as 2024-05-01T00:00:00Z.",
        )
    if isinstance(to, int):
        return _at_version(now, to), {"version": str(to)}
    moment = _moment(to)
    try:
        older = open_snapshot(now.store, now.table, now.cache, timestamp=moment)
    except VersionNotFoundError:  # before the first commit
        first = now.store.query("version_bounds", table_id=now.table.table_id)[0][0]
        older = _at_version(now, first)
    return older, {"datetime": str(to_ms(moment))}


def _at_version(now: Snapshot, version: int) -> Snapshot:
    return open_snapshot(now.store, now.table, now.cache, version=version)


def _moment(to: str | datetime) -> datetime:
    if isinstance(to, str):
        try:
            moment = datetime.fromisoformat(to)
        except ValueError as error:
            raise ValueError(f"Failed to parse datetime string: {error}") from error
    else:
        moment = to
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
