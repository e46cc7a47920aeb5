"""Completion of table names, and `deltasql completion`, which prints the shell scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from deltasql.cli.output import echo

if TYPE_CHECKING:
    from deltasql.cli.context import Context

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_DELTASQL_COMPLETE"
_MOST = 1000  # a longer list of completions is not useful


class TableName(click.ParamType):  # type: ignore[type-arg]  # generic in some releases only
    """A parameter that is a table name; it is completed with the tables of the catalog."""

    name = "table"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            names = _known_tables(ctx)
        except Exception:  # the shell cannot show an error during completion
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)][:_MOST]


TABLE = TableName()


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes commands, tables and columns.

    For bash, put `eval "$(deltasql completion bash)"` into ~/.bashrc. For zsh, put the same line
    with `zsh` into ~/.zshrc. For fish, write the output to
    ~/.config/fish/completions/deltasql.fish.

    \b
    Example:
      deltasql completion zsh
    """
    found = get_completion_class(shell)
    if found is None:  # pragma: no cover - click supports all of SHELLS
        raise click.UsageError(f"no completion for {shell}")
    root = click.get_current_context().find_root().command
    echo(found(root, {}, "deltasql", _VARIABLE).source())


def _known_tables(ctx: click.Context) -> list[str]:
    """List the tables of the catalog that the command line, as typed so far, selects."""
    context: Context | None = ctx.obj
    if context is not None:  # `deltasql shell` has opened the catalog
        with context.open() as catalog:
            return [table.full_name for table in catalog.tables()]
    chosen: dict[str, str | None] = {}
    at: click.Context | None = ctx
    while at is not None:
        for key in ("uri", "catalog"):
            chosen[key] = chosen.get(key) or at.params.get(key)
        at = at.parent
    place = chosen["catalog"] or chosen["uri"]
    if place is None:
        return []
    from deltasql.api.catalog.connect import open_existing

    with open_existing(place, mirror={"mode": "off"}) as catalog:
        return [table.full_name for table in catalog.tables()]
