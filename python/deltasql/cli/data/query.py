"""`deltasql query` and `head`: print the result of a query, or the first rows of a table."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from deltasql.cli.options import columns_option, comma_separated, require_known
from deltasql.cli.output import message
from deltasql.cli.progress import busy

if TYPE_CHECKING:
    import pyarrow as pa

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.cli.context import Context


@click.command()
@click.argument("sql", required=False)
@click.option("-f", "--file", type=click.Path(dir_okay=False), help="Read the SQL from a file.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Print at most this many rows.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Cancel the query after this time.",
)
@columns_option
@click.pass_obj
def query(
    context: Context,
    sql: str | None,
    file: str | None,
    limit: int | None,
    timeout: float | None,
    columns: str | None,
) -> None:
    """Run a read-only SQL query on the catalog's tables.

    `-` reads the SQL from stdin.

    The SQL dialect is DuckDB's. `crm.sales` is a table in a namespace, `sales@3` a version,
    `sales@'2024-05-01'` the table at that time. The formats table and markdown show at most 1000
    rows unless --limit is larger; the other formats contain all rows.

    \b
    Example:
      $ deltasql query "SELECT count(*) AS n FROM sales@0"
      n
      1
    """
    if (sql is None) == (file is None):
        raise click.UsageError(
            "Give the SQL as an argument, or '-' to read it from stdin, or a file with --file."
        )
    with context.open() as catalog:
        text = sql_text(sql, file)
        run_query(context, catalog, text, limit=limit, timeout=timeout, columns=columns)


@click.command()
@click.argument("table")
@click.option(
    "-n", "rows", type=click.IntRange(1), default=10, show_default=True, help="Show this many rows."
)
@click.option("--version", type=click.IntRange(0), help="Read this version. Default: the latest.")
@click.option("--columns", metavar="COLUMN,…", help="Show only these columns.")
@click.pass_obj
def head(context: Context, table: str, rows: int, version: int | None, columns: str | None) -> None:
    """Show the first rows of TABLE.

    \b
    Example:
      $ deltasql head sales -n 5
      id
       1
       2
    """
    from deltasql.uri import split_table_name

    with context.open_table(table) as (catalog, name):
        snapshot = catalog.table(name).snapshot(version)
        known = snapshot.schema.names
        chosen = comma_separated(columns)
        for each in chosen:
            require_known(each, known, f"{name} has no column")
        what = ", ".join(map(_quoted, chosen)) or "*"
        place = ".".join(map(_quoted, split_table_name(name)))
        sql = f"SELECT {what} FROM {place}@{snapshot.version} LIMIT {rows}"  # noqa: S608 - quoted
        run_query(context, catalog, sql, limit=rows)


def run_query(
    context: Context,
    catalog: Catalog,
    sql: str,
    *,
    limit: int | None = None,
    timeout: float | None = None,
    columns: str | None = None,
) -> None:
    """Run a query and print its rows, or only some columns."""
    most = limit or context.output.result_limit
    # Fetch one row more than is printed, to detect that the result is longer.
    fetched = limit if limit is not None or most is None else most + 1
    started = time.perf_counter()
    with busy("running the query", color=context.color):
        found = catalog.query(sql, limit=fetched, timeout=timeout)
    context.output.query_result(found, most, columns_of(found, columns))
    report_time(context, "query", started)


def report_time(context: Context, what: str, started: float) -> None:
    """With --verbose, print how long a query or statement took, including its output."""
    if context.verbose:
        message(f"the {what} took {time.perf_counter() - started:.3f} s")


def columns_of(result: pa.RecordBatchReader | pa.Table, columns: str | None) -> list[str]:
    """Return the columns that `--columns` names, all of which the result must have."""
    chosen = comma_separated(columns)
    for each in chosen:
        require_known(each, result.schema.names, "The result has no column")
    return chosen


def sql_text(sql: str | None, file: str | None) -> str:
    """Return the SQL from the argument, from stdin (`-`) or from a file."""
    if file is None and sql != "-":
        return sql or ""
    # Do not use click.Path(exists=True), because its error does not name the option.
    if file is not None and not os.path.isfile(file):
        what = "is not a file" if os.path.exists(file) else "does not exist"
        raise click.BadParameter(f"{file!r} {what}.", param_hint="--file")
    with click.open_file(file or "-", encoding="utf-8") as opened:
        return str(opened.read())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
