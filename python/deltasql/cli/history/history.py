"""`deltasql history` and `diff`: the commits of a table, and the differences of two versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.options import limit_option, nearest
from deltasql.cli.output import first_of, message
from deltasql.cli.progress import busy
from deltasql.model.counts import many, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.inspect.diff import FileTotals, VersionDiff
    from deltasql.cli.context import Context

# Tables and CSV show these columns. JSON has all fields of `CommitEntry`.
COLUMNS = ("version", "committed_at", "operation", "parameters", "metrics", "user_metadata")
GROUPED = (*COLUMNS, "group_size", "txn_id")
DIFFERENCES = ("change", "what", "before", "after", "bytes", "rows")
_LATEST = 1000  # commits whose operations are suggested after a misspelled --operation


@click.command()
@click.argument("table")
@limit_option(20, "commits")
@click.option("--operation", help="Show only commits of this operation, such as WRITE or OPTIMIZE.")
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
            hint = nearest(operation.upper(), known)
            message(f"{name} has no commit with the operation {operation!r}.{hint}")
    context.output.rows(rows, GROUPED if transactions else COLUMNS)


@click.command()
@click.argument("table")
@click.argument("first", metavar="V1", type=click.IntRange(0))
@click.argument("last", metavar="V2", type=click.IntRange(0))
@click.option("--rows", is_flag=True, help="Also compare the rows. This reads the data files.")
@limit_option(100, "files and rows", most=10_000)
@click.pass_obj
def diff(context: Context, table: str, first: int, last: int, rows: bool, limit: int) -> None:
    """Compare two versions of TABLE: columns, properties, files and optionally rows.

    If V1 is the later version, the result shows what a restore from V1 to V2 would change.

    \b
    Example:
      deltasql diff sales 0 0 --rows
    """
    with context.open_table(table) as (catalog, name), busy("comparing", color=context.color):
        found = catalog.inspect.diff(
            name, first, last, files_limit=limit, rows=rows, rows_limit=limit
        )
    if context.output.is_structured:
        context.output.record(found.to_dict())
        return
    if context.format == "table":
        message(_summary(found))
    context.output.rows([*_lines(found)], DIFFERENCES)


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
