"""`deltasql verify`: compare the published log and the data with the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deltasql.cli.context import Context, fail_unless
from deltasql.cli.operate.spark import session_for
from deltasql.cli.progress import progress

if TYPE_CHECKING:
    from deltasql.verify.report import DataChecks
    from deltasql.verify.verify_log import Versions

COLUMNS = ("table", "ok", "sql_version", "log_version", "commits", "pending", "total", "location")


@click.command()
@click.argument("table", required=False)
@click.option("--all-versions", is_flag=True, help="Compare every version, not only the latest.")
@click.option(
    "--sample",
    type=click.IntRange(1),
    metavar="N",
    help="Compare N versions, spread over the history.",
)
@click.option(
    "--data",
    type=click.Choice(["files", "counts", "rows"]),
    help="Also verify the data. files: every file exists with its size; counts: in addition, row "
    "counts match the statistics; rows: in addition, another reader of the log returns the same "
    "rows.",
)
@click.option(
    "--engine", type=click.Choice(["duckdb", "spark"]), help="Read the data with this engine."
)
@click.option("--no-deltalake", is_flag=True, help="Skip the comparison with deltalake.")
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
    """Compare the published log with the database.

    Without TABLE, all tables are compared.

    Every commit and checkpoint is compared; the table state and the data are compared only at the
    chosen versions. The exit code is 1 if anything differs.

    \b
    Example:
      $ deltasql verify sales --all-versions --data counts
      sales: ok (version 1 in SQL, 1 in the log; 2 commits, 2 states,…
        1 commit written by another program, with the same content as in SQL
      sales: data at version 0: 1 file of 486 B, 1 row: ok
      sales: data at version 1: 2 files of 780 B, 2 rows: ok
    """
    if all_versions and sample is not None:
        raise click.UsageError("--all-versions and --sample cannot be used together.")
    versions: Versions = "all" if all_versions else "head" if sample is None else "sample"
    with (
        session_for(engine),
        context.open_tables(table) as (catalog, name),
        progress(color=context.color) as on_progress,
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
            context.output.report(report)
    else:
        context.output.rows([report.to_dict() for report in reports], COLUMNS)
    fail_unless(all(report.ok for report in reports))
