"""`deltasql export`: write versions of a table as a separate Delta table."""

from __future__ import annotations

import click

from deltasql.cli.context import Context, show_report
from deltasql.cli.progress import of_export, progress


@click.command()
@click.argument("table")
@click.argument("directory")
@click.option("--version", type=click.IntRange(0), help="The last version. Default: the latest.")
@click.option(
    "--from-version", type=click.IntRange(0), help="The first version. Default: the oldest."
)
@click.option("--with-data", is_flag=True, help="Also copy the data files.")
@click.pass_obj
def export(
    context: Context,
    table: str,
    directory: str,
    version: int | None,
    from_version: int | None,
    with_data: bool,
) -> None:
    """Write TABLE (a name or a URI) to DIRECTORY as a self-contained Delta table.

    Without --with-data only the log is written; it refers to the data files where they are.

    \b
    Example:
      deltasql export sales /data/copy/sales --with-data
    """
    with (
        context.open_table(table) as (catalog, name),
        progress(of_export, color=context.color) as on_progress,
    ):
        report = catalog.export_table(
            name,
            directory,
            version=version,
            from_version=from_version,
            with_data=with_data,
            on_progress=on_progress,
        )
    show_report(context, report)
