"""Follow the log of a table; move the authority to the database (cutover) or back (rollback)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from deltasql.api.transaction.transaction import MultiTableTransaction
from deltasql.commit.stale import does_not_follow
from deltasql.exceptions import MirrorDivergedError, TxnLogError, TxnLogTableNotFoundError
from deltasql.migrate.authority import cutover as cutting_over
from deltasql.migrate.authority import follow as following
from deltasql.migrate.authority import rollback as rolling_back
from deltasql.migrate.authority.fence import FenceReport, blocked_jobs
from deltasql.migrate.authority.foreign_commits import foreign_version
from deltasql.mirror.publish.targets import OWN, named, targets_of
from deltasql.operations.alter.fence import is_fenced
from deltasql.storage import open_storage
from deltasql.uri import join_table_name, split_table_name

if TYPE_CHECKING:
    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.api.catalog.mirror import Mirror
    from deltasql.migrate.authority.cutover import CutoverReport
    from deltasql.migrate.authority.fence import FenceState
    from deltasql.migrate.authority.follow import FollowReport
    from deltasql.migrate.authority.rollback import RollbackReport
    from deltasql.model.progress import OnProgress
    from deltasql.store.records import TableRow


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
    fence: bool,
    dry_run: bool,
    on_progress: OnProgress | None,
) -> CutoverReport:
    """Make the database the authority of a table, and publish the table to all its targets.

    With `fence`, the commit that enables in-commit timestamps also fences the table. If they are
    enabled already, a separate commit fences the table.
    """
    was_fenced = fence and is_fenced(catalog.table(name).snapshot().protocol)
    report = cutting_over.cutover(
        catalog.store,
        catalog.resolve(name, fresh=True),
        publish=lambda: mirror.publish(name),
        settings=catalog.config.storage,
        verify=verify,
        fence=fence,
        dry_run=dry_run,
        on_progress=on_progress,
    )
    if not dry_run:
        mirror.publish(name)
    if not fence:
        return report
    if dry_run:
        state: FenceState = "was fenced" if was_fenced else "would fence"
        fenced = FenceReport(table=report.table, state=state)
    else:
        fenced = set_fence(catalog, mirror, name, on=True)
        if fenced.state == "was fenced" and not was_fenced:  # by the commit of the cutover
            fenced = replace(fenced, state="fenced", version=report.version)
    if not (was_fenced or fenced.warnings):
        fenced = replace(fenced, warnings=_blocked_jobs(catalog, catalog.resolve(name, fresh=True)))
    return replace(report, fence=fenced, warnings=[*report.warnings, *fenced.warnings])


def set_fence(catalog: BaseCatalog, mirror: Mirror, name: str, *, on: bool) -> FenceReport:
    """Fence a table or remove its fence, and publish the change."""
    table = catalog.writable(name)
    if on:
        _check_log_is_ours(catalog, table)
    with MultiTableTransaction(catalog, mirror, one_table=True) as tx:
        changes = tx.fence(name) if on else tx.unfence(name)
    warnings = _blocked_jobs(catalog, table) if on and changes else []
    reason = "it takes effect for other engines when `deltasql mirror run` has published it"
    if mirror.mode != "off":
        try:
            mirror.publish(name, target=OWN)
        except (OSError, TxnLogError) as error:
            reason = str(error).splitlines()[0]
    own = named(targets_of(catalog.store, table), OWN)
    if own.pending:
        warnings.append(f"the change is not published yet: {reason}")
    states: tuple[FenceState, FenceState] = ("fenced", "was fenced")
    if not on:
        states = ("unfenced", "was not fenced")
    return FenceReport(
        table=table.full_name,
        state=states[0] if changes else states[1],
        version=tx.versions.get(name),
        is_published=not own.pending,
        warnings=warnings,
    )


def _blocked_jobs(catalog: BaseCatalog, table: TableRow) -> list[str]:
    return blocked_jobs(catalog.store, table, has_log_store=catalog.has_log_store)


def _check_log_is_ours(catalog: BaseCatalog, table: TableRow) -> None:
    """Raise if another program has committed to the log: its commit would conflict with the fence.

    After the fence, that commit could only be rejected, not adopted.
    """
    storage = open_storage(table.location, catalog.config.storage)
    version = foreign_version(catalog.store, table, storage)
    if version is not None:
        raise MirrorDivergedError(
            f"{table.full_name} was not fenced: version {version} of its log is a foreign commit",
            table=table.full_name,
            version=version,
            location=table.location,
        )


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
