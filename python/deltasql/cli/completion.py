"""Completion of tables and columns, and `deltasql completion`, which prints the shell scripts."""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from deltasql.cli.output import echo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.cli.context import Context

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_DELTASQL_COMPLETE"
_NAME = re.compile(r"\w+(?:\.\w+)?")  # a name that may be a table in SQL
_MOST = 1000  # a longer list of completions is not useful


class TableName(click.ParamType):  # type: ignore[type-arg]  # generic in some releases only
    """A parameter that is a table name; it is completed with the tables of the catalog."""

    name = "table"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        with suppress(Exception), _catalog(ctx) as catalog:  # a shell cannot show the error
            names = [table.full_name for table in catalog.tables()] if catalog else []
            return [CompletionItem(name) for name in names if name.startswith(incomplete)][:_MOST]
        return []


class ColumnNames(click.ParamType):  # type: ignore[type-arg]  # generic in some releases only
    """A list of columns, or a condition on one; completed with the columns of the table.

    In `query` and `sql`, these are the columns of the tables that the SQL contains.
    """

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        with suppress(Exception), _catalog(ctx) as catalog:
            # While the last option has no value yet, click leaves the arguments in `args`.
            given = [ctx.params.get(each) for each in ("table", "sql", "statement")]
            text = next(filter(None, [*given, *ctx.args]), None)
            if catalog is None or text is None:
                return []
            before, comma, word = incomplete.rpartition(",")
            end = "=" if param.metavar == "COLUMN=VALUE" else ""
            known = {table.full_name: table for table in catalog.tables()}
            tables = [text] if text in known else _NAME.findall(text)
            names = [
                name
                for table in dict.fromkeys(tables)
                if table in known
                for name in known[table].snapshot().schema.names
            ]
            found = [name for name in dict.fromkeys(names) if name.startswith(word)]
            return [CompletionItem(f"{before}{comma}{name}{end}") for name in found][:_MOST]
        return []


class Location(click.ParamType):  # type: ignore[type-arg]  # generic in some releases only
    """The location of a table; the shell completes it with the folders of this machine."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="dir")]


TABLE = TableName()
COLUMNS = ColumnNames()
LOCATION = Location()


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes commands, tables and columns.

    It also completes options and their values.

    For bash, put `eval "$(deltasql completion bash)"` into ~/.bashrc. For zsh, put the same line
    with `zsh` into ~/.zshrc, below the line `autoload -U compinit && compinit`. For fish, write the
    output to ~/.config/fish/completions/deltasql.fish.

    \b
    Example:
      $ deltasql completion zsh
      #compdef deltasql
      _deltasql_completion() {
          local -a completions
          local -a completions_with_descriptions
          local -a response
          (( ! $+commands[deltasql] )) && return 1
      …
    """
    found = get_completion_class(shell)
    if found is None:  # pragma: no cover - click supports all of SHELLS
        raise click.UsageError(f"no completion for {shell}")
    root = click.get_current_context().find_root().command
    script = found(root, {}, "deltasql", _VARIABLE).source()
    # click's script for fish would cut lists of columns and descriptions at their first comma.
    echo(script.replace('string split ","', 'string split --max 1 ","'))


@contextmanager
def _catalog(ctx: click.Context) -> Iterator[Catalog | None]:
    """Open the catalog that the typed part of the command line selects, if it selects one."""
    context: Context | None = ctx.obj
    if context is not None:  # `deltasql shell` has opened the catalog
        with context.open() as catalog:
            yield catalog
        return
    chosen: dict[str, str | None] = {}
    at: click.Context | None = ctx
    while at is not None:
        for key in ("uri", "catalog"):
            chosen[key] = chosen.get(key) or at.params.get(key)
        at = at.parent
    place = chosen["catalog"] or chosen["uri"]
    if place is None:
        yield None
        return
    from deltasql.api.catalog.connect import open_existing

    with open_existing(place, mirror={"mode": "off"}) as catalog:
        yield catalog
