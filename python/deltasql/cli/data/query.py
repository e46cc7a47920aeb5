"""`deltasql query` and `head`: print the result of a query, or the first rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deltasql.cli.context import Context, nearest
from deltasql.cli.data.rows import most_rows, show_rows
from deltasql.cli.progress import busy

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog


@click.command()
@click.argument("sql", required=False)
@click.option("-f", "--file", type=click.Path(dir_okay=False), help="Read the SQL from a file.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Maximum number of rows.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Cancel the query after this time.",
)
@click.pass_obj
def query(
    context: Context, sql: str | None, file: str | None, limit: int | None, timeout: float | None
) -> None:
    """Run a read-only SQL query on the catalog's tables; `-` reads the SQL from stdin.

    The SQL dialect is DuckDB's. `crm.sales` is a table in a namespace, `sales@3` a version,
    `sales@'2024-05-01'` the table at that time. The formats table and markdown show at most 1000
    rows unless --limit is larger; the other formats contain all rows.

    \b
    Example:
      deltasql query "SELECT count(*) AS n FROM sales@0"
    """
    if (sql is None) == (file is None):
        raise click.UsageError("give the SQL, - for stdin, or a file by --file.")
    with context.open() as catalog:
        answer(context, catalog, sql_text(sql, file), limit=limit, timeout=timeout)


@click.command()
@click.argument("table")
@click.option("-n", "rows", type=click.IntRange(1), default=10, show_default=True, help="Rows.")
@click.option("--version", type=click.IntRange(0), help="Read this version. Default: the latest.")
@click.option("--columns", metavar="COLUMN,…", help="Only these.")
@click.pass_obj
def head(context: Context, table: str, rows: int, version: int | None, columns: str | None) -> None:
    """Show the first rows of TABLE.

    \b
    Example:
      deltasql head sales -n 5
    """
    from deltasql.uri import split_table_name

    with context.open_table(table) as (catalog, name):
        snapshot = catalog.table(name).snapshot(version)
        known = snapshot.schema.names
        chosen = [each.strip() for each in (columns or "").split(",") if each.strip()]
        for each in chosen:
            if each not in known:
                raise click.UsageError(f"{name} has no column {each!r}.{nearest(each, known)}")
        what = ", ".join(map(_quoted, chosen)) or "*"
        place = ".".join(map(_quoted, split_table_name(name)))
        sql = f"SELECT {what} FROM {place}@{snapshot.version} LIMIT {rows}"  # noqa: S608 - quoted
        answer(context, catalog, sql, limit=rows)


def answer(
    context: Context,
    catalog: Catalog,
    sql: str,
    *,
    limit: int | None = None,
    timeout: float | None = None,
) -> None:
    """Run a query and print its rows."""
    most = limit or most_rows(context)
    # One row more than is printed: it shows that the result is longer.
    asked = limit if limit is not None or most is None else most + 1
    with busy("running the query", color=context.color):
        found = catalog.query(sql, limit=asked, timeout=timeout)
    show_rows(context, found, most)


def sql_text(sql: str | None, file: str | None) -> str:
    """Return the SQL from the argument, from stdin (`-`) or from a file."""
    if file is None and sql != "-":
        return sql or ""
    with click.open_file(file or "-", encoding="utf-8") as opened:
        return str(opened.read())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
