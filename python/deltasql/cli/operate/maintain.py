"""Maintenance commands for one table, such as `deltasql optimize`, `vacuum` and `restore`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.context import Context, make_sure, nearest, talk
from deltasql.cli.operate.spark import session_for
from deltasql.cli.progress import busy, counted, of_phase, progress
from deltasql.model.counts import many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.transaction.transaction import MultiTableTransaction


@click.command()
@click.argument("table")
@click.option("--z-order", metavar="COLUMN,…", help="Cluster rows by these columns (Z-order).")
@click.option(
    "--target-size", type=click.IntRange(1), metavar="BYTES", help="Target size of new files."
)
@click.option("--where", multiple=True, metavar="COLUMN=VALUE", help="Only these partitions.")
@click.option("--engine", type=click.Choice(["spark"]), help="Rewrite with Spark executors.")
@click.option("--dry-run", is_flag=True, help="Show what would be rewritten without doing it.")
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
      deltasql optimize sales --z-order id
    """
    columns = [each.strip() for each in (z_order or "").split(",") if each.strip()]
    with context.open_table(table) as (catalog, name):
        _refuse_unknown(catalog, name, columns)
        options: dict[str, Any] = {
            "target_size": target_size,
            "dry_run": dry_run,
            "engine": engine,
        }
        if where:
            options["partition_filters"] = [_filter(each) for each in where]
        with (
            session_for(engine),
            counted(f"optimizing {name}", color=context.color) as on_progress,
        ):
            metrics = catalog.optimize(name, z_order=columns, on_progress=on_progress, **options)
    context.output.record(metrics)


@click.command()
@click.argument("table", required=False)
@click.option(
    "--retention-hours",
    type=click.FloatRange(0),
    help="Keep files of versions of the last HOURS. Default: the table's properties.",
)
@click.option(
    "--uncommitted",
    is_flag=True,
    help="Delete files of killed processes whose table was never created (without TABLE).",
)
@click.option(
    "--full", is_flag=True, help="List the table's folder to find all unreferenced files."
)
@click.option(
    "--lite", is_flag=True, help="Delete only files that the log records as removed (default)."
)
@click.option(
    "--engine", type=click.Choice(["spark"]), help="List the folder with Spark executors."
)
@click.option("--force", is_flag=True, help="Allow a retention shorter than the table's.")
@click.option("--dry-run", is_flag=True, help="List the files without deleting them.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
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
    """Delete and list the files that no retained version of TABLE needs.

    Older versions that need these files can no longer be read. Files of transactions that started
    within the last hour are kept, whatever the retention.

    \b
    Example:
      deltasql vacuum sales --dry-run
    """
    if uncommitted == (table is not None):
        raise click.UsageError("give a TABLE, or --uncommitted without one.")
    if table is None:
        _vacuum_uncommitted(context, dry_run=dry_run, yes=yes)
        return
    if full and lite:
        raise click.UsageError("--full and --lite are two ways to look: give one.")
    options: dict[str, Any] = {
        "retention_hours": retention_hours,
        "full": full,
        "enforce_retention_duration": not force,
        "engine": engine,
    }
    with context.open_table(table) as (catalog, name), session_for(engine):
        first = f"{name}: looking for files"
        with progress(of_phase, first=first, color=context.color) as on_progress:
            found = catalog.vacuum(name, dry_run=True, on_progress=on_progress, **options)
        if found and not dry_run:
            make_sure(f"Delete {many(len(found), 'file')} of {name}?", yes=yes)
            with progress(of_phase, color=context.color) as on_progress:
                found = catalog.vacuum(name, dry_run=False, on_progress=on_progress, **options)
    context.output.rows([{"path": path} for path in found], ("path",))
    talk(f"{many(len(found), 'file')} {'would be deleted' if dry_run else 'deleted'}")


def _vacuum_uncommitted(context: Context, *, dry_run: bool, yes: bool) -> None:
    with context.open() as catalog:
        found = catalog.vacuum_uncommitted()
        if found and not dry_run:
            make_sure(f"Delete {many(len(found), 'file')} without a table?", yes=yes)
        if not dry_run:
            found = catalog.vacuum_uncommitted(dry_run=False)
    context.output.rows([{"path": path} for path in found], ("path",))
    talk(f"{many(len(found), 'file')} {'would be deleted' if dry_run else 'deleted'}")


@click.command()
@click.argument("table")
@click.argument("to")
@click.option(
    "--ignore-missing-files", is_flag=True, help="Restore even if data files are missing."
)
@click.option("--dry-run", is_flag=True, help="Show what would be changed without changing it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def restore(
    context: Context, table: str, to: str, ignore_missing_files: bool, dry_run: bool, yes: bool
) -> None:
    """Restore TABLE to version TO, or to a time such as 2024-05-01T12:00:00Z.

    The restore is a new commit: later versions stay in the history, and undo reverts it.

    \b
    Example:
      deltasql restore sales 0 --yes
    """
    wanted = _version_or_moment(to)

    def stage(transaction: MultiTableTransaction, name: str) -> dict[str, int]:
        return transaction.restore(name, wanted, ignore_missing_files=ignore_missing_files)

    _commit(context, table, f"Restore {table} to {to}?", stage, dry_run=dry_run, yes=yes)


@click.command()
@click.argument("table")
@click.option("--dry-run", is_flag=True, help="Show what would be changed without changing it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def undo(context: Context, table: str, dry_run: bool, yes: bool) -> None:
    """Revert the last commit of TABLE; another undo restores it.

    \b
    Example:
      deltasql undo sales --yes
    """

    def stage(transaction: MultiTableTransaction, name: str) -> dict[str, int]:
        return transaction.undo(name)

    _commit(context, table, f"Undo the last commit of {table}?", stage, dry_run=dry_run, yes=yes)


@click.command()
@click.argument("table")
@click.option("--version", type=click.IntRange(0), help="The version. Default: the latest.")
@click.pass_obj
def checkpoint(context: Context, table: str, version: int | None) -> None:
    """Write a checkpoint of TABLE, so that readers need not replay its log.

    \b
    Example:
      deltasql checkpoint sales
    """
    with (
        context.open_table(table) as (catalog, name),
        busy(f"writing a checkpoint of {name}", color=context.color),
    ):
        info = catalog.mirror.checkpoint(name, version=version)
    context.output.record(asdict(info))


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
        with busy(f"looking at {name}", color=context.color):
            metrics = stage(transaction, name)
        if dry_run:
            transaction.rollback()
            talk("nothing was changed")
        else:
            make_sure(question, yes=yes)
            with busy("committing", color=context.color):
                metrics = {"version": transaction.commit()[name], **metrics}
    context.output.record(metrics)


def _version_or_moment(text: str) -> int | str:
    if text.isdecimal():
        return int(text)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{text!r} is neither a version nor a moment such as 2024-05-01T12:00:00Z."
        ) from None
    return text


def _refuse_unknown(catalog: Catalog, name: str, columns: Sequence[str]) -> None:
    known = catalog.table(name).snapshot().schema.names if columns else ()
    for each in columns:
        if each.partition(".")[0] not in known:
            raise click.UsageError(f"{name} has no column {each!r}.{nearest(each, known)}")


def _filter(text: str) -> tuple[str, str, str]:
    column, mark, value = text.partition("=")
    if not (column and mark):
        raise click.UsageError(f"a partition is written COLUMN=VALUE, got {text!r}.")
    return column, "=", value
