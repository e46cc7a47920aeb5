"""`deltasql`: the entry point, its common options and its exit codes."""

from __future__ import annotations

import logging
import sys
from inspect import cleandoc

try:
    import click
except ImportError:  # pragma: no cover - the console script of an installation without the extra
    sys.exit("the command line needs click and rich: pip install 'deltasql[cli]'")

from deltasql.cli.context import EXIT_FAILED, EXIT_WRONG, Context
from deltasql.cli.cutover import cutover, rollback
from deltasql.cli.diff import diff
from deltasql.cli.doctor import doctor
from deltasql.cli.export import export
from deltasql.cli.files import files
from deltasql.cli.follow import follow
from deltasql.cli.history import history
from deltasql.cli.import_table import import_table
from deltasql.cli.mirror import mirror
from deltasql.cli.output import FORMATS
from deltasql.cli.rebuild import rebuild
from deltasql.cli.schema import schema
from deltasql.cli.stats import stats
from deltasql.cli.ui import ui
from deltasql.cli.verify import verify
from deltasql.cli.watch import watch
from deltasql.exceptions import ImportMismatchError, TxnLogError, TxnLogStorageError
from deltasql.exceptions.redaction import redact

LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


class Commands(click.Group):
    """A group that suggests the nearest command and prints our errors without a traceback."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            nearest = get_close_matches(args[0], self.list_commands(ctx), 1)
            hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
            raise click.UsageError(f"{error.message}{hint}", ctx) from error

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except TxnLogError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(EXIT_WRONG if isinstance(error, ImportMismatchError) else EXIT_FAILED)
        except FileNotFoundError as error:
            click.echo(f"Error: {TxnLogStorageError(redact(str(error)))}", err=True)
            ctx.exit(EXIT_FAILED)


def put_examples_last(command: click.Command) -> None:
    """Let every help end with its example, below the options."""
    text, mark, example = cleandoc(command.help or "").partition("\b\nExample:")
    command.help, command.epilog = text.rstrip(), f"{mark}{example}"
    if isinstance(command, click.Group):
        for each in command.commands.values():
            put_examples_last(each)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--uri", envvar="DELTASQL_URI", help="The catalog, as deltasql://…")
@click.option("--catalog", help="A catalog named in the configuration, instead of --uri.")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--no-color", is_flag=True, help="Plain text, also on a terminal.")
@click.option("-v", "--verbose", count=True, help="Tell more on stderr; twice for everything.")
@click.version_option(package_name="deltasql", prog_name="deltasql")
@click.pass_context
def main(
    ctx: click.Context,
    uri: str | None,
    catalog: str | None,
    format_: str,
    no_color: bool,
    verbose: int,
) -> None:
    """The Delta Lake transaction log, in a database you already run.

    Data goes to stdout, talk to stderr. Exit codes: 0 fine, 1 something is wrong with what was
    looked at, 2 wrong usage, 3 the command failed.

    \b
    Example:
      deltasql --uri deltasql://sqlite/meta.db mirror status
    """
    if (
        uri
        and catalog
        and ctx.get_parameter_source("uri") is click.core.ParameterSource.COMMANDLINE
    ):
        raise click.UsageError("--uri and --catalog both name a catalog: give one of them.")
    logging.basicConfig(
        level=LEVELS[min(verbose, 2)],
        stream=sys.stderr,
        format="%(levelname)s %(name)s: %(message)s",
    )
    ctx.obj = Context(uri=catalog or uri, format=format_, color=not no_color)


for command in (cutover, export, follow, import_table, mirror, rebuild, rollback, ui, verify):
    main.add_command(command)
for command in (diff, doctor, files, history, schema, stats, watch):
    main.add_command(command)
put_examples_last(main)

if __name__ == "__main__":
    main()
