"""`deltasql follow`: keep a read-only index of a table that another program writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deltasql.cli.context import Context, show_report, talk
from deltasql.cli.progress import of_import, progress
from deltasql.cli.signals import stopping

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog


@click.command()
@click.argument("source")
@click.argument("uri", required=False)
@click.option("--name", help="The table's name in the catalog. Default: the name of its folder.")
@click.option("--namespace", help="The namespace of the table.")
@click.option(
    "--watch",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Keep refreshing every SECONDS.",
)
@click.pass_obj
def follow(
    context: Context,
    source: str,
    uri: str | None,
    name: str | None,
    namespace: str | None,
    watch: float | None,
) -> None:
    """Register a read-only index of the Delta table at SOURCE, or refresh it.

    The table can be read through the catalog URI, but not written; its log does not change. Run the
    command again to refresh, or use --watch to refresh until SIGTERM or Ctrl-C.

    \b
    Example:
      deltasql follow /data/lake/sales deltasql://sqlite/meta.db
    """
    from deltasql.uri import split_table_name

    with context.open_at(uri, create=True) as (catalog, table):
        if table is not None and (name or namespace):
            raise click.UsageError("the URI names the table: leave --name and --namespace out.")
        chosen = (namespace, name) if table is None else split_table_name(table)
        if watch is None:
            _refresh(context, catalog, source, chosen)
        else:
            _keep_following(context, catalog, source, chosen, watch)


def _refresh(
    context: Context, catalog: Catalog, source: str, chosen: tuple[str | None, str | None]
) -> None:
    namespace, name = chosen
    with progress(of_import, color=context.color) as on_progress:
        report = catalog.follow(source, name=name, namespace=namespace, on_progress=on_progress)
    show_report(context, report)


def _look_again(
    context: Context, catalog: Catalog, source: str, chosen: tuple[str | None, str | None]
) -> None:
    namespace, name = chosen
    report = catalog.follow(source, name=name, namespace=namespace)
    if report.state != "up to date":
        show_report(context, report)


def _keep_following(
    context: Context,
    catalog: Catalog,
    source: str,
    chosen: tuple[str | None, str | None],
    seconds: float,
) -> None:
    """Refresh every `seconds` until stopped; retry while the database or storage is unavailable."""
    from deltasql.exceptions import StoreBusyError, StoreUnavailableError

    with stopping() as stop:
        talk("following; stop with SIGTERM or Ctrl-C")
        is_shown = False
        while not stop.is_set():
            try:
                # Print the first report always, later ones only if something changed.
                if is_shown:
                    _look_again(context, catalog, source, chosen)
                else:
                    _refresh(context, catalog, source, chosen)
                    is_shown = True
            except (StoreBusyError, StoreUnavailableError, OSError) as error:
                talk(f"not reached, trying again: {str(error).splitlines()[0]}")
            stop.wait(seconds)
    talk("stopped")
