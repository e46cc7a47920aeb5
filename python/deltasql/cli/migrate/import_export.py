"""`deltasql import`, `rebuild` and `export`: load and write Delta tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.context import Context, fail_unless
from deltasql.cli.operate.spark import session_for
from deltasql.cli.options import (
    dry_run_option,
    namespace_option,
    nested_location_option,
    spark_option,
)
from deltasql.cli.output import confirm, message
from deltasql.cli.progress import progress

if TYPE_CHECKING:
    from deltasql.migrate.importing.report import ImportSummary

IMPORTED = (
    *("table", "state", "first_version", "last_version", "commits", "live_files", "live_bytes"),
    *("source", "warnings"),
)
REBUILT = ("name", "state", "first_version", "last_version", "loaded", "location", "notes")


@click.command(name="import")
@click.argument("source")
@click.argument("uri", required=False)
@click.option(
    "--name", help="Give the table this name in the catalog. Default: the name of its folder."
)
@namespace_option
@click.option("-r", "--recursive", is_flag=True, help="Import every table below SOURCE.")
@dry_run_option("Read and check everything without changing anything.")
@click.option(
    "--since",
    type=click.IntRange(0),
    help="Import the state at this version and the history from there on.",
)
@click.option("--up-to-version", type=click.IntRange(0), help="Stop after this version.")
@click.option(
    "--batch-size", type=click.IntRange(1), help="Load this many actions per SQL transaction."
)
@spark_option("Read the log with Spark executors.")
@click.option("--no-verify", is_flag=True, help="Do not compare the result with the log.")
@click.option(
    "--force",
    is_flag=True,
    help="Replace a table of the same name, import even if data files are missing, and import a "
    "log that another catalog owns, if that catalog is lost.",
)
@nested_location_option
@click.option("--yes", is_flag=True, help="Replace an existing table without asking.")
@click.pass_obj
def import_table(
    context: Context,
    source: str,
    uri: str | None,
    name: str | None,
    namespace: str | None,
    recursive: bool,
    dry_run: bool,
    since: int | None,
    up_to_version: int | None,
    batch_size: int | None,
    engine: str | None,
    no_verify: bool,
    force: bool,
    allow_nested_location: bool,
    yes: bool,
) -> None:
    """Import the Delta table at SOURCE into a catalog.

    The data files stay in place.

    SOURCE is a folder or a location such as s3://bucket/table. URI is a catalog or a table in it;
    the default is the catalog of --uri. Run the command again to load newer commits, or after a
    crash. The exit code is 1 if the result differs from the log, if a dry run found missing data
    files, or if some of several tables could not be imported.

    \b
    Example:
      $ deltasql import /data/lake/sales deltasql://sqlite/meta.db
      sales: imported
        versions 0 to 0, 1 file of 486 B, from /data/lake/sales
        1 commit with 1 file in 0.1 s
        verified: 1 commit, and the state at version 0
    """
    import deltasql

    if recursive and (name is not None or since is not None or up_to_version is not None):
        raise click.UsageError("--name, --since and --up-to-version are for one table at a time.")
    if force and not dry_run:
        confirm(
            "Replace a table of the same name, accept missing data files, and take over the log?",
            yes=yes,
        )
    # Use the catalog that `deltasql shell` has open: its lock may block a second connection.
    open_catalog = context.open_catalog if uri is None else None
    place = "" if open_catalog is not None else uri or context.catalog_uri()
    with session_for(engine), progress(color=context.color) as on_progress:
        options: dict[str, Any] = {
            "namespace": namespace,
            "force": force,
            "dry_run": dry_run,
            "batch_size": batch_size,
            "verify": not no_verify,
            "engine": engine,
            "allow_nested_location": allow_nested_location,
            "on_progress": on_progress,
        }
        summary, report = None, None
        if recursive and open_catalog is not None:
            summary = open_catalog.import_tables(source, **options)
        elif recursive:
            summary = deltasql.import_tables(source, place, **options)
        else:
            options |= {"name": name, "since": since, "up_to_version": up_to_version}
            if open_catalog is not None:
                report = open_catalog.import_table(source, **options)
            else:
                report = deltasql.import_table(source, place, **options)
    # Print the summary after the progress bar is removed, because both would share a line.
    if summary is not None:
        _show_summary(context, summary)
        fail_unless(summary.ok)
    if report is not None:
        context.output.report(report)
        fail_unless(report.ok)


@click.command()
@click.argument("roots", nargs=-1, required=True)
@dry_run_option("Show what would be loaded without loading it.")
@click.pass_obj
def rebuild(context: Context, roots: tuple[str, ...], dry_run: bool) -> None:
    """Rebuild a lost catalog from the Delta tables below ROOTS.

    The history of the tables is kept.

    The command can be repeated: existing tables are brought up to date. The exit code is 1 if no
    table is found, or if a table cannot be loaded.

    \b
    Example:
      $ deltasql --uri deltasql://sqlite/new.db rebuild /data/lake
      name   state   first version  last version  loaded  location           …
      sales  loaded              0             0       1  /data/lake/sales
    """
    import deltasql

    place = context.open_catalog or context.catalog_uri()
    with progress(color=context.color) as on_progress:
        report = deltasql.rebuild(place, *roots, dry_run=dry_run, on_progress=on_progress)
    context.output.rows([each.to_dict() for each in report.tables], REBUILT)
    if not report.tables:
        message(f"no Delta table was found below {' or '.join(roots)}")
    if not report.ok:
        message("some tables could not be loaded")
    fail_unless(bool(report.tables) and report.ok)


@click.command()
@click.argument("table")
@click.argument("directory")
@click.option(
    "--version", type=click.IntRange(0), help="Export up to this version. Default: the latest."
)
@click.option(
    "--from-version",
    type=click.IntRange(0),
    help="Export from this version on. Default: the oldest.",
)
@click.option("--with-data", is_flag=True, help="Also copy the data files.")
@click.pass_obj
def export(
    context: Context,
    table: str,
    directory: str,
    version: int | None,
    from_version: int | None,
    with_data: bool,
) -> None:
    """Write TABLE (a name or a URI) to DIRECTORY as a new Delta table.

    Without --with-data, only a log is written; it refers to the existing data files.

    \b
    Example:
      $ deltasql export sales /data/copy/sales --with-data
      sales: versions 0 to 1 exported to /data/copy/sales (2 commits,…
    """
    with (
        context.open_table(table) as (catalog, name),
        progress(color=context.color) as on_progress,
    ):
        report = catalog.export_table(
            name,
            directory,
            version=version,
            from_version=from_version,
            with_data=with_data,
            on_progress=on_progress,
        )
    context.output.report(report)


def _show_summary(context: Context, summary: ImportSummary) -> None:
    """Print the results of a recursive import: a summary, or one row per table."""
    if context.format in ("table", "json", "yaml"):
        context.output.report(summary)
    else:
        context.output.rows([each.to_dict() for each in summary.tables], IMPORTED)
