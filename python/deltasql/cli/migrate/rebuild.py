"""`deltasql rebuild`: make a new catalog from published logs after the database was lost."""

from __future__ import annotations

import click

from deltasql.cli.context import EXIT_WRONG, Context, talk
from deltasql.cli.progress import of_rebuild, progress

COLUMNS = ("name", "state", "first_version", "last_version", "loaded", "location", "notes")


@click.command()
@click.argument("roots", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Show what would be loaded without loading it.")
@click.pass_obj
def rebuild(context: Context, roots: tuple[str, ...], dry_run: bool) -> None:
    """Rebuild a lost catalog from the Delta tables below ROOTS, with their history.

    The command can be repeated: existing tables are brought up to date.

    \b
    Example:
      deltasql --uri deltasql://sqlite/new.db rebuild /data/lake
    """
    import deltasql

    place = context.held or context.catalog_uri()
    with progress(of_rebuild, color=context.color) as on_progress:
        report = deltasql.rebuild(place, *roots, dry_run=dry_run, on_progress=on_progress)
    context.output.rows([each.to_dict() for each in report.tables], COLUMNS)
    if not report.ok:
        talk("not every table could be loaded")
        raise click.exceptions.Exit(EXIT_WRONG)
