"""`deltasql`: the entry point, its common options and its exit codes."""

from __future__ import annotations

import sys
from dataclasses import replace

try:
    import click
except ImportError:  # pragma: no cover - the extra is not installed
    if sys.argv[1:2] == ["docs"] and len(sys.argv) == 3:  # every error names this command
        from deltasql.exceptions.documentation import documentation

        print(documentation(sys.argv[2]))
        sys.exit()
    sys.exit("the command line needs click and rich: pip install 'deltasql[cli]'")

from deltasql._core import __version__
from deltasql.cli.commands import LazyCommands
from deltasql.cli.context import Context, configure_logging
from deltasql.cli.options import LOG_FORMATS, Choice
from deltasql.cli.output import FORMATS

# The module and function of each command; a command is imported when it is used.
COMMANDS = {
    "checkpoint": "operate.maintain:checkpoint",
    "completion": "completion:completion",
    "config": "operate.config:config",
    "cutover": "migrate.authority:cutover",
    "diff": "history.history:diff",
    "docs": "docs:docs",
    "doctor": "operate.doctor:doctor",
    "expire": "operate.expire:expire",
    "export": "migrate.import_export:export",
    "files": "tables.files:files",
    "follow": "migrate.authority:follow",
    "head": "data.query:head",
    "history": "history.history:history",
    "import": "migrate.import_export:import_table",
    "init": "operate.init:init",
    "migrate": "operate.init:migrate",
    "mirror": "mirror.mirror:mirror",
    "optimize": "operate.maintain:optimize",
    "query": "data.query:query",
    "rebuild": "migrate.import_export:rebuild",
    "restore": "operate.maintain:restore",
    "rollback": "migrate.authority:rollback",
    "schema": "tables.schema:schema",
    "serve": "operate.serve:serve",
    "shell": "data.shell:shell",
    "sql": "data.sql:sql",
    "stats": "tables.stats:stats",
    "table": "tables.table:table",
    "ui": "operate.ui:ui",
    "undo": "operate.maintain:undo",
    "vacuum": "operate.maintain:vacuum",
    "verify": "mirror.verify:verify",
    "watch": "history.watch:watch",
}


@click.group(
    "deltasql",
    cls=LazyCommands,
    modules=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--uri", envvar="DELTASQL_URI", help="Use the catalog at this URI: deltasql://…")
@click.option("--catalog", help="Use the catalog with this name in the configuration.")
@click.option(
    "--format",
    "format_",
    type=Choice(FORMATS),
    default="table",
    show_default=True,
    help="Print results in this format.",
)
@click.option("--no-color", is_flag=True, help="Do not use colors on a terminal.")
@click.option(
    "--wide", is_flag=True, help="Print all columns in full, one below the other (format table)."
)
@click.option(
    "--no-pager", is_flag=True, help="Do not use a pager (PAGER) for long tables on a terminal."
)
@click.option(
    "-v",
    "--verbose",
    count=True,
    help="Print more to stderr: SQL statements and timings (-vv: everything).",
)
@click.option(
    "--log-format",
    type=Choice(LOG_FORMATS),
    default="text",
    show_default=True,
    help="Write log lines on stderr in this format.",
)
@click.version_option(__version__, prog_name="deltasql")
@click.pass_context
def main(
    ctx: click.Context,
    uri: str | None,
    catalog: str | None,
    format_: str,
    no_color: bool,
    wide: bool,
    no_pager: bool,
    verbose: int,
    log_format: str,
) -> None:
    """The Delta Lake transaction log, in a database you already run.

    The catalog is given by --uri, --catalog or DELTASQL_URI. If that URI names a table (?table=),
    it is the default of TABLE. Results go to stdout, messages to stderr. Exit codes: 0 success, 1 a
    check found a problem or a prompt was declined, 2 wrong usage, 3 the command failed, 130
    interrupted by Ctrl-C.

    \b
    Example:
      $ deltasql --uri deltasql://sqlite/meta.db mirror status
      table  target  state   version  published version  pending  lag…
      sales  table   ACTIVE        0                  0        0    0…
    """
    is_given = ctx.get_parameter_source("uri") is click.core.ParameterSource.COMMANDLINE
    if is_given and catalog:
        raise click.UsageError("--uri and --catalog cannot be used together.")
    given = Context(
        uri=catalog or uri,
        format=format_,
        color=not no_color,
        wide=wide,
        pager=not no_pager,
        verbose=verbose,
        log_format=log_format,
    )
    outer = ctx.obj
    if isinstance(outer, Context):  # the command runs in `deltasql shell`
        kept = {
            name: getattr(outer, name)
            for name, param in (("format", "format_"), ("log_format", "log_format"))
            if ctx.get_parameter_source(param) is click.core.ParameterSource.DEFAULT
        }
        kept |= {"color": outer.color and given.color, "verbose": max(outer.verbose, verbose)}
        kept |= {"wide": outer.wide or given.wide, "pager": outer.pager and given.pager}
        if not (catalog or is_given):
            kept |= {"uri": outer.uri, "open_catalog": outer.open_catalog}
        given = replace(given, **kept)
    ctx.obj = given
    configure_logging(ctx)


if __name__ == "__main__":
    main()
