"""The common options of all commands: which catalog to open, and how to print."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol

import click

from deltasql.cli.output import FORMATS, Output, say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deltasql.api.catalog.catalog import Catalog

LOG_FORMATS = ("text", "json")
VERBOSE = "deltasql.cli.verbose"  # a key of `ctx.meta`, which nested click contexts share
_SHORT = {"--verbose": ("-v",)}
EXIT_WRONG, EXIT_USAGE, EXIT_FAILED, EXIT_INTERRUPTED = 1, 2, 3, 130


@dataclass(frozen=True, slots=True)
class Context:
    """The values of the common options."""

    uri: str | None
    format: str
    color: bool
    verbose: int = 0
    log_format: str = "text"
    held: Catalog | None = None
    """The catalog that `deltasql shell` keeps open for all its commands."""

    @property
    def output(self) -> Output:
        """The output that prints results in the chosen format."""
        return Output(self.format, color=self.color)

    def catalog_uri(self) -> str:
        """Return the URI of the catalog, or raise a usage error if none is given."""
        if self.uri is None:
            raise click.UsageError(
                "No catalog is given: use --uri deltasql://…, --catalog NAME, or set DELTASQL_URI."
            )
        return self.uri

    @contextmanager
    def open(self, *, create: bool = False) -> Iterator[Catalog]:
        """Open the catalog for one command. It must exist, unless the command may create it."""
        with self.open_at(None, create=create) as (catalog, _):
            yield catalog

    @contextmanager
    def open_at(
        self, uri: str | None, *, create: bool = False
    ) -> Iterator[tuple[Catalog, str | None]]:
        """Open the catalog at `uri`, or else that of the options; yield it and the URI's table."""
        if uri is None and self.held is not None:
            yield self.held, None
            return
        # Late import: `deltasql --help` must start fast.
        from deltasql.api.catalog.connect import connect, open_existing
        from deltasql.uri import is_deltasql_uri, parse_uri

        place = uri or self.catalog_uri()
        table = parse_uri(place).table_name if is_deltasql_uri(place) else None
        with connect(place) if create else open_existing(place) as catalog:
            yield catalog, table

    @contextmanager
    def open_table(self, table: str) -> Iterator[tuple[Catalog, str]]:
        """Open the catalog of a table that is given by its name or by a URI."""
        from deltasql.uri import is_deltasql_uri, parse_uri

        if not is_deltasql_uri(table):
            with self.open() as catalog:
                yield catalog, table
            return
        uri = parse_uri(table)
        if uri.table_name is None:
            raise click.UsageError(
                f"{uri} does not name a table: add ?table=NAME, or /NAME for PostgreSQL."
            )
        with self.open_at(table) as (catalog, _):
            yield catalog, uri.table_name

    @contextmanager
    def open_tables(self, table: str | None) -> Iterator[tuple[Catalog, str | None]]:
        """Open the catalog of one table as `open_table` does, or the catalog for all tables."""
        if table is None:
            with self.open() as catalog:
                yield catalog, None
        else:
            with self.open_table(table) as found:
                yield found


class Choice(click.Choice[str]):
    """A choice whose error suggests the nearest value."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        told = super().get_invalid_choice_message(value, ctx)
        return told + nearest(str(value), map(str, self.choices))


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
            "common_verbose": {"verbose": value},
            "common_log_format": {"log_format": value},
        }
        ctx.obj = replace(ctx.obj, **changes.get(param.name or "", {"uri": value, "held": None}))
        if param.name in ("common_verbose", "common_log_format"):
            tell_more(ctx)

    options: dict[str, dict[str, Any]] = {
        "--uri": {},
        "--catalog": {},
        "--format": {"type": Choice(FORMATS)},
        "--no-color": {"is_flag": True},
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


def tell_more(ctx: click.Context) -> None:
    """Set up logging; called again if the options are given after the command."""
    from deltasql.cli.logs import set_up_logging

    ctx.meta[VERBOSE] = ctx.obj.verbose
    set_up_logging(ctx.obj.verbose, ctx.obj.log_format)


class Report(Protocol):
    """A result that has a summary for people and fields for programs."""

    def summary(self) -> str: ...

    def to_dict(self) -> dict[str, Any]: ...


def show_report(context: Context, report: Report) -> None:
    """Print a report: a summary in the table format, all fields in other formats."""
    if context.format == "table":
        say(report.summary())
    else:
        context.output.record(report.to_dict())


def talk(text: str) -> None:
    """Print a message to stderr."""
    say(text, err=True)


def make_sure(question: str, *, yes: bool) -> None:
    """Ask for confirmation before an action that is hard to revert, unless `yes` is set."""
    if not yes:
        click.confirm(question, abort=True, err=True)


def fail_unless(ok: bool) -> None:
    """Exit with code 1 if a check found a problem."""
    if not ok:
        raise click.exceptions.Exit(EXIT_WRONG)
