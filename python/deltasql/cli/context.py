"""What every command uses: the catalog, the output format, logging and exit codes."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from deltasql.cli.output import Output, message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.catalog import Catalog

VERBOSE = "deltasql.cli.verbose"  # a key of `ctx.meta`, which nested click contexts share
_LOG_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
EXIT_WRONG, EXIT_USAGE, EXIT_FAILED, EXIT_INTERRUPTED = 1, 2, 3, 130
_handler: logging.Handler | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """The values of the common options."""

    uri: str | None
    format: str
    color: bool
    wide: bool = False
    pager: bool = True
    verbose: int = 0
    log_format: str = "text"
    open_catalog: Catalog | None = None
    """The catalog that `deltasql shell` keeps open for all its commands."""

    @property
    def output(self) -> Output:
        """The output that prints results in the chosen format."""
        return Output(self.format, color=self.color, wide=self.wide, pager=self.pager)

    def catalog_uri(self) -> str:
        """Return the URI of the catalog, or raise a usage error if none is given."""
        if self.uri:
            return self.uri
        near = get_close_matches("DELTASQL_URI", set(os.environ) - {"DELTASQL_URI"}, 1, 0.85)
        problem = "The URI of the catalog is empty" if self.uri == "" else "No catalog is given"
        hint = f" {near[0]} is set, but it is not a variable of deltasql." if near else ""
        raise click.UsageError(
            f"{problem}: use --uri deltasql://…, --catalog NAME, or set DELTASQL_URI.{hint}"
        )

    @contextmanager
    def open(self, *, create: bool = False) -> Iterator[Catalog]:
        """Open the catalog for one command. It must exist, unless the command may create it."""
        with self.open_at(None, create=create) as (catalog, _):
            yield catalog

    @contextmanager
    def open_at(
        self, uri: str | None, *, create: bool = False
    ) -> Iterator[tuple[Catalog, str | None]]:
        """Open the catalog at `uri`, or the catalog that the common options select.

        Yields the catalog, and the name of the table that `uri` contains.
        """
        if uri is None and self.open_catalog is not None:
            try:
                yield self.open_catalog, None
            finally:
                warn_of_unpublished(self.open_catalog)
            return
        # Lazy import: `deltasql --help` must start fast.
        from deltasql.api.catalog.connect import connect, open_existing
        from deltasql.uri import is_deltasql_uri, parse_uri

        place = uri or self.catalog_uri()
        table = parse_uri(place).table_name if is_deltasql_uri(place) else None
        opened = connect(place) if create else open_existing(place)
        try:
            with opened as catalog:
                yield catalog, table
        finally:
            warn_of_unpublished(opened)

    @contextmanager
    def open_table(self, table: str) -> Iterator[tuple[Catalog, str]]:
        """Open the catalog of a table, which is given as a name or as a URI."""
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


def warn_of_unpublished(catalog: Catalog) -> None:
    """Warn about commits that could not be published, for example to a quarantined table."""
    unpublished = catalog.mirror.publisher.unpublished
    while unpublished:
        name, version = unpublished.popitem()
        message(
            f"Warning: version {version} of {name} is in the database, but it is not published; "
            f"see `deltasql mirror status {name}`"
        )


def fail_unless(ok: bool) -> None:
    """Exit with code 1 if a check found a problem."""
    if not ok:
        raise click.exceptions.Exit(EXIT_WRONG)


class TextFormatter(logging.Formatter):
    """Formats a record as one line and its traceback; secrets are redacted in both."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        # Lazy import: most commands log nothing.
        from deltasql.exceptions.redaction import redact

        return redact(super().format(record))


def configure_logging(ctx: click.Context) -> None:
    """Log to stderr according to the options. If options follow the command, this is called again.

    `--verbose` sets the level of deltasql's loggers only.
    """
    global _handler
    context: Context = ctx.obj
    ctx.meta[VERBOSE] = context.verbose
    root = logging.getLogger()
    if any(each is not _handler for each in root.handlers):
        return  # the program that calls us has configured logging
    if _handler is None:
        _handler = logging.StreamHandler()
        root.addHandler(_handler)
    _handler.setFormatter(_formatter(context.log_format))
    logging.getLogger("deltasql").setLevel(_LOG_LEVELS[min(context.verbose, 2)])
    # The store logs its statements as debug events.
    statements = logging.DEBUG if context.verbose else logging.NOTSET
    logging.getLogger("deltasql.store").setLevel(statements)
    # The pool logs a warning for every attempt, and the final error contains the same message.
    logging.getLogger("psycopg.pool").setLevel(
        logging.WARNING if context.verbose else logging.ERROR
    )


def _formatter(log_format: str) -> logging.Formatter:
    if log_format == "text":
        return TextFormatter()
    from deltasql.telemetry import JsonFormatter

    return JsonFormatter()
