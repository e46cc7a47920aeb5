"""`deltasql init` and `migrate`: a catalog is created, and brought to this release's schema."""

from __future__ import annotations

import click

from deltasql.cli.context import Context, make_sure, talk

PENDING = ("migration", "name", "state")


@click.command()
@click.argument("uri", required=False)
@click.pass_obj
def init(context: Context, uri: str | None) -> None:
    """Create the catalog at URI, or the one that is named; do nothing when it is there.

    \b
    Example:
      deltasql init deltasql://sqlite/meta.db
    """
    import deltasql
    from deltasql.api.connect import is_new, resolved

    place = resolved(uri or context.catalog_uri())
    created = is_new(place)
    with deltasql.connect(place) as catalog:
        health = catalog.health()
    context.output.record(
        {
            "uri": str(catalog.uri),
            "backend": health.backend,
            "created": created,
            "schema_version": health.schema_version,
            "tables": health.tables,
        }
    )
    talk("the catalog is created" if created else "the catalog was there already")
    talk("\nnext steps:")
    # A password belongs into no terminal.
    hint = "" if place.password is None else "  # with the password in the place of ***"
    talk(f"  export DELTASQL_URI='{catalog.uri}'{hint}")
    talk("  deltasql table create sales id:bigint day:date --partition-by day")
    talk("  deltasql import /data/lake/orders")
    talk("  deltasql shell")


@click.command()
@click.option("--dry-run", is_flag=True, help="List what would be applied; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def migrate(context: Context, dry_run: bool, yes: bool) -> None:
    """Bring the catalog's tables in the database to the schema of this release.

    Commands that create a catalog or load tables into it do the same; all others ask for this one.
    Older releases may not be able to use it afterwards.

    \b
    Example:
      deltasql migrate --dry-run
    """
    import deltasql
    from deltasql.api.connect import pending_migrations, resolved

    place = resolved(context.catalog_uri())
    pending = pending_migrations(place)
    state = "pending"
    if pending and not dry_run:
        make_sure(f"Apply {len(pending)} migrations to {place}?", yes=yes)
        deltasql.connect(place).close()
        state = "applied"
    rows = [{"migration": number, "name": name, "state": state} for number, name in pending]
    context.output.rows(rows, PENDING)
    if not pending:
        talk("the schema is up to date")
