"""`deltasql sql`: run SQL statements that read or change tables."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.context import EXIT_WRONG
from deltasql.cli.data.query import columns_of, report_time, sql_text
from deltasql.cli.options import columns_option, dry_run_option
from deltasql.cli.output import message
from deltasql.cli.progress import busy
from deltasql.model.counts import many

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
    help="Set the parameter :NAME. VALUE is a number, true, false or null; anything else is text. "
    "Can be given several times.",
)
@dry_run_option("Run the statements, print their results, and roll back all changes.")
@columns_option
@click.pass_obj
def sql(
    context: Context,
    statement: str | None,
    file: str | None,
    parameters: Sequence[str],
    dry_run: bool,
    columns: str | None,
) -> None:
    """Run SQL that changes tables, such as MERGE and ALTER TABLE.

    `-` reads the statements from stdin.

    The SQL is that of Delta on Spark. (For queries in DuckDB's SQL, use `deltasql query`.)
    Statements are separated by semicolons. Each is one commit, except between BEGIN and COMMIT. The
    first statement that fails ends the command, and an open transaction is rolled back. With
    --dry-run, all statements run in one transaction that is rolled back, and VACUUM only lists the
    files.

    \b
    Example:
      $ deltasql sql "DELETE FROM sales WHERE id < :low" --param low=100
      num_affected_rows
                      2
    """
    if (statement is None) == (file is None):
        raise click.UsageError("Give a statement, - for stdin, or --file with the name of a file.")
    values = dict(_parameter(each) for each in parameters)
    # Lazy import: `deltasql --help` must start fast.
    from deltasql.api.sql.session import SqlSession
    from deltasql.model.statements.tokens import split_statements

    texts = split_statements(sql_text(statement, file)) or [""]
    with context.open(create=not dry_run) as catalog, SqlSession(catalog) as session:
        if dry_run:
            _dry_run(context, session, texts, values, columns)
            return
        for text in texts:
            run_statement(context, session, text, values, columns=columns)
        if session.in_transaction:
            message("the transaction was rolled back, because the statements end without COMMIT")
            raise click.exceptions.Exit(EXIT_WRONG)


def run_statement(
    context: Context,
    session: SqlSession,
    text: str,
    values: Mapping[str, Any] | None = None,
    *,
    columns: str | None = None,
) -> None:
    """Run a statement; if it has a result, print it, or only these columns of it."""
    started = time.perf_counter()
    with busy("running the statement", color=context.color):
        found = session.sql(text, values)
    if found.column_names:
        output = context.output
        output.query_result(found.to_reader(), output.result_limit, columns_of(found, columns))
    elif not session.in_transaction:
        _report_done(session, text)
    report_time(context, "statement", started)


def _report_done(session: SqlSession, text: str) -> None:
    """Print what a statement without a result did."""
    # Lazy imports: `deltasql --help` must start fast.
    from deltasql.api.sql.statements import OUTSIDE
    from deltasql.model.statements import statement as s
    from deltasql.model.statements.parser import parse_statement

    for name, version in session.versions.items():
        commit = session.catalog.inspect.commit(name, version)
        rows = f", {many(commit.rows.inserted, 'row')} inserted" if commit.rows.inserted else ""
        message(f"{commit.operation}: {name} is at version {version}{rows}")
    if not session.versions:
        statement = parse_statement(text)
        is_done = isinstance(statement, (*OUTSIDE, s.Rollback))
        message(f"{statement.name}: {'done' if is_done else 'nothing was changed'}")


def _dry_run(
    context: Context,
    session: SqlSession,
    texts: Sequence[str],
    values: Mapping[str, Any],
    columns: str | None,
) -> None:
    """Run statements in one transaction that is rolled back; VACUUM lists the files instead.

    Statements that cannot be part of a transaction are parsed and reported, but not run.
    """
    # Lazy imports: `deltasql --help` must start fast.
    from deltasql.model.statements import statement as s
    from deltasql.model.statements.parser import parse_statement

    session.run(s.Begin())
    for text in texts:
        parsed = parse_statement(text)
        if isinstance(parsed, s.Begin | s.Commit):
            continue
        if isinstance(parsed, s.Rollback):
            session.run(parsed)
            session.run(s.Begin())
        elif isinstance(parsed, s.Vacuum):
            name = ".".join(parsed.table.parts)
            message(f"VACUUM {name} would delete these files")
            found = session.catalog.sql(text if parsed.dry_run else f"{text} DRY RUN", values)
            context.output.query_result(found.to_reader(), None)
        elif isinstance(
            parsed,
            s.DropTable | s.UndropTable | s.RenameTable | s.CreateNamespace | s.DropNamespace,
        ):
            message(f"{parsed.name} was not run: it would take effect at once")
        else:
            run_statement(context, session, text, values, columns=columns)
    message("nothing was changed")


def _parameter(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.UsageError(f"{text!r} is not a parameter: write --param NAME=VALUE.")
    try:
        found = json.loads(value)
    except ValueError:
        return name, value
    return name, value if isinstance(found, dict) else found
