"""`deltasql table`: list, create, change and drop tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from deltasql.cli.commands import Commands
from deltasql.cli.options import (
    comma_separated,
    dry_run_option,
    key_and_value,
    nearest,
    nested_location_option,
    require_known,
    version_or_timestamp,
    yes_option,
)
from deltasql.cli.output import confirm, message
from deltasql.cli.progress import progress
from deltasql.cli.tables.columns import schema_of

if TYPE_CHECKING:
    from deltasql.cli.context import Context

LIST = ("name", "location", "created_at", "is_following")
DROPPED = ("name", "location", "dropped_at")


@click.group(cls=Commands)
def table() -> None:
    """Create, list, rename, change and drop tables.

    \b
    Example:
      $ deltasql table list
      name   location          created at                        following
      sales  /data/lake/sales  2026-11-19T04:32:00.679000+00:00  false
    """


@table.command(name="list")
@click.option("--namespace", help="List only tables in this namespace.")
@click.option("--dropped", is_flag=True, help="List dropped tables that undrop can restore.")
@click.pass_obj
def list_tables(context: Context, namespace: str | None, dropped: bool) -> None:
    """List the tables of the catalog.

    \b
    Example:
      $ deltasql table list --namespace default
      name   location          created at                        following
      sales  /data/lake/sales  2026-11-19T04:32:01.267000+00:00  false
    """
    with context.open() as catalog:
        if namespace is not None:
            dropped_namespaces = {each.namespace for each in catalog.dropped()}
            known = {"default", *catalog.namespaces(), *dropped_namespaces}
            require_known(namespace, sorted(known), "There is no namespace")
        if dropped:
            rows = [
                {
                    "name": row.full_name,
                    "location": row.location,
                    "dropped_at": _timestamp(row.dropped_at_ms or 0),
                }
                for row in catalog.dropped()
                if namespace in (None, row.namespace)
            ]
        else:
            rows = [
                {
                    "name": each.full_name,
                    "location": each.location,
                    "created_at": _timestamp(each.row.created_at_ms),
                    "is_following": each.is_following,
                }
                for each in catalog.tables(namespace)
            ]
    context.output.rows(rows, DROPPED if dropped else LIST)


@table.command()
@click.argument("name")
@click.argument("columns", nargs=-1, metavar="[NAME:TYPE]...")
@click.option(
    "--schema", help="Read the Delta schema from this JSON, from a file, or from stdin (-)."
)
@click.option("--partition-by", metavar="COLUMN,…", help="Partition the table by these columns.")
@click.option(
    "--location", help="Store the data files here. Default: a folder below table.data_root."
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a table property. Can be repeated.",
)
@click.option("--description", help="Set the description of the table.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the table exists.")
@nested_location_option
@click.pass_obj
def create(
    context: Context,
    name: str,
    columns: tuple[str, ...],
    schema: str | None,
    partition_by: str | None,
    location: str | None,
    properties: tuple[str, ...],
    description: str | None,
    if_not_exists: bool,
    allow_nested_location: bool,
) -> None:
    """Create an empty table.

    Write a column as NAME:TYPE, such as id:long or 'day:date not null'.

    Types are Delta or SQL types: long, string, double, date, timestamp, decimal(10,2), array<T>,
    map<K,V>, struct<a:T,…> and so on.

    \b
    Example:
      $ deltasql table create orders id:long day:date --partition-by day
      key       value
      name      orders
      location  /meta_data/default/orders
    """
    if bool(columns) == bool(schema):
        raise click.UsageError("Give the columns either as NAME:TYPE or with --schema.")
    wanted = schema_of(columns) if schema is None else _schema_text(schema)
    partitions = comma_separated(partition_by)
    for each in partitions:
        require_known(each, _column_names(wanted), "There is no column")
    with context.open(create=True) as catalog:
        made = catalog.create_table(
            name,
            wanted,
            location=location,
            partition_by=partitions or None,
            properties=dict(key_and_value(each, "A property") for each in properties),
            description=description,
            if_exists="ignore" if if_not_exists else "error",
            allow_nested_location=allow_nested_location,
        )
        context.output.record({"name": made.full_name, "location": made.location})


@table.command()
@click.argument("table")
@click.pass_obj
def show(context: Context, table: str) -> None:
    """Show columns, properties, protocol and size of TABLE.

    \b
    Example:
      $ deltasql table show sales
      key                value
      name               sales
      location           /data/lake/sales
      version            1
      committed_at       2026-11-19T04:32:01.623000+00:00
      schema             id long
      …
    """
    with context.open_table(table) as (catalog, name):
        found = catalog.describe(name)
        columns = catalog.inspect.schema(name)
    if context.output.is_structured:
        found["schema"] = json.loads(found["schema"])["fields"]
    else:
        found["schema"] = [
            f"{each.name} {each.type}{'' if each.nullable else ' not null'}" for each in columns
        ]
    if context.output.is_for_people:
        for key in ("properties", "protocol"):
            found[key] = [f"{name}={_value_text(value)}" for name, value in found[key].items()]
    context.output.record(found)


@table.command()
@click.argument("table")
@click.argument("target")
@click.option("--shallow", is_flag=True, help="Refer to the files of TABLE; copy nothing.")
@click.option(
    "--at",
    metavar="VERSION|TIMESTAMP",
    help="Clone this version, or the version at this time. Default: the latest.",
)
@click.option("--replace", is_flag=True, help="Replace TARGET if it exists; it keeps its history.")
@click.option("--location", help="Put the new table here. Default: a folder below table.data_root.")
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a table property of TARGET. Can be repeated.",
)
@click.pass_obj
def clone(
    context: Context,
    table: str,
    target: str,
    shallow: bool,
    at: str | None,
    replace: bool,
    location: str | None,
    properties: tuple[str, ...],
) -> None:
    """Create TARGET with the rows, schema and properties of TABLE.

    The data files are copied, unless the clone is shallow. A shallow clone cannot be read after the
    files of TABLE are deleted; a vacuum of this catalog keeps them.

    \b
    Example:
      $ deltasql table clone sales sales_backup
      sales_backup: deep clone of sales at version 1
        copied 2 files of 780 B
        the table is at /meta_data/default/sales_backup
    """
    to = None if at is None else version_or_timestamp(at)
    wanted = dict(key_and_value(each, "A property") for each in properties)
    with (
        context.open_table(table) as (catalog, name),
        progress(color=context.color) as on_progress,
    ):
        report = catalog.clone(
            name,
            target,
            shallow=shallow,
            version=to if isinstance(to, int) else None,
            timestamp=to if isinstance(to, datetime) else None,
            replace=replace,
            location=location,
            properties=wanted,
            on_progress=on_progress,
        )
    context.output.report(report)


@table.command()
@click.argument("table")
@click.argument("new_name")
@click.pass_obj
def rename(context: Context, table: str, new_name: str) -> None:
    """Change the name or namespace of TABLE; its files stay in place.

    \b
    Example:
      $ deltasql table rename sales crm.sales
      sales is now crm.sales
    """
    with context.open_table(table) as (catalog, name):
        made = catalog.rename(name, new_name)
    message(f"{name} is now {made.full_name}")


@table.command()
@click.argument("table")
@dry_run_option()
@yes_option
@click.pass_obj
def drop(context: Context, table: str, dry_run: bool, yes: bool) -> None:
    """Remove TABLE from the catalog; undrop restores it.

    No file is deleted.

    \b
    Example:
      $ deltasql table drop sales --yes
      sales is dropped; deltasql table undrop sales restores it
    """
    with context.open_table(table) as (catalog, name):
        found = catalog.table(name)
        if dry_run:
            message(f"would drop {name}; its files stay at {found.location}")
            return
        confirm(f"Drop {name}? Its files stay at {found.location}.", yes=yes)
        catalog.drop(name)
    message(f"{name} is dropped; deltasql table undrop {name} restores it")


@table.command()
@click.argument("name")
@click.pass_obj
def undrop(context: Context, name: str) -> None:
    """Restore the table that was last dropped as NAME.

    \b
    Example:
      $ deltasql table undrop sales
      sales is restored
    """
    with context.open() as catalog:
        known = {row.full_name for row in catalog.dropped()}
        if name not in known and nearest(name, known):
            require_known(name, known, "There is no dropped table")
        restored = catalog.undrop(name)
    message(f"{restored.full_name} is restored")


@table.command(name="set")
@click.argument("table")
@click.argument("properties", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--description", help="Set the description of the table.")
@dry_run_option("Check the values without changing anything.")
@click.pass_obj
def set_properties(
    context: Context,
    table: str,
    properties: tuple[str, ...],
    description: str | None,
    dry_run: bool,
) -> None:
    """Set properties or the description of TABLE, in one commit.

    \b
    Example:
      $ deltasql table set sales delta.logRetentionDuration='interval 60 days'
      sales is at version 2
    """
    if not properties and description is None:
        raise click.UsageError("Give properties as KEY=VALUE, or --description.")
    with context.open_table(table) as (catalog, name), catalog.begin() as transaction:
        if properties:
            transaction.set_table_properties(
                name, dict(key_and_value(each, "A property") for each in properties)
            )
        if description is not None:
            transaction.set_table_description(name, description)
        if dry_run:
            transaction.rollback()
            message(f"would change {name}")
            return
    message(f"{name} is at version {transaction.versions[name]}")


@table.command()
@click.argument("table")
@click.pass_obj
def fence(context: Context, table: str) -> None:
    """Make other engines fail when they commit to the path of TABLE.

    Adds a writer feature that only deltasql knows, so delta-spark, DuckDB and deltalake refuse to
    write. This includes delta-spark jobs with the LogStore of deltasql. Readers are unaffected.

    \b
    Example:
      $ deltasql table fence sales
      sales: fenced by version 2
    """
    with context.open_table(table) as (catalog, name):
        report = catalog.fence(name)
    context.output.report(report)


@table.command()
@click.argument("table")
@click.pass_obj
def unfence(context: Context, table: str) -> None:
    """Remove the fence, so that other engines can write to TABLE.

    \b
    Example:
      $ deltasql table unfence sales
      sales: was not fenced
    """
    with context.open_table(table) as (catalog, name):
        report = catalog.unfence(name)
    context.output.report(report)


def _schema_text(given: str) -> str:
    """Return the JSON of a schema that is given as text, as a file name or on stdin (`-`)."""
    text = given
    if not given.lstrip().startswith(("{", "[")):
        with click.open_file(given, encoding="utf-8") as file:
            text = file.read()
    try:
        if isinstance(json.loads(text).get("fields"), list):
            return text
    except (ValueError, AttributeError, RecursionError):
        pass
    raise click.UsageError(
        '--schema is not a Delta schema such as {"type": "struct", "fields": […]}.'
    )


def _column_names(schema: str) -> list[str]:
    return [each["name"] for each in json.loads(schema)["fields"]]


def _value_text(value: object) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


def _timestamp(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
