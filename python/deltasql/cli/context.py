"""What every command knows: the catalog that was named, and how to print."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import click

from deltasql.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog import Catalog

EXIT_WRONG, EXIT_USAGE, EXIT_FAILED = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Context:
    """The common options."""

    uri: str | None
    format: str
    color: bool

    @property
    def output(self) -> Output:
        """Where results go."""
        return Output(self.format, color=self.color)

    def catalog_uri(self) -> str:
        """Return the catalog that was named, or say how to name one."""
        if self.uri is None:
            raise click.UsageError(
                "no catalog is named: give --uri deltasql://…, --catalog NAME, or set DELTASQL_URI."
            )
        return self.uri

    @contextmanager
    def open(self) -> Iterator[Catalog]:
        """Open the catalog for one command."""
        import deltasql  # late: `deltasql --help` needs none of it

        with deltasql.connect(self.catalog_uri()) as catalog:
            yield catalog


class Report(Protocol):
    """What a command found out."""

    def summary(self) -> str: ...

    def to_dict(self) -> dict[str, Any]: ...


def show_report(context: Context, report: Report) -> None:
    """Print a report: in words for people, whole for programs."""
    if context.format == "table":
        click.echo(report.summary())
    else:
        context.output.record(report.to_dict())


def talk(text: str) -> None:
    """Say something that is not data."""
    click.echo(text, err=True)
