"""`deltasql stats`: show the sizes, small files, growth and skew of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.output import echo
from deltasql.cli.progress import busy
from deltasql.model.counts import many, size_text

if TYPE_CHECKING:
    from deltasql.api.inspect.overview import Overview, TableSummary
    from deltasql.api.inspect.stats import SizeBucket, TableStats
    from deltasql.cli.context import Context

TABLES = (
    "name",
    "version",
    "files",
    "bytes",
    "rows",
    "committed_at",
    "mirror_state",
    "pending",
    "lag_s",
)


@click.command()
@click.argument("table", required=False)
@click.option(
    "--days",
    type=click.IntRange(1, 3660),
    default=7,
    show_default=True,
    help="Show the growth of this many days.",
)
@click.option(
    "--partitions",
    type=click.IntRange(0, 10_000),
    default=10,
    show_default=True,
    help="Show this many of the largest partitions.",
)
@click.pass_obj
def stats(context: Context, table: str | None, days: int, partitions: int) -> None:
    """Show sizes, files and growth of TABLE, or of all tables.

    \b
    Example:
      $ deltasql stats sales
      key                         value
      table                       sales
      version                     1
      committed at                2026-11-19 04:32:00
      commits                     2
      files                       2
      …
    """
    with (
        context.open_tables(table) as (catalog, name),
        busy("computing statistics", color=context.color),
    ):
        if name is None:
            overview = catalog.inspect.overview(limit=10_000)
            advice = None
        else:
            found = catalog.inspect.stats(name, days=days, partitions=partitions)
            advice = catalog.inspect.advice(name)
    if name is None:
        _show_tables(context, overview)
    elif context.format == "table":
        _show_table(context, found)
        for suggestion in advice.suggestions if advice else ():
            echo(suggestion)
    else:
        context.output.record({**found.to_dict(), "advice": advice and advice.to_dict()})


def _show_tables(context: Context, overview: Overview) -> None:
    if context.format != "table":
        context.output.rows([each.to_dict() for each in overview.tables], TABLES)
        return
    context.output.rows([_readable(each) for each in overview.tables], TABLES)
    totals = overview.totals
    echo(
        f"{many(totals.tables, 'table')}, {many(totals.files, 'file')}, "
        f"{size_text(totals.bytes)}; {many(totals.commits, 'commit')} in the last 24 hours",
        err=True,
    )


def _readable(table: TableSummary) -> dict[str, Any]:
    return {
        **table.to_dict(),
        "files": count_text(table.files),
        "bytes": size_text(table.bytes),
        "rows": count_text(table.rows),
        "committed_at": table.committed_at,
    }


def _show_table(context: Context, found: TableStats) -> None:
    output = context.output
    skew = found.skew
    facts = {
        "table": found.name,
        "version": found.version,
        "committed at": found.committed_at,
        "commits": count_text(found.commits),
        "files": count_text(found.files),
        "size": size_text(found.bytes),
        "rows": count_text(found.rows) or "not known",
        "average file": size_text(found.average_bytes),
        "smallest, largest": f"{size_text(found.smallest)}, {size_text(found.largest)}",
        f"small files, below {size_text(found.small_below)}": count_text(found.small_files),
        "rows deleted by vectors": count_text(found.deleted_rows),
    }
    if found.partition_columns:
        facts["partitions"] = count_text(skew.partitions)
    if skew.ratio is not None:
        facts["largest partition / median"] = f"{skew.ratio:.1f} times"
    output.record(facts)
    echo()
    most = max((each.files for each in found.histogram), default=0)
    shown = [
        {
            "file_size": _bucket_text(each),
            "files": count_text(each.files),
            "bytes": size_text(each.bytes),
            "share": bar_text(each.files, most),
        }
        for each in found.histogram
    ]
    output.rows(shown, ("file_size", "files", "bytes", "share"))
    if found.partitions:
        echo()
        largest = [
            {
                "partition": each.label,
                "files": count_text(each.files),
                "bytes": size_text(each.bytes),
                "rows": count_text(each.rows),
                "share": f"{each.share:.1%}",
            }
            for each in found.partitions
        ]
        output.rows(largest, ("partition", "files", "bytes", "rows", "share"))
    echo()
    days = [
        {
            "day": str(each.day),
            "commits": count_text(each.commits),
            "files": f"+{count_text(each.files_added)} -{count_text(each.files_removed)}",
            "bytes": f"+{size_text(each.bytes_added)} -{size_text(each.bytes_removed)}",
            "size": size_text(each.bytes),
        }
        for each in found.growth
    ]
    output.rows(days, ("day", "commits", "files", "bytes", "size"))


def _bucket_text(bucket: SizeBucket) -> str:
    """Return the range of sizes of a histogram row, such as `64 KiB to 1 MiB`."""
    if bucket.high is None:
        return f"{size_text(bucket.low)} or more"
    if not bucket.low:
        return f"below {size_text(bucket.high)}"
    return f"{size_text(bucket.low)} to {size_text(bucket.high)}"


def count_text(count: int | None) -> str:
    """Return a number with thousands separators; an empty string for None.

    >>> count_text(1234567), count_text(None)
    ('1,234,567', '')
    """
    return "" if count is None else f"{count:,}"


def bar_text(count: int, most: int, width: int = 30) -> str:
    """Return a bar whose length is proportional to `count`; at least one character if not 0.

    >>> bar_text(1, 1000), bar_text(500, 1000, 10), bar_text(0, 1000)
    ('█', '█████', '')
    """
    if not count:
        return ""
    return "█" * max(1, round(width * count / most))
