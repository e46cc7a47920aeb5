"""`deltasql sql`: run SQL statements that read or change tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.context import EXIT_WRONG
from deltasql.cli.data.query import sql_text
from deltasql.cli.output import message
from deltasql.cli.progress import busy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.api.sql.session import SqlSession
    from deltasql.cli.context import Context


@click.command()
@click.argument("statement", required=False)
@click.option("-f", "--file", type=click.Path(dir_okay=False), help="Read statements from a file.")
@click.option(
    "--param",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set the parameter :NAME. A number, true, false and null are values of JSON, other values "
    "are text. Can be given several times.",
)
@click.pass_obj
def sql(
    context: Context, statement: str | None, file: str | None, parameters: Sequence[str]
) -> None:
    """Run SQL statements such as MERGE, ALTER TABLE and OPTIMIZE; `-` reads them from stdin.

    The SQL is that of Delta on Spark; `deltasql query` has DuckDB's SQL for queries. Statements are
    separated by semicolons. Each is one commit, except between BEGIN and COMMIT. The first
    statement that fails ends the command, and an open transaction is rolled back.

    \b
    Example:
      deltasql sql "DELETE FROM sales WHERE id < :low" --param low=100
    """
    if (statement is None) == (file is None):
        raise click.UsageError("Give a statement, - for stdin, or --file with the name of a file.")
    values = dict(_parameter(each) for each in parameters)
    # Lazy import: `deltasql --help` must start fast.
    from deltasql.api.sql.session import SqlSession
    from deltasql.model.statements.tokens import split_statements

    with context.open(create=True) as catalog, SqlSession(catalog) as session:
        for text in split_statements(sql_text(statement, file)) or [""]:
            run_statement(context, session, text, values)
        if session.in_transaction:
            message("the transaction was rolled back, because the statements end without COMMIT")
            raise click.exceptions.Exit(EXIT_WRONG)


def run_statement(
    context: Context, session: SqlSession, text: str, values: Mapping[str, Any] | None = None
) -> None:
    """Run a statement and print its result, if it has one."""
    with busy("running the statement", color=context.color):
        found = session.sql(text, values)
    if found.column_names:
        context.output.query_result(found.to_reader(), context.output.result_limit)


def _parameter(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.UsageError(f"{text!r} is not a parameter: write --param NAME=VALUE.")
    try:
        found = json.loads(value)
    except ValueError:
        return name, value
    return name, value if isinstance(found, dict) else found
