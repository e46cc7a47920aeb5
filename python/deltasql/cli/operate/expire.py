"""`deltasql expire`: delete old versions of a table from the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.options import dry_run_option, yes_option
from deltasql.cli.output import confirm
from deltasql.cli.progress import progress
from deltasql.model.counts import many

if TYPE_CHECKING:
    from deltasql.cli.context import Context


@click.command()
@click.argument("table")
@click.option(
    "--retention-hours",
    type=click.FloatRange(0),
    metavar="HOURS",
    help="Keep the versions of the last HOURS hours. Default: the table's properties.",
)
@click.option("--before-version", type=click.IntRange(0), help="Keep this version and later ones.")
@dry_run_option("Show what would be deleted without deleting it.")
@yes_option
@click.pass_obj
def expire(
    context: Context,
    table: str,
    retention_hours: float | None,
    before_version: int | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete old versions of TABLE from the database.

    The rows that only they need are deleted, too. Data files are not: run a vacuum
    before. Versions stay if they are younger than the table's retention, not
    published yet, or part of the published log.

    \b
    Example:
      $ deltasql expire sales --dry-run
      sales: 0 versions and 0 rows would be deleted
        the history begins at version 0 (retention)
    """
    options: dict[str, Any] = {"retention_hours": retention_hours, "before_version": before_version}
    with context.open_table(table) as (catalog, name):
        found = catalog.expire_history(name, **options)
        if not dry_run:
            question = f"Delete {many(found.versions, 'version')} of {name}?"
            if found.versions:
                confirm(question, yes=yes)
            with progress(color=context.color) as on_progress:
                found = catalog.expire_history(
                    name, dry_run=False, on_progress=on_progress, **options
                )
    context.output.report(found)
