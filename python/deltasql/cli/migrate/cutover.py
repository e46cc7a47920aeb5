"""`deltasql cutover` and `rollback`: move the authority of a table between its log and SQL."""

from __future__ import annotations

import click

from deltasql.cli.context import Context, fail_unless, make_sure, show_report
from deltasql.cli.progress import of_phase, progress


@click.command()
@click.argument("table")
@click.option("--dry-run", is_flag=True, help="Show what would be done without doing it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def cutover(context: Context, table: str, dry_run: bool, yes: bool) -> None:
    """Make SQL the authority of TABLE: catch up, verify, block writes that bypass the catalog.

    Other Delta readers keep working. If the command is interrupted, run it again.

    \b
    Example:
      deltasql cutover sales --yes
    """
    with context.open_table(table) as (catalog, name):
        if not dry_run:
            catalog.table(name)  # raises if the table does not exist, before the confirmation
            make_sure(f"Keep everybody who writes to {name} by path out from now on?", yes=yes)
        with progress(of_phase, color=context.color) as on_progress:
            report = catalog.cutover(name, dry_run=dry_run, on_progress=on_progress)
    show_report(context, report)
    fail_unless(report.ok)


@click.command()
@click.argument("table")
@click.option("--dry-run", is_flag=True, help="Show what would be done without doing it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def rollback(context: Context, table: str, dry_run: bool, yes: bool) -> None:
    """Make the log the authority of TABLE again, and remove it from the catalog.

    All versions are published first. No file is deleted. If the command is interrupted, run it
    again.

    \b
    Example:
      deltasql rollback sales --yes
    """
    if not dry_run:
        make_sure(f"Take {table} out of the catalog and leave it to its log?", yes=yes)
    with (
        context.open_table(table) as (catalog, name),
        progress(of_phase, color=context.color) as on_progress,
    ):
        report = catalog.rollback(name, dry_run=dry_run, on_progress=on_progress)
    show_report(context, report)
    fail_unless(report.ok)
