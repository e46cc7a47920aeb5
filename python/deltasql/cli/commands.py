"""Command groups. A command is loaded when it is used, and an error suggests the nearest name."""

from __future__ import annotations

import errno
import gc
import os
import sys
from functools import partial
from importlib import import_module
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.completion import COLUMNS, LOCATION, TABLE
from deltasql.cli.context import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_WRONG, VERBOSE
from deltasql.cli.options import Choice, nearest, shared_options, table_of_uri
from deltasql.cli.output import echo, message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# The packages of commands, in the order of `--help`.
_GROUPS = ("Tables", "Data", "History", "Mirror", "Migrate", "Operate", "Help")
# The arguments that are locations of tables.
_LOCATIONS = ("source", "roots", "directory", "location")


class Commands(click.Group):
    """A group that suggests the nearest command and prints errors without a traceback."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            hint = self._in_groups(ctx, args[0]) or nearest(args[0], self.list_commands(ctx))
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx) from error

    def _in_groups(self, ctx: click.Context, name: str) -> str:
        """Return a hint with the groups that have a command of this name, or an empty string."""
        root = ctx.find_root().command
        if root is not self and isinstance(root, click.Group) and name in root.list_commands(ctx):
            return f" Did you mean 'deltasql {name}'?"
        found = [
            f"'{group} {name}'"
            for group in self.list_commands(ctx)
            if isinstance(command := self.get_command(ctx, group), click.Group)
            and name in command.commands
        ]
        return f" Did you mean {' or '.join(found)}?" if found else ""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, click.ClickException, EOFError):
            raise
        except Exception as error:
            if is_closed_pipe(error):
                discard_output()
                ctx.exit(0)
            message(f"Error: {error_text(error, verbose=ctx.meta.get(VERBOSE, 0))}")
            ctx.exit(EXIT_WRONG if _is_finding(error) else EXIT_FAILED)


class LazyCommands(Commands):
    """The root group. It imports the module of a command when the command is used."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._modules = modules
        put_example_last(self)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self._modules, *self.commands})

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by group: each package of commands is a group."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                package, mark, _ = self._modules.get(name, "").partition(".")
                title = package.capitalize() if mark else "Help"
                groups.setdefault(title, []).append((name, first_sentence(command)))
        for title in sorted(groups, key=_GROUPS.index):
            with formatter.section(title):
                formatter.write_dl(groups[title])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in self._modules:
            module, _, name = self._modules[cmd_name].partition(":")
            command = getattr(import_module(f"deltasql.cli.{module}"), name)
            prepare(command)
            self.add_command(command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line; in standalone mode, exit the process with its exit code."""
        run = super().main
        if not standalone_mode:
            return run(args, prog_name, complete_var, standalone_mode=False, **extra)
        # Imports create many objects but hardly any garbage, so collect it less often. This
        # threshold and `freeze` below save a quarter of the CPU time of `table list`.
        gc.set_threshold(50_000)
        try:
            code = run(args, prog_name, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except OSError as error:
            if not is_closed_pipe(error):
                raise
            discard_output()
            code = 0
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except click.Abort as error:
            # Ctrl-C exits with 130, as shells expect; a declined prompt exits with 1.
            is_interrupt = isinstance(error.__context__, KeyboardInterrupt)
            echo("Interrupted." if is_interrupt else "Aborted!", err=True)
            sys.exit(EXIT_INTERRUPTED if is_interrupt else EXIT_WRONG)
        gc.freeze()  # skips the collections at exit
        sys.exit(code if isinstance(code, int) else 0)


def prepare(command: click.Command) -> None:
    """Add the common options to a command and its subcommands."""
    put_example_last(command)
    command.short_help = first_sentence(command)  # click would cut it at 45 characters
    if isinstance(command, click.Group):
        for each in command.commands.values():
            prepare(each)
        return
    for param in command.params:
        if isinstance(param, click.Argument) and param.name == "table":
            param.type = TABLE
            param.default = partial(table_of_uri, param)
        elif isinstance(param, click.Argument) and param.name in _LOCATIONS:
            param.type = LOCATION
        elif param.metavar in ("COLUMN,…", "COLUMN=VALUE"):
            param.type = COLUMNS
        elif isinstance(param.type, click.Choice) and not isinstance(param.type, Choice):
            param.type = Choice(param.type.choices, param.type.case_sensitive)
        elif isinstance(param.type, click.IntRange):
            param.type.name = "integer"  # click's "integer range" is unclear in error messages
        elif isinstance(param.type, click.FloatRange):
            param.type.name = "number"
    taken = {each for param in command.params for each in param.opts}
    # Common options are also accepted after the command, where users expect them.
    command.params += [each for each in shared_options() if not taken & {*each.opts}]


def first_sentence(command: click.Command) -> str:
    """Return the first paragraph of a help text, which is one sentence."""
    return cleandoc(command.help or "").partition("\n\n")[0]


def put_example_last(command: click.Command) -> None:
    """Print the example of a help text after the options."""
    if command.epilog is None:
        text, mark, example = cleandoc(command.help or "").partition("\b\nExample:")
        command.help, command.epilog = text.rstrip(), f"{mark}{example}"


def error_text(error: Exception, *, verbose: int = 0) -> str:
    """Return the message of an error for the user, with its help line if there is one."""
    from deltasql.exceptions import TxnLogError, TxnLogStorageError
    from deltasql.exceptions.redaction import redact

    if isinstance(error, OSError) and not isinstance(error, TxnLogError) and error.filename:
        text = f"{error.filename}: {error.strerror}"
        return error_text(
            TxnLogStorageError(redact(text), help="Check the path and its permissions.")
        )
    if isinstance(error, OSError) and not isinstance(error, TxnLogError):
        return error_text(TxnLogStorageError(redact(str(error))))
    if isinstance(error, TxnLogError):
        return f"{error.full_message}\nDocs: {error.docs}"
    text = f"internal error: {type(error).__name__}: {error}"
    if not verbose:
        return redact(text) + "\nHelp: This is a bug in deltasql; -v shows the traceback."
    import traceback

    return redact("\n".join([text, *traceback.format_exception(error)]).rstrip())


def is_closed_pipe(error: Exception) -> bool:
    """Return whether the reader of our output closed the pipe, as `| head` does."""
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def discard_output() -> None:
    """Discard all further output, because its reader has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_finding(error: Exception) -> bool:
    from deltasql.exceptions import ImportMismatchError

    return isinstance(error, ImportMismatchError)
