"""Follow the log of a table; move the authority to the database (cutover) or back (rollback)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deltasql.commit.stale import does_not_follow
from deltasql.exceptions import TxnLogTableNotFoundError
from deltasql.migrate.authority import cutover as cutting_over
from deltasql.migrate.authority import follow as following
from deltasql.migrate.authority import rollback as rolling_back
from deltasql.uri import join_table_name, split_table_name

if TYPE_CHECKING:
    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.api.catalog.mirror import Mirror
    from deltasql.migrate.authority.cutover import CutoverReport
    from deltasql.migrate.authority.follow import FollowReport
    from deltasql.migrate.authority.rollback import RollbackReport
    from deltasql.model.progress import OnProgress


def follow(
    catalog: BaseCatalog,
    mirror: Mirror,
    source: str,
    *,
    name: str | None,
    namespace: str | None,
    batch_size: int | None,
    on_progress: OnProgress | None,
) -> FollowReport:
    """Add a read-only index of the table at `source`, or refresh it if `source` is its name."""
    followed = _followed_name(catalog, source)
    if followed is not None:
        return refresh(catalog, mirror, followed, batch_size=batch_size, on_progress=on_progress)
    if name is not None and namespace is None:
        namespace, name = split_table_name(name)
    report = following.follow(
        catalog.store,
        source,
        name=name,
        namespace=namespace,
        batch_size=batch_size,
        allow_nested_location=catalog.config.table.allow_nested_location,
        settings=catalog.config.storage,
        on_progress=on_progress,
    )
    _update_views(mirror, report)
    return report


def refresh(
    catalog: BaseCatalog,
    mirror: Mirror,
    name: str,
    *,
    batch_size: int | None,
    on_progress: OnProgress | None,
) -> FollowReport:
    """Load the commits that other writers added to a followed log since the last refresh."""
    table = catalog.resolve(name, fresh=True)
    if not table.is_following:
        raise does_not_follow(table)
    report = following.refresh(
        catalog.store,
        table,
        batch_size=batch_size,
        settings=catalog.config.storage,
        on_progress=on_progress,
    )
    _update_views(mirror, report)
    return report


def cutover(
    catalog: BaseCatalog,
    mirror: Mirror,
    name: str,
    *,
    verify: bool,
    dry_run: bool,
    on_progress: OnProgress | None,
) -> CutoverReport:
    """Make the database the authority of a table, and publish the table to all its targets."""
    report = cutting_over.cutover(
        catalog.store,
        catalog.resolve(name, fresh=True),
        publish=lambda: mirror.publish(name),
        settings=catalog.config.storage,
        verify=verify,
        dry_run=dry_run,
        on_progress=on_progress,
    )
    if not dry_run:
        mirror.publish(name)
    return report


def rollback(
    catalog: BaseCatalog,
    mirror: Mirror,
    name: str,
    *,
    verify: bool,
    dry_run: bool,
    on_progress: OnProgress | None,
) -> RollbackReport:
    """Make `_delta_log` the authority of a table, and remove the table from the catalog."""
    report = rolling_back.rollback(
        catalog.store,
        catalog.committer,
        mirror.publisher,
        rolling_back.table_to_roll_back(catalog.store, *split_table_name(name)),
        settings=catalog.config.storage,
        verify=verify,
        dry_run=dry_run,
        on_progress=on_progress,
    )
    if not dry_run:
        mirror.names_changed()
    return report


def _followed_name(catalog: BaseCatalog, source: str) -> str | None:
    """Return the full name of a followed table, or None if `source` is a location."""
    if "/" in source or (Path(source) / "_delta_log").exists():
        return None
    key = split_table_name(source)
    table = catalog.store.find_table(*key, fresh=True) if catalog.store.exists() else None
    if table is not None and table.is_following:
        return join_table_name(table.namespace, table.name)
    if Path(source).exists():
        return None
    if table is not None:
        raise does_not_follow(table)
    raise TxnLogTableNotFoundError(
        f"{source} is neither a folder nor a table of this catalog that follows a log",
        table=source,
        help="Give the folder that holds _delta_log; `deltasql table list` lists the tables.",
    )


def _update_views(mirror: Mirror, report: FollowReport) -> None:
    """Update views of a followed table in DuckDB catalogs."""
    if report.state in ("followed", "loaded anew"):
        mirror.names_changed()
    elif report.commits and mirror.mode != "off":
        mirror.publish(report.table)
