"""`deltasql history`: show the commits of a table."""

from __future__ import annotations

import click

from deltasql.cli.context import Context, nearest, talk
from deltasql.cli.pages import first_of

COLUMNS = ("version", "committed_at", "operation", "parameters", "metrics", "user_metadata")
GROUPED = (*COLUMNS, "group_size", "txn_id")
_LATEST = 1000  # commits whose operations are suggested after a misspelled --operation


@click.command()
@click.argument("table")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Maximum number of commits.",
)
@click.option("--operation", help="Only commits of this operation, such as WRITE or OPTIMIZE.")
@click.option("--transactions", is_flag=True, help="Also show the transaction of each commit.")
@click.pass_obj
def history(
    context: Context, table: str, limit: int, operation: str | None, transactions: bool
) -> None:
    """Show the commits of TABLE, newest first.

    \b
    Example:
      deltasql history sales --limit 5
    """
    with context.open_table(table) as (catalog, name):
        found = first_of(
            lambda **page: catalog.inspect.history(name, operation=operation, **page), limit
        )
        rows = [each.to_dict() for each in found]
        if operation and not rows:
            latest = catalog.inspect.history(name, limit=_LATEST).items
            known = sorted({each.operation or "" for each in latest})
            talk(f"no commit of {name} is {operation!r}.{nearest(operation.upper(), known)}")
    context.output.rows(rows, GROUPED if transactions else COLUMNS)
