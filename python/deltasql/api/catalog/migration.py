"""The methods of a catalog by which the authority over a table moves: follow, cutover, rollback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deltasql.commit.build import does_not_follow
from deltasql.exceptions import TxnLogTableNotFoundError
from deltasql.uri import join_table_name, split_table_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.api.catalog.mirror import Mirror
    from deltasql.config import Config
    from deltasql.exceptions import TxnLogError
    from deltasql.migrate.authority.follow import FollowReport
    from deltasql.migrate.authority.handover_report import CutoverReport, RollbackReport
    from deltasql.migrate.importing.report import ImportProgress
    from deltasql.model.progress import Progress
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

    OnProgress = Callable[[ImportProgress], None]


class MigrationVerbs:
    """What a catalog can do with tables that others write, or wrote."""

    if TYPE_CHECKING:
        store: Store
        config: Config
        mirror: Mirror

        def resolve(self, name: str, *, fresh: bool = False) -> TableRow: ...

    def follow(
        self,
        source: str,
        *,
        name: str | None = None,
        namespace: str | None = None,
        batch_size: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> FollowReport:
        """Show a Delta table that others write, for reading only, and bring it up to its log.

        The first call loads its log, each later one appends what is new. Nothing is ever written
        to the log or its data. A table that follows already may be given by its name.
        """
        from deltasql.migrate.authority.follow import follow  # late: few tables follow a log

        known = self._followed(source)
        if known is not None:
            return self.refresh(known, batch_size=batch_size, on_progress=on_progress)
        space, short = namespace, name
        if name is not None and namespace is None:
            space, short = split_table_name(name)
        report = follow(
            self.store,
            source,
            name=short,
            namespace=space,
            batch_size=batch_size,
            allow_nested_location=self.config.table.allow_nested_location,
            settings=self.config.storage,
            on_progress=on_progress,
        )
        self._show(report)
        return report

    def refresh(
        self,
        name: str,
        *,
        batch_size: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> FollowReport:
        """Bring a table that follows a log of others up to it."""
        from deltasql.migrate.authority.follow import refresh  # late: few tables follow a log

        table = self.resolve(name, fresh=True)
        if not table.is_following:
            raise does_not_follow(table)
        report = refresh(
            self.store,
            table,
            batch_size=batch_size,
            settings=self.config.storage,
            on_progress=on_progress,
        )
        self._show(report)
        return report

    def cutover(
        self,
        name: str,
        *,
        verify: bool = True,
        dry_run: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> CutoverReport:
        """Make SQL the authority of a table that was followed or imported.

        Catches up with the log, compares the two, and turns in-commit timestamps on with one
        commit: stock writers by path are refused from then on. Repeat it after an interruption.
        """
        from deltasql.migrate.authority.cutover import cutover  # late: once in the life of a table

        report = cutover(
            self.store,
            self.resolve(name, fresh=True),
            publish=lambda: self.mirror.publish(name),
            settings=self.config.storage,
            verify=verify,
            dry_run=dry_run,
            on_progress=on_progress,
        )
        if not dry_run:
            self.mirror.publish(name)  # where else it is shown
        return report

    def rollback(
        self,
        name: str,
        *,
        verify: bool = True,
        dry_run: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> RollbackReport:
        """Leave a table to its log: publish all of it, take it out of the catalog.

        Writers by path go on where SQL ended; in-commit timestamps, which keep them out, are
        dropped if SQL had turned them on. No file is deleted. Repeat it after an interruption.
        """
        # late: once in the life of a table
        from deltasql.migrate.authority.rollback import rollback, table_to_roll_back

        report = rollback(
            self.store,
            self.mirror.publisher,
            table_to_roll_back(self.store, *split_table_name(name)),
            settings=self.config.storage,
            verify=verify,
            dry_run=dry_run,
            on_progress=on_progress,
        )
        if not dry_run:
            self.mirror.names_changed()
        return report

    def _followed(self, source: str) -> str | None:
        """Return the name of a table that follows, if it was given in the place of its log."""
        if "/" in source or (Path(source) / "_delta_log").exists():
            return None
        key = split_table_name(source)
        table = self.store.find_table(*key, fresh=True) if self.store.exists() else None
        if not Path(source).exists() and (table is None or not table.is_following):
            raise _not_followed(source, table)
        if table is None or not table.is_following:
            return None
        return join_table_name(table.namespace, table.name)

    def _show(self, report: FollowReport) -> None:
        """Bring views of a table up to it, where some are kept."""
        if report.state in ("followed", "loaded anew"):
            self.mirror.names_changed()
        elif report.commits and self.mirror.mode != "off":
            self.mirror.publish(report.table)


def _not_followed(source: str, table: TableRow | None) -> TxnLogError:
    """Return the error of a name that is neither a folder nor a table that follows."""
    if table is not None:
        return does_not_follow(table)
    return TxnLogTableNotFoundError(
        f"{source} is neither a folder nor a table of this catalog that follows a log",
        table=source,
        help="Give the folder that holds _delta_log; `deltasql table list` shows what is there.",
    )
