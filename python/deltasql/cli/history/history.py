"""`deltasql history` and `diff`: the commits of a table, and the differences of two versions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.options import limit_option, nearest
from deltasql.cli.output import first_of, message
from deltasql.cli.progress import busy
from deltasql.model.counts import many, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.inspect.diff import FileTotals, VersionDiff
    from deltasql.api.inspect.history import CommitEntry, RecentCommit
    from deltasql.cli.context import Context

# The formats table and markdown show these columns, with --verbose also DETAILS. CSV has the
# columns of `CSV`, and JSON and YAML have all fields.
COLUMNS = ("version", "when", "operation", "who", "rows", "files", "size")
DETAILS = ("parameters", "metrics", "user_metadata")
_FILES = ("files_added", "files_removed", "bytes_added", "bytes_removed")
CSV = ("version", "committed_at", "operation", "engine", "rows", *_FILES, *DETAILS)
GROUPED = ("group_size", "txn_id")
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

    The column rows counts +inserted, ~updated and -deleted rows. The columns files and size show
    what the commit added (+) and removed (-). --verbose adds parameters, metrics and user metadata,
    as --format json does.

    \b
    Example:
      $ deltasql history sales --limit 5
      version  when                              operation  who              …
            1  2026-11-19T04:31:54.563000+00:00  WRITE      deltasql         …
            0  2026-11-19T04:31:54.483000+00:00  WRITE      delta-rs:py-1.6.6…
    """
    with context.open_table(table) as (catalog, name):
        found = first_of(
            lambda **page: catalog.inspect.history(name, operation=operation, **page), limit
        )
        rows = commit_rows(context, catalog, [(name, each) for each in found])
        if operation and not rows:
            latest = catalog.inspect.history(name, limit=_LATEST).items
            known = sorted({each.operation or "" for each in latest})
            hint = nearest(operation.upper(), known)
            message(f"{name} has no commit with the operation {operation!r}.{hint}")
    show_commits(context, rows, COLUMNS, GROUPED if transactions else ())


def commit_rows(
    context: Context, catalog: Catalog, commits: Sequence[tuple[str, CommitEntry | RecentCommit]]
) -> list[dict[str, Any]]:
    """Return a row for each commit; the formats table and markdown get shorter columns."""
    versions: dict[str, list[int]] = {}
    for name, each in commits:
        versions.setdefault(name, []).append(each.version)
    files = {
        name: catalog.inspect.file_changes(name, first=min(found), last=max(found))
        for name, found in versions.items()
    }
    rows = []
    for name, each in commits:
        changed = files[name][each.version]
        row = each.to_dict() | changed.to_dict()
        if context.output.is_for_people:
            row |= {
                "when": each.committed_at,
                "who": each.engine,
                "rows": _signed("+~-", [each.rows.inserted, each.rows.updated, each.rows.deleted]),
                "files": _signed("+-", [changed.files_added, changed.files_removed]),
                "size": _signed("+-", [changed.bytes_added, changed.bytes_removed], size_text),
            }
        rows.append(row)
    return rows


def show_commits(
    context: Context,
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    more: Sequence[str] = (),
) -> None:
    """Print rows of `commit_rows`; --verbose prints all their details one below the other."""
    output = context.output
    if not output.is_for_people:
        columns = [*(["table"] if "table" in columns else []), *CSV]
    elif context.verbose:
        columns, output = [*columns, *DETAILS], replace(output, wide=True)
    output.rows(rows, [*columns, *more])


def _signed(
    signs: str, numbers: Sequence[int | None], text: Callable[[int], str] = "{:,}".format
) -> str:
    """Return numbers with their signs, without those that are 0 or not known.

    >>> _signed("+~-", [1200, 0, None]), _signed("+-", [0, 0])
    ('+1,200', '')
    """
    pairs = zip(signs, numbers, strict=True)
    return " ".join(f"{sign}{text(number)}" for sign, number in pairs if number)


@click.command()
@click.argument("table")
@click.argument("first", metavar="V1", type=click.IntRange(0))
@click.argument("last", metavar="V2", type=click.IntRange(0))
@click.option("--rows", is_flag=True, help="Also compare the rows. This reads the data files.")
@limit_option(100, "files and rows", most=10_000)
@click.pass_obj
def diff(context: Context, table: str, first: int, last: int, rows: bool, limit: int) -> None:
    """Compare the columns, properties and files of two versions.

    If V1 is later than V2, the result shows what restoring the table to V2 would change.

    \b
    Example:
      $ deltasql diff sales 0 1 --rows
      sales from version 0 to 1: 1 file (294 B, 1 row) added, 0 files (0 B, 0…
      change        what                                                     …
      file added    part-00000-37546d08-c55b-4c68-b8a7-03d8dd062ae8-c000.sna…
      row inserted                                                           …
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
