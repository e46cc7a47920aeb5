"""`deltasql config`: show the settings in effect with their source, and check them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deltasql.cli.commands import Commands
from deltasql.cli.context import Context, fail_unless
from deltasql.cli.options import require_known
from deltasql.cli.output import message
from deltasql.cli.progress import busy
from deltasql.model.counts import many

if TYPE_CHECKING:
    from deltasql.config import Config

SETTINGS = ("key", "value", "default", "source")
CHECKS = ("catalog", "ok", "backend", "schema_version", "tables", "uri", "problem")


@click.group(cls=Commands)
def config() -> None:
    """Show and check settings from files and environment variables.

    \b
    Example:
      $ deltasql config show
      key                                value              default          …
      store.busy_timeout_ms              30000              30000            …
      store.synchronous                  full               full             …
      store.lock_timeout_ms              30000              30000            …
      store.statement_timeout_ms         300000             300000           …
      store.idle_transaction_timeout_ms  60000              60000            …
      …
    """


@config.command()
@click.argument("section", required=False)
@click.option("--changed", is_flag=True, help="Show only settings that a file or a variable sets.")
@click.pass_obj
def show(context: Context, section: str | None, changed: bool) -> None:
    """Show all settings, or one SECTION, with their sources.

    Secrets are masked.

    \b
    Example:
      $ deltasql config show pool
      key                  value   default  source
      pool.min_size        0       0        default
      pool.max_size        8       8        default
      pool.timeout_s       30.0    30.0     default
      pool.max_lifetime_s  3600.0  3600.0   default
      pool.max_idle_s      600.0   600.0    default
      …
    """
    from deltasql.config import Config

    rows = [each._asdict() for each in Config.load().describe()]
    sections = sorted({*Config.model_fields})
    if section is not None:
        require_known(section, sections, "There is no section")
        rows = [row for row in rows if row["key"].partition(".")[0] == section]
    if changed:
        rows = [row for row in rows if row["source"] != "default"]
        if not rows and context.format == "table":
            where = f" of {section}" if section else ""
            message(f"no setting{where} is changed: all have their default values")
            return
    context.output.rows(rows, SETTINGS)


@config.command()
@click.pass_obj
def check(context: Context) -> None:
    """Check the settings and connect to every configured catalog.

    The exit code is 1 if a check fails.

    Nothing is created or changed. A catalog given with --uri or DELTASQL_URI is checked too, and
    listed as (named).

    \b
    Example:
      $ deltasql config check
      the settings are valid
      catalog  ok    backend  schema version  tables  uri                    …
      (named)  true  sqlite                7       1  deltasql://sqlite/meta.…
    """
    from deltasql.config import Config

    loaded = Config.load()
    message("the settings are valid")
    names = {name: name for name in loaded.catalogs}
    if context.uri is not None and context.uri not in names:
        names["(named)"] = context.uri
    with busy("connecting", color=context.color):
        rows = [_checked(loaded, name, location) for name, location in names.items()]
    context.output.rows(rows, CHECKS)
    if not rows:
        message("the configuration has no catalogs: no connection was checked")
    fail_unless(all(row["ok"] for row in rows))


def _checked(config: Config, name: str, location: str) -> dict[str, Any]:
    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.catalog.connect import is_new, pending_migrations, resolved
    from deltasql.exceptions import TxnLogError

    row: dict[str, Any] = dict.fromkeys(CHECKS) | {"catalog": name, "ok": False}
    try:
        uri = resolved(location, config)
        row |= {"uri": str(uri), "backend": uri.backend}
        if is_new(uri, config):
            return row | {"problem": "the catalog does not exist: create it with deltasql init"}
        pending = pending_migrations(uri, config)
        if pending:
            return row | {
                "problem": f"{many(len(pending), 'migration')} pending: apply with deltasql migrate"
            }
        with Catalog(uri, config, migrate=False) as catalog:
            health = catalog.health()
        return row | {
            "ok": health.ok,
            "schema_version": health.schema_version,
            "tables": health.tables,
        }
    except TxnLogError as error:
        return row | {"problem": error.message}
