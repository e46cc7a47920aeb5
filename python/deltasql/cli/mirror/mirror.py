"""`deltasql mirror`: status, publishing, the reconciler, repair, and targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deltasql.cli.commands import Commands
from deltasql.cli.context import Context, fail_unless
from deltasql.cli.options import dry_run_option, require_known, yes_option
from deltasql.cli.output import confirm, echo, message
from deltasql.cli.progress import busy, progress
from deltasql.cli.services import metrics_served, opentelemetry_option, stopping
from deltasql.model.counts import many
from deltasql.model.progress import Meter

if TYPE_CHECKING:
    import threading

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.mirror.publish.reconcile import PublishedBatch

STATUS = (
    "table",
    "target",
    "state",
    "version",
    "published_version",
    "pending",
    "lag_s",
    "damage",
    "last_error",
)
TARGETS = ("name", "kind", "location", "state", "published_version")


@click.group(cls=Commands)
def mirror() -> None:
    """Publish commits to `_delta_log` and show the publishing status.

    \b
    Example:
      $ deltasql mirror status
      table  target  state   version  published version  pending  lag…
      sales  table   ACTIVE        1                  1        0    0…
    """


@mirror.command()
@click.argument("table", required=False)
@click.option(
    "--check", is_flag=True, help="Exit with 1 if a target is lagging, quarantined or damaged."
)
@click.option("--fast", is_flag=True, help="Query only the database; do not check files.")
@click.pass_obj
def status(context: Context, table: str | None, check: bool, fast: bool) -> None:
    """Show the publishing status of each table, and damaged files.

    \b
    Example:
      $ deltasql mirror status sales --check
      table  target  state   version  published version  pending  lag…
      sales  table   ACTIVE        1                  1        0    0…
    """
    with context.open_tables(table) as (catalog, name):
        found = catalog.mirror.status(name, files=not fast)
    rows = [each.to_dict() for each in found]
    if context.output.is_for_people and not context.wide:  # one line for each table
        for row in rows:
            row["last_error"] = (row["last_error"] or "").partition("\n")[0]
    context.output.rows(rows, STATUS)
    fail_unless(not check or not any(each.is_unhealthy for each in found))


@mirror.command()
@click.option("--once", is_flag=True, help="Publish missing versions once, then stop.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve Prometheus metrics at http://HOST:PORT/metrics; 0 chooses a free port.",
)
@click.option(
    "--metrics-host",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="Serve the metrics on this address.",
)
@opentelemetry_option
@click.pass_obj
def run(
    context: Context,
    once: bool,
    metrics_port: int | None,
    metrics_host: str,
) -> None:
    """Publish missing versions continuously, until SIGTERM or Ctrl-C.

    Also compacts small files of tables with the property delta.autoOptimize.autoCompact. Several
    reconcilers can run on one catalog at the same time.

    \b
    Example:
      $ deltasql mirror run --once
      reconciling
      stopped; 0 versions published
    """
    with (
        metrics_served(metrics_host, metrics_port),
        context.open() as catalog,
        stopping() as stop,
    ):
        message("reconciling" if once else "reconciling; stop with SIGTERM or Ctrl-C")
        published = _run_once(context, catalog, stop) if once else _run(context, catalog, stop)
    message(f"stopped; {many(published, 'version')} published")


@mirror.command()
@click.argument("table", required=False)
@click.pass_obj
def publish(context: Context, table: str | None) -> None:
    """Publish missing versions of TABLE, or of all tables, now.

    \b
    Example:
      $ deltasql mirror publish sales
      0 versions published
    """
    with (
        context.open_tables(table) as (catalog, name),
        progress(first="publishing", color=context.color) as on_progress,
    ):
        published = catalog.mirror.publish(name, on_progress=on_progress)
    message(f"{many(published, 'version')} published")


@mirror.command()
@click.argument("table")
@click.pass_obj
def checkpoint(context: Context, table: str) -> None:
    """Write a checkpoint of the latest published version.

    \b
    Example:
      $ deltasql mirror checkpoint sales
      key               value
      version               1
      size                  4
      file size         15.4 KiB
      num_of_add_files      2
    """
    with (
        context.open_table(table) as (catalog, name),
        busy("writing a checkpoint", color=context.color),
    ):
        info = catalog.mirror.checkpoint(name)
    context.output.record(info.to_dict())


@mirror.command()
@click.argument("table")
@click.option(
    "--force",
    is_flag=True,
    help="Replace files that differ, and move the old files to _delta_log/_aside.",
)
@dry_run_option("Show the differences and what would be written.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation before replacing files.")
@click.pass_obj
def repair(context: Context, table: str, force: bool, dry_run: bool, yes: bool) -> None:
    """Rewrite missing or damaged files of the published log.

    The exit code is 1 if differences remain.

    \b
    Example:
      $ deltasql mirror repair sales
      sales: nothing to repair
        sales: ok (version 1 in SQL, 1 in the log; 2 commits, 1 state…
          1 commit written by another program, with the same content as in SQL
    """
    with context.open_table(table) as (catalog, name):
        if force and not dry_run:
            _confirm(catalog, name, f"Replace the files that differ in the log of {name}?", yes=yes)
        with progress(color=context.color) as on_progress:
            report = catalog.mirror.repair(
                name, force=force, dry_run=dry_run, on_progress=on_progress
            )
    context.output.report(report)
    fail_unless(report.ok or dry_run)


@mirror.command()
@click.argument("table")
@dry_run_option("List the commits without loading them.")
@yes_option
@click.pass_obj
def adopt(context: Context, table: str, dry_run: bool, yes: bool) -> None:
    """Load commits of another writer from `_delta_log`.

    \b
    Example:
      $ deltasql mirror adopt sales --yes
      sales: 0 foreign commits
    """
    with context.open_table(table) as (catalog, name):
        if dry_run:
            with busy(f"reading the log of {name}", color=context.color):
                # `adopt` has no dry run, so list its commits with the dry run of `reject`, which
                # acts on the same ones.
                found = catalog.mirror.reject(name, dry_run=True)
            if context.format == "table":
                echo(f"{found.table}: {many(len(found.rejected), 'foreign commit')}")
                for version in found.rejected:
                    echo(f"  version {version} of the log would be adopted")
            else:
                context.output.record({"table": found.table, "foreign_versions": found.rejected})
            return
        _confirm(catalog, name, f"Load the foreign commits of {name} into the database?", yes=yes)
        with busy(f"adopting commits of {name}", color=context.color):
            report = catalog.mirror.adopt(name)
    context.output.report(report)


@mirror.command()
@click.argument("table")
@dry_run_option("List the commits without moving them.")
@yes_option
@click.pass_obj
def reject(context: Context, table: str, dry_run: bool, yes: bool) -> None:
    """Move commits of another writer out of `_delta_log`.

    Publishing is resumed afterwards.

    \b
    Example:
      $ deltasql mirror reject sales --yes
      sales: 0 foreign commits
    """
    with context.open_table(table) as (catalog, name):
        if not dry_run:
            _confirm(catalog, name, f"Move the foreign commits of {name} out of its log?", yes=yes)
        with busy(f"rejecting commits of {name}", color=context.color):
            report = catalog.mirror.reject(name, dry_run=dry_run)
    context.output.report(report)


@mirror.command()
@click.argument("path", type=click.Path(dir_okay=False))
@click.pass_obj
def duckdb(context: Context, path: str) -> None:
    """Create a DuckDB file with a view for every table.

    Each commit updates the views.

    \b
    Example:
      $ deltasql mirror duckdb catalog.duckdb
      catalog.duckdb is now updated after each commit
    """
    import deltasql

    with context.open() as catalog:
        deltasql.mirror_duckdb(catalog, path)
    message(f"{path} is now updated after each commit")


@mirror.group(cls=Commands)
def targets() -> None:
    """Manage the targets that a table is published to.

    \b
    Example:
      $ deltasql mirror targets list sales
      name   kind   location          state   published version
      table  delta  /data/lake/sales  ACTIVE                  1
    """


@targets.command(name="list")
@click.argument("table")
@click.pass_obj
def list_targets(context: Context, table: str) -> None:
    """List a table's targets, its own location first.

    \b
    Example:
      $ deltasql mirror targets list sales
      name   kind   location          state   published version
      table  delta  /data/lake/sales  ACTIVE                  1
    """
    with context.open_table(table) as (catalog, name):
        found = catalog.mirror.targets(name)
    rows = [{column: getattr(each, column) for column in TARGETS} for each in found]
    context.output.rows(rows, TARGETS)


@targets.command(name="add")
@click.argument("table")
@click.argument("name")
@click.argument("location")
@click.pass_obj
def add_target(context: Context, table: str, name: str, location: str) -> None:
    """Publish a table, with its data, to another location as well.

    \b
    Example:
      $ deltasql mirror targets add sales backup s3://backup/sales
      2 versions published
    """
    with context.open_table(table) as (catalog, full_name):
        catalog.mirror.add_target(full_name, name, location)
        with progress(first=f"publishing to {name}", color=context.color) as on_progress:
            published = catalog.mirror.publish(full_name, on_progress=on_progress)
    message(f"{many(published, 'version')} published")


@targets.command(name="remove")
@click.argument("table")
@click.argument("name")
@dry_run_option()
@yes_option
@click.pass_obj
def remove_target(context: Context, table: str, name: str, dry_run: bool, yes: bool) -> None:
    """Stop publishing a table to another location.

    The files there are not deleted.

    \b
    Example:
      $ deltasql mirror targets remove sales backup --yes
      sales is no longer published to s3://backup/sales; the files there stay
    """
    with context.open_table(table) as (catalog, full_name):
        known = {each.name: each.location for each in catalog.mirror.targets(full_name)}
        require_known(name, known, f"{full_name} has no target")
        place = known[name]
        if dry_run:
            message(f"would stop publishing {full_name} to {place}")
            return
        confirm(f"Stop publishing {full_name} to {place}?", yes=yes)
        catalog.mirror.remove_target(full_name, name)
    message(f"{full_name} is no longer published to {place}; the files there stay")


def _confirm(catalog: Catalog, name: str, question: str, *, yes: bool) -> None:
    """Ask for confirmation; raise first if the table does not exist."""
    catalog.table(name)
    confirm(question, yes=yes)


def _run(context: Context, catalog: Catalog, stop: threading.Event) -> int:
    with progress(color=context.color) as on_progress:
        return catalog.mirror.run(stop, on_progress=on_progress)


def _run_once(context: Context, catalog: Catalog, stop: threading.Event) -> int:
    missing = sum(each.pending for each in catalog.mirror.status(files=False))
    with progress(first="publishing", color=context.color) as on_progress:
        # Show one bar for all tables.
        meter, done = Meter("", on_progress), 0

        def count(batch: PublishedBatch) -> None:
            nonlocal done
            done += batch.published
            meter.report("publishing", "versions", done, max(missing, done))

        return catalog.mirror.run(stop, once=True, on_progress=count)
