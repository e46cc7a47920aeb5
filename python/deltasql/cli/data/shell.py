"""`deltasql shell`: run commands and SQL interactively or from a script on stdin."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from deltasql.cli.commands import error_text, is_closed_pipe
from deltasql.cli.context import EXIT_WRONG, Context
from deltasql.cli.data.query import run_query
from deltasql.cli.data.statements import HELP, is_sql, statements
from deltasql.cli.output import message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltasql.api.catalog.catalog import Catalog

_ALIASES = {"help": "\\?", "?": "\\?", "exit": "\\q", "quit": "\\q"}


@click.command()
@click.pass_obj
def shell(context: Context) -> None:
    """Open an interactive shell for commands and SQL, with completion.

    If stdin is not a terminal, its lines are run one after the other, and the exit code is 1 if one
    of them failed.

    \b
    Example:
      deltasql shell
    """
    with context.open() as catalog:
        session = Session(replace(context, open_catalog=catalog), catalog, sys.stdin.isatty())
        if session.is_terminal:
            from deltasql.cli.data.prompt import lines  # lazy import: optional package

            message(f"{catalog.uri}; \\? for help, \\q to leave")
            session.run(lines(session.context, catalog))
        else:
            session.run(statements(sys.stdin))
            if session.failures:
                raise click.exceptions.Exit(EXIT_WRONG)


@dataclass(slots=True)
class Session:
    """The state of one shell: its options, its open catalog and how many statements failed."""

    context: Context
    catalog: Catalog
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
        """Run a command or a query; an error is printed and counted, not raised."""
        from deltasql.cli.main import main

        try:
            if is_sql(text):
                self._query(text)
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
            self._fail("Interrupted.")
        except Exception as error:  # the session continues after a failed statement
            if is_closed_pipe(error):
                raise
            self._fail(f"Error: {error_text(error, verbose=self.context.verbose)}")

    def _query(self, text: str) -> None:
        run_query(self.context, self.catalog, text.rstrip().removesuffix(";"))

    def _backslash_command(self, text: str) -> None:
        command, _, rest = text.partition(" ")
        if command == "\\d" and rest.strip():
            self.run_one(f"query {shlex.quote(f'DESCRIBE {rest.strip()}')}")
        elif command == "\\d":
            self.run_one("table list")
        elif command == "\\f":
            from deltasql.cli.output import FORMATS

            if rest.strip() not in FORMATS:
                self._fail(f"Error: the format must be one of {', '.join(FORMATS)}")
            else:
                self.context = replace(self.context, format=rest.strip())
                message(f"results are now printed as {self.context.format}")
        elif command == "\\?":
            message(HELP)
        else:
            self._fail(f"Error: unknown command {command}; \\? lists the commands")

    def _fail(self, text: str) -> None:
        self.failures += 1
        message(text)


def _arguments(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:  # a quote is not closed
        raise click.UsageError(str(error)) from None
