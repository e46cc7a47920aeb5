"""Options that several commands have, and checks of their values."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from deltasql.cli.context import configure_logging
from deltasql.cli.output import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

LOG_FORMATS = ("text", "json")
_SHORT = {"--verbose": ("-v",)}

yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
namespace_option = click.option("--namespace", help="Put the table into this namespace.")
nested_location_option = click.option(
    "--allow-nested-location",
    is_flag=True,
    help="Allow a location that is inside another table's folder, or that contains one.",
)


def dry_run_option(
    help_text: str = "Show what would be done without doing it.",
) -> Callable[..., Any]:
    """Return the option `--dry-run`."""
    return click.option("--dry-run", is_flag=True, help=help_text)


def limit_option(default: int, noun: str, *, most: int | None = None) -> Callable[..., Any]:
    """Return the option `--limit`; `noun` says what is limited."""
    return click.option(
        "--limit",
        type=click.IntRange(1, most),
        default=default,
        show_default=True,
        help=f"Show at most this many {noun}.",
    )


def spark_option(help_text: str) -> Callable[..., Any]:
    """Return the option `--engine spark`."""
    return click.option("--engine", type=click.Choice(["spark"]), help=help_text)


columns_option = click.option(
    "--columns", metavar="COLUMN,…", help="Print only these columns of the result, in this order."
)


class Choice(click.Choice[str]):
    """A choice whose error suggests the nearest value."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        message = super().get_invalid_choice_message(value, ctx)
        return message + nearest(str(value), map(str, self.choices))


def nearest(wrong: str, right: Iterable[str]) -> str:
    """Return a hint with the most similar name, or an empty string.

    >>> nearest("vaccum", ["vacuum", "verify"])
    " Did you mean 'vacuum'?"
    >>> nearest("x", ["vacuum", "verify"])
    ''
    """
    found = get_close_matches(wrong, [*right], 1)
    return f" Did you mean {found[0]!r}?" if found else ""


def shared_options() -> list[click.Option]:
    """Return the common options in the form that is accepted after a command."""

    def take(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value in (None, False) or ctx.obj is None:
            return
        changes: dict[str, dict[str, Any]] = {
            "common_format": {"format": value},
            "common_no_color": {"color": False},
            "common_wide": {"wide": True},
            "common_no_pager": {"pager": False},
            "common_verbose": {"verbose": value},
            "common_log_format": {"log_format": value},
        }
        ctx.obj = replace(
            ctx.obj, **changes.get(param.name or "", {"uri": value, "open_catalog": None})
        )
        if param.name in ("common_verbose", "common_log_format"):
            configure_logging(ctx)

    options: dict[str, dict[str, Any]] = {
        "--uri": {},
        "--catalog": {},
        "--format": {"type": Choice(FORMATS)},
        "--no-color": {"is_flag": True},
        "--wide": {"is_flag": True},
        "--no-pager": {"is_flag": True},
        "--verbose": {"count": True},
        "--log-format": {"type": Choice(LOG_FORMATS)},
    }
    return [
        click.Option(
            # A separate parameter name: some commands have an argument called uri.
            [name, *_SHORT.get(name, ()), f"common_{name.strip('-').replace('-', '_')}"],
            callback=take,
            expose_value=False,
            hidden=True,
            **details,
        )
        for name, details in options.items()
    ]


def table_of_uri(argument: click.Argument) -> str | None:
    """Return the default of the argument TABLE: the table in the URI of the common options."""
    # Lazy import: `deltasql --help` must start fast.
    from deltasql.uri import is_deltasql_uri, parse_uri

    ctx = click.get_current_context()
    uri = None if ctx.obj is None else ctx.obj.uri
    table = parse_uri(uri).table_name if uri is not None and is_deltasql_uri(uri) else None
    if table is None and argument.required and not ctx.resilient_parsing:
        raise click.MissingParameter(ctx=ctx, param=argument)
    return table


def is_given(name: str) -> bool:
    """Return whether a parameter is on the command line, and not a default."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def require_known(name: str, known: Collection[str], problem: str) -> None:
    """Raise a usage error that suggests the nearest name if `name` is not one of `known`.

    >>> require_known("dya", ["id", "day"], "sales has no column")
    Traceback (most recent call last):
    click.exceptions.UsageError: sales has no column 'dya'. Did you mean 'day'?
    """
    if name not in known:
        raise click.UsageError(f"{problem} {name!r}.{nearest(name, known)}")


def comma_separated(text: str | None) -> list[str]:
    """Return the parts of a list such as `id, day`.

    >>> comma_separated("id, day"), comma_separated(None)
    (['id', 'day'], [])
    """
    return [each.strip() for each in (text or "").split(",") if each.strip()]


def key_and_value(text: str, what: str, form: str = "KEY=VALUE") -> tuple[str, str]:
    """Split `key=value`, or raise a usage error that shows the form.

    >>> key_and_value("day=2024-05-01", "a partition")
    ('day', '2024-05-01')
    """
    key, mark, value = text.partition("=")
    if not (key and mark):
        raise click.UsageError(f"{what} is written {form}, got {text!r}.")
    return key, value


def version_or_timestamp(text: str) -> int | datetime:
    """Return a version, or else a timestamp; without a zone, it is in UTC."""
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{text!r} is neither a version nor a timestamp such as 2024-05-01T12:00:00Z."
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
