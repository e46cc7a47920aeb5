"""`deltasql shell`: run commands and SQL interactively or from a script on stdin."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from deltasql.cli.commands import error_text, is_closed_pipe
from deltasql.cli.context import EXIT_WRONG, Context, talk
from deltasql.cli.data.query import answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltasql.api.catalog.catalog import Catalog

SQL_WORDS = ("select", "with", "from", "values", "explain", "describe", "summarize", "show", "(")
HELP = """\
SQL ends with a semicolon and may span lines; sales@3 is version 3 of sales.
Everything else is a command as on the command line, without `deltasql`: table list, head sales.

  \\d            tables                     \\d sales     columns of a table
  \\f json       format of answers          \\?           this help
  \\q            leave, as exit and Ctrl-D  --help       all commands
"""
_SHORT = {"help": "\\?", "?": "\\?", "exit": "\\q", "quit": "\\q"}


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
        session = Session(replace(context, held=catalog), catalog, sys.stdin.isatty())
        if session.is_terminal:
            from deltasql.cli.data.prompt import lines  # late import: optional package

            talk(f"{catalog.uri}; \\? for help, \\q to leave")
            session.run(lines(session))
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
            words = text.strip()
            if words and _SHORT.get(words, words) == "\\q":
                return
            if words:
                self.run_one(words)

    def run_one(self, text: str) -> None:
        """Run a command or a query; an error is printed and counted, not raised."""
        from deltasql.cli.main import main

        try:
            if is_sql(text):
                self._query(text)
            elif text in _SHORT or text.startswith("\\"):
                self._short(_SHORT.get(text, text))
            else:
                code = main.main(_words(text), "deltasql", standalone_mode=False, obj=self.context)
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
        answer(self.context, self.catalog, text.rstrip().removesuffix(";"))

    def _short(self, text: str) -> None:
        command, _, rest = text.partition(" ")
        if command == "\\d" and rest.strip():
            self.run_one(f"query {shlex.quote(f'DESCRIBE {rest.strip()}')}")
        elif command == "\\d":
            self.run_one("table list")
        elif command == "\\f":
            from deltasql.cli.output import FORMATS

            if rest.strip() not in FORMATS:
                self._fail(f"Error: formats are {', '.join(FORMATS)}")
            else:
                self.context = replace(self.context, format=rest.strip())
                talk(f"answers are written as {self.context.format} now")
        elif command == "\\?":
            talk(HELP)
        else:
            self._fail(f"Error: {command} is not known; \\? lists what is")

    def _fail(self, text: str) -> None:
        self.failures += 1
        talk(text)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:  # a quote is not closed
        raise click.UsageError(str(error)) from None


def statements(lines: Iterable[str]) -> Iterable[str]:
    """Yield statements: SQL up to its semicolon, or one line that is a command.

    Comment lines between statements are skipped.

    >>> list(statements(["table list", "SELECT 1", "FROM sales;", "# a remark", "mirror status"]))
    ['table list', 'SELECT 1\\nFROM sales;', 'mirror status']
    """
    kept: list[str] = []
    for line in lines:
        text = line.rstrip("\r\n")
        if not kept and text.lstrip().startswith(("#", "--")):
            continue
        kept.append(text)
        if is_whole("\n".join(kept)):
            yield "\n".join(kept)
            kept = []
    if any(each.strip() for each in kept):
        yield "\n".join(kept)


def is_sql(text: str) -> bool:
    """Return whether a text is SQL and not a command; its first word decides.

    >>> is_sql("SELECT 1"), is_sql("(SELECT 1)"), is_sql("table list"), is_sql("show tables")
    (True, True, False, True)
    """
    start = text.lstrip().lower()
    return start.startswith("(") or start.split(maxsplit=1)[:1] in [[word] for word in SQL_WORDS]


def is_whole(text: str) -> bool:
    """Return whether a statement is complete; SQL is, once it ends with a semicolon."""
    return not is_sql(text) or text.rstrip().endswith(";")
