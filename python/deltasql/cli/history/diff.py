"""`deltasql diff`: compare two versions of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.output import say
from deltasql.cli.progress import busy
from deltasql.cli.sizes import size_text
from deltasql.model.counts import many

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.inspect.diff import FileTotals, VersionDiff
    from deltasql.cli.context import Context

COLUMNS = ("change", "what", "before", "after", "bytes", "rows")


@click.command()
@click.argument("table")
@click.argument("first", metavar="V1", type=click.IntRange(0))
@click.argument("last", metavar="V2", type=click.IntRange(0))
@click.option("--rows", is_flag=True, help="Also compare the rows. This reads the data files.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Maximum number of files, and of rows.",
)
@click.pass_obj
def diff(context: Context, table: str, first: int, last: int, rows: bool, limit: int) -> None:
    """Compare two versions of TABLE: columns, properties, files and optionally rows.

    If V1 is the later version, the result shows what a restore to V2 would change.

    \b
    Example:
      deltasql diff sales 0 0 --rows
    """
    with context.open_table(table) as (catalog, name), busy("comparing", color=context.color):
        found = catalog.inspect.diff(
            name, first, last, files_limit=limit, rows=rows, rows_limit=limit
        )
    if context.format in ("json", "ndjson", "yaml"):
        context.output.record(found.to_dict())
        return
    if context.format == "table":
        say(_summary(found), err=True)
    context.output.rows([*_lines(found)], COLUMNS)


def _summary(found: VersionDiff) -> str:
    more = "; not all are shown" if found.more_files or (found.rows and found.rows.more) else ""
    return (
        f"{found.name} from version {found.first} to {found.last}: "
        f"{_totals(found.added)} added, {_totals(found.removed)} removed{more}"
    )


def _totals(totals: FileTotals) -> str:
    rows = "" if totals.rows is None else f", {many(totals.rows, 'row')}"
    return f"{many(totals.files, 'file')} ({size_text(totals.bytes)}{rows})"


def _lines(found: VersionDiff) -> Iterator[dict[str, Any]]:
    for column in found.schema:
        line = {"change": f"column {column.kind}", "what": column.column}
        yield {**line, "before": column.before, "after": column.after}
    for kind, values in (("property", found.metadata), ("protocol", found.protocol)):
        for value in values:
            line = {"change": kind, "what": value.key}
            yield {**line, "before": value.before, "after": value.after}
    for kind, files in (("file added", found.added_files), ("file removed", found.removed_files)):
        for file in files:
            yield {"change": kind, "what": file.path, "bytes": file.bytes, "rows": file.rows}
    if found.rows is not None:
        for row in found.rows.deleted:
            yield {"change": "row deleted", "what": "", "before": row}
        for row in found.rows.inserted:
            yield {"change": "row inserted", "what": "", "after": row}
