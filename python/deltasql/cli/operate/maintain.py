"""Maintenance commands for one table, such as `deltasql optimize`, `vacuum` and `restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.operate.spark import session_for
from deltasql.cli.options import (
    comma_separated,
    dry_run_option,
    is_given,
    key_and_value,
    require_known,
    spark_option,
    version_or_timestamp,
    yes_option,
)
from deltasql.cli.output import confirm, message
from deltasql.cli.progress import busy, progress
from deltasql.model.counts import many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.cli.context import Context


@click.command()
@click.argument("table")
@click.option("--z-order", metavar="COLUMN,…", help="Cluster rows by these columns (Z-order).")
@click.option(
    "--target-size", type=click.IntRange(1), metavar="BYTES", help="Write files of about this size."
)
@click.option(
    "--where", multiple=True, metavar="COLUMN=VALUE", help="Compact only these partitions."
)
@spark_option("Rewrite with Spark executors.")
@dry_run_option("Show what would be rewritten without doing it.")
@click.pass_obj
def optimize(
    context: Context,
    table: str,
    z_order: str | None,
    target_size: int | None,
    where: tuple[str, ...],
    engine: str | None,
    dry_run: bool,
) -> None:
    """Compact small files of TABLE into larger ones, in one commit.

    Rows do not change. The old files are kept for older versions until a vacuum.

    \b
    Example:
      $ deltasql optimize sales --z-order id
      key                     value
      numFilesAdded           1
      numFilesRemoved         2
      filesAdded              {"avg":316.0,"max":316,"min":316,"totalFiles":1…
      filesRemoved            {"avg":390.0,"max":486,"min":294,"totalFiles":2…
      partitionsOptimized     1
      …
    """
    columns = comma_separated(z_order)
    with context.open_table(table) as (catalog, name):
        snapshot = catalog.table(name).snapshot()
        for each in columns:
            if each.partition(".")[0] not in snapshot.schema.names:
                require_known(each, snapshot.schema.names, f"{name} has no column")
        filters = [key_and_value(each, "A partition", "COLUMN=VALUE") for each in where]
        for column, _ in filters:
            require_known(column, snapshot.partition_columns, f"{name} has no partition column")
        options: dict[str, Any] = {
            "target_size": target_size,
            "dry_run": dry_run,
            "engine": engine,
        }
        if where:
            options["partition_filters"] = [(column, "=", value) for column, value in filters]
        with (
            session_for(engine),
            progress(first=f"optimizing {name}", color=context.color) as on_progress,
        ):
            metrics = catalog.optimize(name, z_order=columns, on_progress=on_progress, **options)
    context.output.record(metrics)


@click.command()
@click.argument("table", required=False)
@click.option(
    "--retention-hours",
    type=click.FloatRange(0),
    metavar="HOURS",
    help="Keep the versions of the last HOURS hours readable. Default: the table's properties.",
)
@click.option(
    "--uncommitted",
    is_flag=True,
    help="Delete files that killed processes wrote for tables that were never created. Cannot be "
    "used with TABLE.",
)
@click.option(
    "--full", is_flag=True, help="List the table's folder to find all unreferenced files."
)
@click.option(
    "--lite", is_flag=True, help="Delete only files that the log records as removed (default)."
)
@spark_option("List the folder with Spark executors.")
@click.option("--force", is_flag=True, help="Allow a retention shorter than the table's.")
@dry_run_option("List the files without deleting them.")
@yes_option
@click.pass_obj
def vacuum(
    context: Context,
    table: str | None,
    retention_hours: float | None,
    uncommitted: bool,
    full: bool,
    lite: bool,
    engine: str | None,
    force: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete the files that no retained version of TABLE needs.

    The deleted files are listed.

    Older versions that need these files can no longer be read. Files of transactions that started
    within the last hour are kept, whatever the retention.

    \b
    Example:
      $ deltasql vacuum sales --dry-run
      path
      0 files would be deleted
    """
    if is_given("table") if uncommitted else table is None:
        raise click.UsageError("Give a TABLE, or --uncommitted without a table.")
    if uncommitted or table is None:
        _vacuum_uncommitted(context, dry_run=dry_run, yes=yes)
        return
    if full and lite:
        raise click.UsageError("--full and --lite cannot be used together.")
    options: dict[str, Any] = {
        "retention_hours": retention_hours,
        "full": full,
        "enforce_retention_duration": not force,
        "engine": engine,
    }
    with context.open_table(table) as (catalog, name), session_for(engine):
        first = f"{name}: searching for files"
        with progress(first=first, color=context.color) as on_progress:
            found = catalog.vacuum(name, dry_run=True, on_progress=on_progress, **options)
        if found and not dry_run:
            confirm(f"Delete {many(len(found), 'file')} of {name}?", yes=yes)
            with progress(color=context.color) as on_progress:
                found = catalog.vacuum(name, dry_run=False, on_progress=on_progress, **options)
    _show_deleted(context, found, dry_run=dry_run)


def _vacuum_uncommitted(context: Context, *, dry_run: bool, yes: bool) -> None:
    with context.open() as catalog:
        found = catalog.vacuum_uncommitted()
        if found and not dry_run:
            confirm(f"Delete {many(len(found), 'file')} that belong to no table?", yes=yes)
        if not dry_run:
            found = catalog.vacuum_uncommitted(dry_run=False)
    _show_deleted(context, found, dry_run=dry_run)


def _show_deleted(context: Context, paths: Sequence[str], *, dry_run: bool) -> None:
    context.output.rows([{"path": path} for path in paths], ("path",))
    message(f"{many(len(paths), 'file')} {'would be deleted' if dry_run else 'deleted'}")


@click.command()
@click.argument("table")
@click.argument("to")
@click.option(
    "--ignore-missing-files", is_flag=True, help="Restore even if data files are missing."
)
@dry_run_option("Show what would be changed without changing it.")
@yes_option
@click.pass_obj
def restore(
    context: Context, table: str, to: str, ignore_missing_files: bool, dry_run: bool, yes: bool
) -> None:
    """Restore TABLE to the version or time TO.

    Write a time as in 2024-05-01T12:00:00Z.

    The restore is a new commit: later versions stay in the history, and `undo` reverts the restore.

    \b
    Example:
      $ deltasql restore sales 0 --yes
      key              value
      version              2
      numRemovedFile       1
      numRestoredFile      0
    """
    wanted = version_or_timestamp(to)

    def stage(transaction: MultiTableTransaction, name: str) -> dict[str, int]:
        return transaction.restore(name, wanted, ignore_missing_files=ignore_missing_files)

    _commit(context, table, f"Restore {table} to {to}?", stage, dry_run=dry_run, yes=yes)


@click.command()
@click.argument("table")
@dry_run_option("Show what would be changed without changing it.")
@yes_option
@click.pass_obj
def undo(context: Context, table: str, dry_run: bool, yes: bool) -> None:
    """Revert the last commit of TABLE.

    A second undo reverts the first.

    \b
    Example:
      $ deltasql undo sales --yes
      key              value
      version              3
      numRemovedFile       0
      numRestoredFile      1
    """

    def stage(transaction: MultiTableTransaction, name: str) -> dict[str, int]:
        return transaction.undo(name)

    _commit(context, table, f"Undo the last commit of {table}?", stage, dry_run=dry_run, yes=yes)


@click.command()
@click.argument("table")
@click.option(
    "--version",
    type=click.IntRange(0),
    help="Write the checkpoint of this version. Default: the latest.",
)
@click.pass_obj
def checkpoint(context: Context, table: str, version: int | None) -> None:
    """Write a checkpoint of TABLE for readers of its log.

    Readers start at the latest checkpoint and do not replay the whole log.

    \b
    Example:
      $ deltasql checkpoint sales
      key               value
      version               1
      size                  4
      file size         15.4 KiB
      num_of_add_files      2
    """
    with (
        context.open_table(table) as (catalog, name),
        busy(f"writing a checkpoint of {name}", color=context.color),
    ):
        info = catalog.mirror.checkpoint(name, version=version)
    context.output.record(info.to_dict())


def _commit(
    context: Context,
    table: str,
    question: str,
    stage: Callable[[MultiTableTransaction, str], dict[str, int]],
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Stage a change, ask for confirmation, commit it and print its metrics."""
    metrics: dict[str, Any]
    with context.open_table(table) as (catalog, name), catalog.begin() as transaction:
        with busy(f"preparing {name}", color=context.color):
            metrics = stage(transaction, name)
        if dry_run:
            transaction.rollback()
            message("nothing was changed")
        else:
            confirm(question, yes=yes)
            with busy("committing", color=context.color):
                metrics = {"version": transaction.commit()[name], **metrics}
    context.output.record(metrics)
