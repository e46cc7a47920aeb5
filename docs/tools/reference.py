"""Generate the reference pages of errors, URIs, settings, metrics and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from pydantic import BaseModel

import deltasql.config
import deltasql.exceptions
import deltasql.uri
from deltasql.cli.main import main as cli
from deltasql.config import Config
from deltasql.config.problems import allowed_values
from deltasql.exceptions import TxnLogError
from deltasql.exceptions.documentation import error_facts
from deltasql.telemetry import METRICS
from deltasql.uri import PARAMETERS
from docs.tools.text import as_markdown, first_line, table

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_CODES = (
    ("0", "success"),
    ("1", "a check found a problem, or a prompt was declined"),
    ("2", "wrong usage: an option, an argument or a name that does not exist"),
    ("3", "the command failed; stderr says why and what to do"),
    ("130", "interrupted by Ctrl-C"),
)


def errors_page() -> str:
    """Return the page of all exceptions with their fields, meaning and remedy."""
    parts = ["# Errors", as_markdown(deltasql.exceptions.__doc__ or "")]
    parts.append(
        "Tracebacks and the command line name the command that prints the section of the error on "
        "this page, such as `deltasql docs TxnLogUriError`. `error.docs` contains it, too."
    )
    for name in deltasql.exceptions.__all__:
        cls = getattr(deltasql.exceptions, name)
        if not (isinstance(cls, type) and issubclass(cls, TxnLogError)):
            continue
        parts.append(f"## {name}\n\n" + "\n".join(error_facts(cls)))
    return "\n\n".join(parts)


def uri_page() -> str:
    """Return the page of the URI grammar and its parameters."""
    rows = [
        (f"`{each.name}`", each.doc, each.allowed, ", ".join(each.backends))
        for each in PARAMETERS.values()
    ]
    heads = ("parameter", "meaning", "allowed", "backends")
    return "\n\n".join(
        ["# URIs", as_markdown(deltasql.uri.__doc__ or ""), "## Parameters", table(heads, rows)],
    )


def config_page() -> str:
    """Return the page of all settings with their variable, default and range."""
    parts = ["# Configuration", as_markdown(deltasql.config.__doc__ or "")]
    defaults = Config()
    for name, found in Config.model_fields.items():
        section = found.annotation
        if not (isinstance(section, type) and issubclass(section, BaseModel)):
            parts.append(
                f"## {name}\n\n{found.description} Variable: `DELTASQL_{name.upper()}__…`."
            )
            continue
        rows = []
        for key, field in section.model_fields.items():
            default = getattr(getattr(defaults, name), key)
            shown = (
                "unset" if default in (None, {}) else f"`{str(default).replace('True', 'true')}`"
            )
            variable = f"`DELTASQL_{name.upper()}__{key.upper()}`"
            rows.append(
                (f"`{key}`", shown, allowed_values(field), str(field.description), variable)
            )
        heads = ("key", "default", "allowed", "meaning", "variable")
        parts.append(f"## {name}\n\n{first_line(section)}\n\n{table(heads, rows)}")
    return "\n\n".join(parts)


def metrics_page() -> str:
    """Return the page of all metrics with their kind and labels."""
    rows = [
        (f"`{each.name}`", each.kind, ", ".join(map("`{}`".format, each.labels)), each.doc)
        for each in METRICS.values()
    ]
    intro = (
        "`deltasql.telemetry.enable_prometheus()` and `enable_opentelemetry()` publish these "
        "metrics. deltasql measures nothing before one of the two is called. "
        "[The guide](../guides/observability.md) has a dashboard and alerts for these metrics."
    )
    return f"# Metrics\n\n{intro}\n\n{table(('metric', 'kind', 'labels', 'meaning'), rows)}"


def cli_page() -> str:
    """Return the page of all commands with their help texts."""
    intro = (
        "Every command takes its catalog from `--uri`, `--catalog` (a name in the configuration) "
        "or `DELTASQL_URI`. The options of `deltasql` itself, such as `--uri`, `--format` and "
        "`--wide`, may also be placed after the command. Results go to stdout, messages to "
        "stderr.\n\n"
        + table(("exit code", "meaning"), EXIT_CODES)
        + "\n\n[The guide](../guides/cli.md) introduces the commands."
    )
    parts = ["# Command line", intro]
    for path, command in commands(("deltasql",), cli):
        context = click.Context(
            command,
            info_name=" ".join(path),
            terminal_width=80,
            help_option_names=["-h", "--help"],
        )
        parts.append(f"## {' '.join(path)}\n\n```text\n{command.get_help(context)}\n```")
    return "\n\n".join(parts)


def commands(
    path: tuple[str, ...], command: click.Command
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield a command and all its subcommands, each with its full name."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in sorted(command.list_commands(context)):
            each = command.get_command(context, name)
            assert each is not None, name
            yield from commands((*path, name), each)
