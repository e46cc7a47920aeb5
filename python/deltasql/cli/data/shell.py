"""`deltasql shell`: run commands and SQL interactively or from a script on stdin."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from deltasql.cli.commands import error_text, is_closed_pipe
from deltasql.cli.context import EXIT_WRONG, Context, warn_of_unpublished
from deltasql.cli.data.query import run_query
from deltasql.cli.data.sql import run_statement
from deltasql.cli.data.statements import HELP, QUERIES, first_word, is_sql, statements
from deltasql.cli.output import message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.sql.session import SqlSession

_ALIASES = {"help": "\\?", "?": "\\?", "exit": "\\q", "quit": "\\q"}


@click.command()
@click.pass_obj
def shell(context: Context) -> None:
    """Open an interactive shell for commands and SQL, with completion.

    End each SQL statement with a semicolon. Queries run as in `deltasql query`. All other
    statements, including BEGIN and COMMIT, run as in `deltasql sql`. If stdin is not a terminal,
    all its commands and statements are run in order, and the exit code is 1 if one of them failed.

    \b
    Example:
      $ deltasql shell
    """
    from deltasql.api.sql.session import SqlSession  # lazy import: start-up time

    with context.open() as catalog, SqlSession(catalog) as sql:
        opened = replace(context, open_catalog=catalog)
        session = Session(opened, catalog, sql, sys.stdin.isatty())
        if session.is_terminal:
            from deltasql.cli.data.prompt import lines  # lazy import: optional package

            message(f"{catalog.uri}; \\? for help, \\q to leave")
            session.run(lines(session.context, catalog))
        else:
            session.run(statements(sys.stdin))
        if sql.in_transaction:
            session.fail("the transaction was rolled back, because the shell ended without COMMIT")
        if session.failures and not session.is_terminal:
            raise click.exceptions.Exit(EXIT_WRONG)


@dataclass(slots=True)
class Session:
    """The state of one shell: its options, its open catalog and how many statements failed."""

    context: Context
    catalog: Catalog
    sql: SqlSession
    is_terminal: bool
    failures: int = 0

    def run(self, given: Iterable[str]) -> None:
        """Run statements until the input ends or one of them quits the shell."""
        for text in given:
            statement = text.strip()
            if _ALIASES.get(statement, statement) == "\\q":
                return
            if statement:
                self.run_one(statement)

    def run_one(self, text: str) -> None:
        """Run a command or SQL; an error is printed and counted, not raised."""
        from deltasql.cli.main import main

        try:
            if is_sql(text):
                self._sql(text.rstrip().removesuffix(";"))
            elif text in _ALIASES or text.startswith("\\"):
                self._backslash_command(_ALIASES.get(text, text))
            else:
                code = main.main(
                    _arguments(text), "deltasql", standalone_mode=False, obj=self.context
                )
                self.failures += code not in (None, 0)
        except click.ClickException as error:
            self.failures += 1
            error.show()
        except (click.Abort, KeyboardInterrupt):
            if not self.is_terminal:  # an interrupt ends a script, but not the prompt
                raise
            self.fail("Interrupted.")
        except Exception as error:  # the session continues after a failed statement
            if is_closed_pipe(error):
                raise
            self.fail(f"Error: {error_text(error, verbose=self.context.verbose)}")

    def _sql(self, text: str) -> None:
        if self.sql.in_transaction or not _is_query(text):
            run_statement(self.context, self.sql, text)
            warn_of_unpublished(self.catalog)
        else:
            run_query(self.context, self.catalog, text)

    def _backslash_command(self, text: str) -> None:
        command, _, rest = text.partition(" ")
        if command == "\\d" and rest.strip():
            self.run_one(f"schema {shlex.quote(rest.strip().strip(chr(34)))}")
        elif command == "\\d":
            self.run_one("table list")
        elif command == "\\x":
            self.context = replace(self.context, wide=not self.context.wide)
            how = "one below the other" if self.context.wide else "side by side"
            message(f"columns are now printed {how}")
        elif command == "\\f":
            from deltasql.cli.output import FORMATS

            if rest.strip() not in FORMATS:
                self.fail(f"Error: the format must be one of {', '.join(FORMATS)}")
            else:
                self.context = replace(self.context, format=rest.strip())
                message(f"results are now printed as {self.context.format}")
        elif command == "\\?":
            message(HELP)
        else:
            self.fail(f"Error: unknown command {command}; \\? lists the commands")

    def fail(self, text: str) -> None:
        """Print an error and count it."""
        self.failures += 1
        message(text)


def _is_query(text: str) -> bool:
    """Return whether the text is a query for DuckDB; `deltasql sql` runs all other statements."""
    from deltasql.exceptions import TxnLogError  # lazy imports: start-up time
    from deltasql.model.statements import statement as s
    from deltasql.model.statements.parser import parse_statement

    try:
        return isinstance(parse_statement(text), s.Select | s.Describe | s.ShowTables)
    except TxnLogError:
        return text.startswith("(") or first_word(text) in QUERIES


def _arguments(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:  # a quote is not closed
        raise click.UsageError(str(error)) from None
