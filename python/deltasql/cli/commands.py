"""Groups of commands: loaded when used, with the nearest name for a wrong one."""

from __future__ import annotations

import errno
import sys
from importlib import import_module
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.completion import TABLE
from deltasql.cli.context import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_WRONG,
    VERBOSE,
    Choice,
    nearest,
    shared_options,
    talk,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Commands(click.Group):
    """A group that suggests the nearest command and prints our errors without a traceback."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            hint = self._in_groups(ctx, args[0]) or nearest(args[0], self.list_commands(ctx))
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx) from error

    def _in_groups(self, ctx: click.Context, name: str) -> str:
        """Return a hint at the groups that have a command of this name, or nothing."""
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
                raise
            talk(f"Error: {error_text(error, verbose=ctx.meta.get(VERBOSE, 0))}")
            ctx.exit(EXIT_WRONG if _is_finding(error) else EXIT_FAILED)


class LazyCommands(Commands):
    """The root: the module of a command is imported when the command is asked for."""

    def __init__(self, *args: Any, homes: Mapping[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._homes = homes
        put_example_last(self)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self._homes, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in self._homes:
            module, _, name = self._homes[cmd_name].partition(":")
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
        """Run a command line; end the process with its exit code where it stands alone."""
        run = super().main
        if not standalone_mode:
            return run(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            code = run(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except click.Abort as error:
            # Ctrl-C ends as a shell expects it; a question that was answered with no is a 1.
            is_interrupt = isinstance(error.__context__, KeyboardInterrupt)
            click.echo("Interrupted." if is_interrupt else "Aborted!", err=True)
            sys.exit(EXIT_INTERRUPTED if is_interrupt else EXIT_WRONG)
        sys.exit(code if isinstance(code, int) else 0)


def prepare(command: click.Command) -> None:
    """Give a command, and all below it, what every command has."""
    put_example_last(command)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            prepare(each)
        return
    for param in command.params:
        if isinstance(param, click.Argument) and param.name == "table":
            param.type = TABLE
        elif isinstance(param.type, click.Choice) and not isinstance(param.type, Choice):
            param.type = Choice(param.type.choices, param.type.case_sensitive)
    taken = {each for param in command.params for each in param.opts}
    # Common options are also taken behind the command, where they are often looked for.
    command.params += [each for each in shared_options() if not taken & {*each.opts}]


def put_example_last(command: click.Command) -> None:
    """Let a help end with its example, below the options."""
    if command.epilog is None:
        text, mark, example = cleandoc(command.help or "").partition("\b\nExample:")
        command.help, command.epilog = text.rstrip(), f"{mark}{example}"


def error_text(error: Exception, *, verbose: int = 0) -> str:
    """Return what a user is told of an error: what to do about it, where that is known."""
    from deltasql.exceptions import TxnLogError, TxnLogStorageError
    from deltasql.exceptions.redaction import redact

    if isinstance(error, OSError) and not isinstance(error, TxnLogError):
        return error_text(TxnLogStorageError(redact(str(error))))
    if isinstance(error, TxnLogError):
        return f"{error.full_message}\nDocs: {error.docs}"
    text = f"internal error: {type(error).__name__}: {error}"
    if not verbose:
        return redact(text) + "\nHelp: this should not happen; -v shows where it came from."
    import traceback

    return redact("\n".join([text, *traceback.format_exception(error)]).rstrip())


def is_closed_pipe(error: Exception) -> bool:
    """Tell whether nobody reads on; click ends silently then."""
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _is_finding(error: Exception) -> bool:
    from deltasql.exceptions import ImportMismatchError

    return isinstance(error, ImportMismatchError)
