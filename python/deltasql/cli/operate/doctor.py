"""`deltasql doctor`: check a catalog, and suggest a solution for each problem."""

from __future__ import annotations

import click

from deltasql.cli.context import Context, fail_unless
from deltasql.cli.options import is_given
from deltasql.cli.output import echo, message
from deltasql.cli.progress import busy
from deltasql.model.counts import many

COLUMNS = ("status", "name", "table", "detail", "suggestion")
SHOWN = COLUMNS[:-1]  # the format table prints the suggestions in full, below the table


@click.command()
@click.argument("table", required=False)
@click.option("--problems", is_flag=True, help="Show only problems.")
@click.option(
    "--fast", is_flag=True, help="Check only the database and its schema; do not read tables."
)
@click.pass_obj
def doctor(context: Context, table: str | None, problems: bool, fast: bool) -> None:
    """Check a catalog, or TABLE, for problems.

    Checks connectivity, versions, schema and indexes, integrity, the mirror, storage, uncommitted
    files, small files and overdue vacuums. Nothing is changed.

    \b
    Exit codes:
      0  no check failed; there may be warnings
      1  a check failed: also if the database cannot be reached or has no catalog
      2  wrong usage
      3  the checks could not run, for example because TABLE does not exist

    \b
    Example:
      $ deltasql doctor --format json --fast
      [
        {
          "name": "connectivity",
          "status": "ok",
          "detail": "sqlite answers in 0.01 ms",
          "suggestion": null,
      …
    """
    if fast and is_given("table"):
        raise click.UsageError("--fast checks no table: leave out TABLE, or --fast.")
    with busy("checking", color=context.color):
        if context.open_catalog is not None:
            inspect = context.open_catalog.inspect
            report = inspect.check_database() if fast else inspect.doctor(table=table)
        else:
            from deltasql.api.functions import examine

            report = examine(context.catalog_uri(), table=table, fast=fast)
    rows = [each.to_dict() for each in report.checks if not problems or each.status != "ok"]
    if context.format == "table" and not context.wide:
        context.output.rows(rows, SHOWN)
        for row in rows:
            if row["suggestion"]:
                name = " of ".join(filter(None, (row["name"], row["table"])))
                echo(f"{name}: {row['suggestion']}")
    else:
        context.output.rows(rows, COLUMNS)
    if context.format == "table":
        warned = many(report.warnings, "warning")
        message(f"{many(len(report.checks), 'check')}, {report.failures} failed, {warned}")
    fail_unless(report.ok)
