"""`deltasql init` and `migrate`: create a catalog, and upgrade its database schema."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from deltasql.cli.options import dry_run_option, yes_option
from deltasql.cli.output import confirm, message
from deltasql.model.counts import many

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog
    from deltasql.cli.context import Context

PENDING = ("migration", "name", "state")


@click.command()
@click.argument("uri", required=False)
@click.option(
    "--data-root",
    metavar="LOCATION",
    help="Store the data files of new tables in this folder, or in a bucket such as s3://bucket/lake.",
)
@click.pass_obj
def init(context: Context, uri: str | None, data_root: str | None) -> None:
    """Create a catalog at URI; do nothing if it exists.

    With PostgreSQL, writers need a folder for the data files of new tables (--data-root). This is a
    setting of each client and is not stored in the database, so the printed next steps contain it.

    \b
    Example:
      $ deltasql init deltasql://sqlite/meta.db
      key             value
      uri             deltasql://sqlite//meta.db
      backend         sqlite
      created         true
      schema_version  7
      tables          0
      …
    """
    import deltasql
    from deltasql.api.catalog.connect import is_new, resolved

    named = uri or context.catalog_uri()
    place = resolved(named)
    created = is_new(place)
    with deltasql.connect(place, create=True) as catalog:
        health = catalog.health()
        root = _data_root(data_root, catalog)
    context.output.record(
        {
            "uri": str(catalog.uri),
            "backend": health.backend,
            "created": created,
            "schema_version": health.schema_version,
            "tables": health.tables,
        }
    )
    message("the catalog was created" if created else "the catalog exists already")
    message("\nnext steps:")
    shown = str(catalog.uri)
    if place.password is not None and place.password not in named:
        shown = named  # the password comes from an environment variable
    elif place.password is not None:  # do not print it; PostgreSQL's library reads PGPASSWORD
        shown = str(replace(place.catalog(), password=None))
        message("  read -rsp 'Password: ' PGPASSWORD && export PGPASSWORD")
    message(f"  export DELTASQL_URI={shlex.quote(shown)}")
    if root is not None:
        message("    # the folder for the files of new tables; set it wherever you create tables")
        message(f"  export DELTASQL_TABLE__DATA_ROOT={shlex.quote(root)}")
    message("  deltasql table create sales id:long day:date --partition-by day")
    message("  deltasql import --help")
    message("  deltasql shell")


def _data_root(given: str | None, catalog: Catalog) -> str | None:
    """Return the absolute data root for new tables, or None if no setting is needed.

    No setting is needed if one is configured, or if tables can be placed next to the database file.
    """
    from deltasql.storage import absolute_location

    if given is None:
        if catalog.config.table.data_root is not None or not catalog.uri.is_server:
            return None
        given = "lake"
        if sys.stdin.isatty():
            question = "Folder or bucket URL for the data files of new tables"
            given = click.prompt(question, default=absolute_location(given), err=True)
    return absolute_location(given)


@click.command()
@dry_run_option("List pending migrations without applying them.")
@yes_option
@click.pass_obj
def migrate(context: Context, dry_run: bool, yes: bool) -> None:
    """Upgrade the catalog's database schema to this release.

    Commands that create a catalog or load tables into it also upgrade the schema; other commands
    ask you to run this one. Older releases may not be able to use the catalog afterwards.

    \b
    Example:
      $ deltasql migrate --dry-run
      migration  name  state
      the schema is up to date
    """
    import deltasql
    from deltasql.api.catalog.connect import open_existing, pending_migrations, resolved

    place = resolved(context.catalog_uri())
    pending = pending_migrations(place)
    state = "pending"
    if pending and not dry_run:
        confirm(f"Apply {many(len(pending), 'migration')} to {place}?", yes=yes)
        deltasql.connect(place).close()
        state = "applied"
    rows = [{"migration": number, "name": name, "state": state} for number, name in pending]
    context.output.rows(rows, PENDING)
    if pending:
        return
    message("the schema is up to date")
    with open_existing(place) as catalog:
        if dry_run:
            unrecorded = len(catalog.store.query("unrecorded_locations"))
        else:
            unrecorded = catalog.store.record_locations()
    if unrecorded:
        verb = "would be recorded" if dry_run else "were recorded"
        message(f"the folders of {many(unrecorded, 'table')} that an older release changed {verb}")
