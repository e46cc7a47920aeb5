"""`deltasql watch`: show new commits and the mirror lag until it is stopped."""

from __future__ import annotations

import json
import sys
from collections import deque
from typing import TYPE_CHECKING

import click

from deltasql.cli.history.history import commit_rows, show_commits
from deltasql.cli.options import limit_option
from deltasql.cli.output import echo, message, visible
from deltasql.cli.services import stopping
from deltasql.model.counts import many

if TYPE_CHECKING:
    from collections.abc import Iterable
    from threading import Event

    from rich.console import RenderableType

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.inspect.history import RecentCommit
    from deltasql.cli.context import Context
    from deltasql.mirror.publish.status import MirrorStatus

COLUMNS = ("when", "table", "version", "operation", "who", "rows", "files", "size")
_SHOWN = 20


@click.command()
@click.option("--once", is_flag=True, help="Show the latest commits, then stop.")
@click.option(
    "--every",
    type=click.FloatRange(0.05),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Query the catalog at this interval.",
)
@limit_option(_SHOWN, "earlier commits", most=1000)
@click.pass_obj
def watch(context: Context, once: bool, every: float, limit: int) -> None:
    """Watch commits and the mirror lag of all tables, until Ctrl-C.

    If stdout is not a terminal, every commit is printed as one line of JSON.

    \b
    Example:
      $ deltasql watch --once
      when                              table  version  operation  who       …
      2026-11-19T04:32:02.509000+00:00  sales        1  WRITE      deltasql  …
      2026-11-19T04:32:02.380000+00:00  sales        0  WRITE      delta-rs:p…
    """
    if once:
        with context.open() as catalog:
            latest = [(each.table, each) for each in catalog.inspect.recent(limit=limit)]
            rows = commit_rows(context, catalog, latest)
        show_commits(context, rows, COLUMNS)
        return
    with context.open() as catalog, stopping() as stop:
        if sys.stdout.isatty():
            _live(context, catalog, stop, every, limit)
        else:
            _lines(catalog, stop, every)
    message("stopped")


def _lines(catalog: Catalog, stop: Event, every: float) -> None:
    """Print every new commit as one line of JSON and flush it."""
    watching = catalog.inspect.watch()
    message("watching; stop with SIGTERM or Ctrl-C")
    while not stop.is_set():
        for commit in watching.poll():
            echo(json.dumps(commit.to_dict()))
        sys.stdout.flush()
        stop.wait(every)


def _live(context: Context, catalog: Catalog, stop: Event, every: float, limit: int) -> None:
    from rich.console import Console
    from rich.live import Live

    watching = catalog.inspect.watch()
    latest = deque(catalog.inspect.recent(limit=limit), limit)
    console = Console(no_color=not context.color, highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        while not stop.is_set():
            for commit in watching.poll():
                latest.appendleft(commit)
            live.update(_screen(latest, catalog.mirror.status(files=False)), refresh=True)
            stop.wait(every)


def _screen(commits: Iterable[RecentCommit], mirror: Iterable[MirrorStatus]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("time", "table", "version", "operation", "tables"):
        shown.add_column(title, justify="right" if title in ("version", "tables") else "left")
    for each in commits:
        cells = [f"{each.committed_at:%H:%M:%S}", each.table, str(each.version)]
        cells += [each.operation or "", str(each.group_size)]
        # Use Text, because rich would read a name in brackets as markup.
        shown.add_row(*(Text(visible(cell)) for cell in cells))
    return Group(shown, Text(), Text(visible(lag_text(mirror))))


def lag_text(mirror: Iterable[MirrorStatus]) -> str:
    """Return one line with the unpublished versions and the largest lag of the mirror."""
    found = [each for each in mirror if each.pending or each.is_unhealthy]
    if not found:
        return "mirror: everything is published"
    worst = max(found, key=lambda each: each.lag_s)
    waiting = sum(each.pending for each in found)
    failed = sum(each.state in ("FAILED", "QUARANTINED") for each in found)
    failing = f", failing: {many(failed, 'target')}" if failed else ""
    longest = f"{worst.table} for {worst.lag_s:,.1f} s"
    return f"mirror: {many(waiting, 'version')} to publish{failing}; {longest}"
