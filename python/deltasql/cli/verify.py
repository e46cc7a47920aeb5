"""`deltasql verify`: is what was published what SQL says?"""

from __future__ import annotations

import click

from deltasql.cli.context import EXIT_WRONG, Context

COLUMNS = ("table", "kind", "version", "path", "field", "sql", "log")


@click.command()
@click.argument("table", required=False)
@click.option("--all-versions", is_flag=True, help="Every version instead of the latest.")
@click.option("--no-deltalake", is_flag=True, help="Leave out the second reading by deltalake.")
@click.pass_obj
def verify(context: Context, table: str | None, all_versions: bool, no_deltalake: bool) -> None:
    """Compare the published log with SQL, file by file; exit with 1 when they differ.

    \b
    Example:
      deltasql verify sales --all-versions
    """
    with context.open() as catalog:
        reports = catalog.mirror.verify(
            table,
            versions="all" if all_versions else "head",
            with_deltalake=not no_deltalake,
        )
    if context.format == "table":
        for report in reports:
            click.echo(report.summary())
    else:
        context.output.rows([report.to_dict() for report in reports], COLUMNS)
    if not all(report.ok for report in reports):
        raise click.exceptions.Exit(EXIT_WRONG)
