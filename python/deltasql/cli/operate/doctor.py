"""`deltasql doctor`: check a catalog, and suggest a solution for each problem."""

from __future__ import annotations

import click

from deltasql.cli.context import Context, fail_unless
from deltasql.cli.output import message
from deltasql.cli.progress import busy
from deltasql.model.counts import many

COLUMNS = ("status", "name", "table", "detail", "suggestion")


@click.command()
@click.argument("table", required=False)
@click.option("--problems", is_flag=True, help="Show only problems.")
@click.pass_obj
def doctor(context: Context, table: str | None, problems: bool) -> None:
    """Check a catalog, or TABLE, for problems; exit 1 if a check fails.

    Checks connectivity, versions, schema and indexes, integrity, the mirror, storage, uncommitted
    files, small files and overdue vacuums. Nothing is changed.

    \b
    Example:
      deltasql doctor
    """
    with busy("checking", color=context.color):
        if context.open_catalog is not None:
            report = context.open_catalog.inspect.doctor(table=table)
        else:
            from deltasql.api.functions import examine

            report = examine(context.catalog_uri(), table=table)
    rows = [each.to_dict() for each in report.checks if not problems or each.status != "ok"]
    context.output.rows(rows, COLUMNS)
    if context.format == "table":
        warned = many(report.warnings, "warning")
        message(f"{many(len(report.checks), 'check')}, {report.failures} failed, {warned}")
    fail_unless(report.ok)
