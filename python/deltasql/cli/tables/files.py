"""`deltasql files`: list the data files of a version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.options import limit_option
from deltasql.cli.output import first_of

if TYPE_CHECKING:
    from deltasql.api.inspect.files import FileEntry
    from deltasql.cli.context import Context

COLUMNS = ("path", "bytes", "rows", "partition", "added_version", "deleted_rows", "modified_at")


@click.command()
@click.argument("table")
@click.option(
    "--where", "predicate", metavar="SQL", help="List only files that can contain a matching row."
)
@click.option("--version", type=click.IntRange(0), help="List the files of this version.")
@limit_option(100, "files")
@click.option(
    "--order",
    type=click.Choice(["added", "size", "path"]),
    default="added",
    show_default=True,
    help="Sort by this column.",
)
@click.option("--descending", is_flag=True, help="Sort in descending order.")
@click.pass_obj
def files(
    context: Context,
    table: str,
    predicate: str | None,
    version: int | None,
    limit: int,
    order: str,
    descending: bool,
) -> None:
    """List the live files of TABLE.

    \b
    Example:
      $ deltasql files sales --where "id = 1" --order size --descending
      path                                                                 by…
      part-00000-37546d08-c55b-4c68-b8a7-03d8dd062ae8-c000.snappy.parquet  48…
    """
    with context.open_table(table) as (catalog, name):
        found = first_of(
            lambda **page: catalog.inspect.files(
                name,
                version=version,
                predicate=predicate,
                order=order,
                descending=descending,
                **page,
            ),
            limit,
        )
        readable = context.output.is_for_people
        rows = [each.to_dict() | (_readable(each) if readable else {}) for each in found]
    context.output.rows(rows, COLUMNS)


def _readable(file: FileEntry) -> dict[str, Any]:
    partition = [f"{name}={value}" for name, value in file.partition.items()]
    return {
        "partition": partition,
        "modified_at": file.modified_at,
    }
