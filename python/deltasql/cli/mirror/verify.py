"""`deltasql verify`: is what was published what SQL says?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deltasql.cli.context import Context, fail_unless
from deltasql.cli.operate.spark import session_for
from deltasql.cli.output import say
from deltasql.cli.progress import of_phase, progress

if TYPE_CHECKING:
    from deltasql.mirror.verify.verify import Versions
    from deltasql.operations.verify.report import DataChecks

COLUMNS = ("table", "ok", "sql_version", "log_version", "commits", "pending", "total", "location")


@click.command()
@click.argument("table", required=False)
@click.option("--all-versions", is_flag=True, help="Every version instead of the latest.")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="N versions over all of it.")
@click.option(
    "--data",
    type=click.Choice(["files", "counts", "rows"]),
    help="Look at the data, too: files are there with their size, their rows are as many as the "
    "statistics say, or every row is the same as another reader of the log finds it.",
)
@click.option("--engine", type=click.Choice(["duckdb", "spark"]), help="Who reads the data.")
@click.option("--no-deltalake", is_flag=True, help="Leave out the second reading by deltalake.")
@click.pass_obj
def verify(
    context: Context,
    table: str | None,
    all_versions: bool,
    sample: int | None,
    data: DataChecks | None,
    engine: str | None,
    no_deltalake: bool,
) -> None:
    """Compare the log of TABLE, or of all tables, with SQL; exit with 1 when they differ.

    Every commit and checkpoint is compared; whole states and data at the chosen versions.

    \b
    Example:
      deltasql verify sales --all-versions --data counts
    """
    if all_versions and sample is not None:
        raise click.UsageError("--all-versions and --sample both choose versions: give one.")
    versions: Versions = "all" if all_versions else "head" if sample is None else "sample"
    with (
        session_for(engine),
        context.open_tables(table) as (catalog, name),
        progress(of_phase, color=context.color) as on_progress,
    ):
        reports = catalog.mirror.verify(
            name,
            versions=versions,
            sample=sample or 1,
            data=data or False,
            data_versions=versions,
            engine=engine,
            with_deltalake=not no_deltalake,
            on_progress=on_progress,
        )
    if context.format == "table":
        for report in reports:
            say(report.summary())
    else:
        context.output.rows([report.to_dict() for report in reports], COLUMNS)
    fail_unless(all(report.ok for report in reports))
