"""`deltasql follow`, `cutover` and `rollback`: commands that change the authority of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deltasql.cli.context import Context, fail_unless
from deltasql.cli.options import dry_run_option, namespace_option, yes_option
from deltasql.cli.output import confirm, message
from deltasql.cli.progress import progress
from deltasql.cli.services import stopping

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.migrate.authority.follow import FollowReport
    from deltasql.model.progress import OnProgress


@click.command()
@click.argument("source")
@click.argument("uri", required=False)
@click.option(
    "--name", help="Give the table this name in the catalog. Default: the name of its folder."
)
@namespace_option
@click.option(
    "--watch",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Refresh every SECONDS seconds, until stopped.",
)
@click.pass_obj
def follow(
    context: Context,
    source: str,
    uri: str | None,
    name: str | None,
    namespace: str | None,
    watch: float | None,
) -> None:
    """Register or refresh a read-only index of a Delta table.

    The table can be read through the catalog, but not written, and its log is not changed. Run the
    command again to refresh, or use --watch to refresh until SIGTERM or Ctrl-C.

    \b
    Example:
      $ deltasql follow /data/lake/sales deltasql://sqlite/meta.db
      sales: followed, versions 0 to 0, 1 commit with 1 file added, from /dat…
    """
    from deltasql.uri import split_table_name

    with context.open_at(uri, create=True) as (catalog, table):
        if table is not None and (name or namespace):
            raise click.UsageError("The URI names the table: leave --name and --namespace out.")
        chosen = (namespace, name) if table is None else split_table_name(table)

        def refresh(on_progress: OnProgress | None = None) -> FollowReport:
            return catalog.follow(
                source, name=chosen[1], namespace=chosen[0], on_progress=on_progress
            )

        if watch is None:
            _refresh_and_report(context, refresh)
        else:
            _keep_refreshing(context, refresh, watch)


def _refresh_and_report(context: Context, refresh: Callable[..., FollowReport]) -> None:
    with progress(color=context.color) as on_progress:
        report = refresh(on_progress)
    context.output.report(report)


def _keep_refreshing(
    context: Context, refresh: Callable[..., FollowReport], seconds: float
) -> None:
    """Refresh every `seconds` until stopped; retry while the database or storage is unavailable.

    An error of the first refresh ends the command, because the location may be wrong.
    """
    from deltasql.exceptions import StoreBusyError, StoreUnavailableError

    with stopping() as stop:
        _refresh_and_report(context, refresh)
        message("following; stop with SIGTERM or Ctrl-C")
        while not stop.wait(seconds):
            try:
                report = refresh()
                if report.state != "up to date":
                    context.output.report(report)
            except (StoreBusyError, StoreUnavailableError, OSError) as error:
                message(f"cannot refresh, retrying: {str(error).splitlines()[0]}")
    message("stopped")


@click.command()
@click.argument("table")
@click.option(
    "--fence",
    is_flag=True,
    help="Also fence the table, so that delta-spark and DuckDB cannot write to it.",
)
@dry_run_option()
@yes_option
@click.pass_obj
def cutover(context: Context, table: str, fence: bool, dry_run: bool, yes: bool) -> None:
    """Make the database the authority of TABLE.

    Writers that bypass the catalog are blocked.

    From then on, the database decides which commits the table has, and deltasql publishes them to
    the log, so that other Delta readers keep working. The command first loads new commits of the
    log and verifies them. If it is interrupted, run it again.

    \b
    Example:
      $ deltasql cutover sales --yes
      sales: cut over, 0 commits of the log appended
        version 2 enables in-commit timestamps
        verified: ok (version 1 in SQL, 1 in the log; 2 commits, 1 state, 0 c…
        1 commit written by another program, with the same content as in SQL
        warning: deltalake before 1.0 and delta-spark are not blocked: move t…
    """
    with context.open_table(table) as (catalog, name):
        if not dry_run:
            catalog.table(name)  # raises if the table does not exist, before the confirmation
            confirm(f"Make the database the authority of {name}?", yes=yes)
        with progress(color=context.color) as on_progress:
            report = catalog.cutover(name, fence=fence, dry_run=dry_run, on_progress=on_progress)
    context.output.report(report)
    fail_unless(report.ok)


@click.command()
@click.argument("table")
@dry_run_option()
@yes_option
@click.pass_obj
def rollback(context: Context, table: str, dry_run: bool, yes: bool) -> None:
    """Make the log the authority of TABLE again.

    The table is removed from the catalog.

    All versions are published first. No file is deleted. If the command is interrupted, run it
    again.

    \b
    Example:
      $ deltasql rollback sales --yes
      sales: rolled back, the log at /data/lake/sales has version 1, 0 versio…
        verified: ok (version 1 in SQL, 1 in the log; 2 commits, 1 state, 0 c…
        1 commit written by another program, with the same content as in SQL
    """
    from deltasql.uri import split_table_name

    with context.open_table(table) as (catalog, name):
        if not dry_run:
            # A dropped table can be rolled back too.
            dropped = {(each.namespace, each.name) for each in catalog.dropped()}
            if split_table_name(name) not in dropped:
                catalog.table(name)  # raises if it does not exist, before the confirmation
            confirm(f"Remove {name} from the catalog and make its log the authority?", yes=yes)
        with progress(color=context.color) as on_progress:
            report = catalog.rollback(name, dry_run=dry_run, on_progress=on_progress)
    context.output.report(report)
    fail_unless(report.ok)
