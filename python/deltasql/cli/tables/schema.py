"""`deltasql schema`: show the columns of a table, or the versions that changed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.output import first_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.inspect.definition import SchemaChange
    from deltasql.cli.context import Context

COLUMNS = ("name", "type", "nullable", "partition", "comment")
CHANGES = ("version", "committed_at", "what", "key", "before", "after", "operation")


@click.command()
@click.argument("table")
@click.option("--version", type=click.IntRange(0), help="Show the columns of this version.")
@click.option(
    "--changes",
    is_flag=True,
    help="Show changes of columns, properties and protocol, newest first.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="With --changes: show at most this many versions.",
)
@click.pass_obj
def schema(context: Context, table: str, version: int | None, changes: bool, limit: int) -> None:
    """Show the columns of TABLE, or the history of their changes.

    \b
    Example:
      $ deltasql schema sales --changes
      version  committed at                      what          key          …
            0  2026-11-19T04:31:59.700000+00:00  column added  id           …
            0  2026-11-19T04:31:59.700000+00:00  property      format       …
            0  2026-11-19T04:31:59.700000+00:00  protocol      minReaderVers…
            0  2026-11-19T04:31:59.700000+00:00  protocol      minWriterVers…
    """
    if changes and version is not None:
        raise click.UsageError("--changes shows every version: leave --version out.")
    with context.open_table(table) as (catalog, name):
        if not changes:
            found = catalog.inspect.schema(name, version=version)
            context.output.rows([each.to_dict() for each in found], COLUMNS)
            return
        history = [*first_of(lambda **page: catalog.inspect.schema_changes(name, **page), limit)]
    if context.output.is_structured:
        context.output.rows([each.to_dict() for each in history], CHANGES)
    else:
        context.output.rows([row for each in history for row in _lines(each)], CHANGES)


def _lines(change: SchemaChange) -> Iterator[dict[str, Any]]:
    """Yield one row for each change of a version."""
    version = {
        "version": change.version,
        "committed_at": change.committed_at,
        "operation": change.operation,
    }
    for column in change.changes:
        line = {"what": f"column {column.kind}", "key": column.column}
        yield {**version, **line, "before": column.before, "after": column.after}
    for what, values in (("property", change.properties), ("protocol", change.protocol)):
        for value in values:
            line = {"what": what, "key": value.key}
            yield {**version, **line, "before": value.before, "after": value.after}
