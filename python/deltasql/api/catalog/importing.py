"""Import Delta tables into a catalog: names, options and storage settings of the import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.config import StorageSettings
from deltasql.exceptions import TxnLogConfigError
from deltasql.migrate.importing import import_table as importer
from deltasql.migrate.importing import import_tree
from deltasql.migrate.importing.run import ImportOptions
from deltasql.storage import absolute_location
from deltasql.uri import join_table_name, split_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.api.catalog.mirror import Mirror
    from deltasql.migrate.importing.report import ImportReport, ImportSummary
    from deltasql.model.progress import OnProgress

_CHANGED = ("imported", "replaced")
"""States of an import that changed the set of tables in the catalog."""


def import_table(
    catalog: BaseCatalog,
    mirror: Mirror,
    source: str,
    options: ImportOptions,
    *,
    storage_options: Mapping[str, str] | None,
    on_progress: OnProgress | None,
) -> ImportReport:
    """Import one Delta table, and update the views of the catalog's tables."""
    settings = storage_settings_at(source, catalog.config.storage, storage_options)
    report = importer.import_table(
        catalog.store, source, options, settings=settings, on_progress=on_progress
    )
    if report.state in _CHANGED:
        mirror.names_changed()
    return report


def import_tables(
    catalog: BaseCatalog,
    mirror: Mirror,
    root: str,
    options: ImportOptions,
    *,
    storage_options: Mapping[str, str] | None,
    on_progress: OnProgress | None,
    on_table: Callable[[ImportReport], None] | None,
) -> ImportSummary:
    """Import every Delta table below a folder, and update the views of the catalog's tables."""
    settings = storage_settings_at(root, catalog.config.storage, storage_options)
    summary = import_tree.import_tables(
        catalog.store, root, options, settings=settings, on_progress=on_progress, on_table=on_table
    )
    if any(each.state in _CHANGED for each in summary.tables):
        mirror.names_changed()
    return summary


def import_options(
    catalog: BaseCatalog,
    name: str | None,
    namespace: str | None,
    *,
    allow_nested_location: bool,
    up_to_version: int | None = None,
    since: int | None = None,
    batch_size: int | None = None,
    **options: Any,
) -> ImportOptions:
    """Check the parameters of an import; `name` may contain the namespace, as in `crm.sales`."""
    return ImportOptions(
        **_split_name(name, namespace),
        up_to_version=_at_least(0, "up_to_version", up_to_version),
        since=_at_least(0, "since", since),
        batch_size=_at_least(1, "batch_size", batch_size),
        allow_nested_location=allow_nested_location or catalog.config.table.allow_nested_location,
        **options,
    )


def storage_settings_at(
    location: str, settings: StorageSettings, options: Mapping[str, str] | None
) -> StorageSettings:
    """Return storage settings that use the `storage_options` of a call for one location."""
    if not options:
        return settings
    place = absolute_location(location)
    by_location = {each: settings.plain_options(each) for each in settings.locations}
    by_location[place] = {**settings.plain_options(place), **options}
    return StorageSettings.model_validate(
        {
            "options": settings.plain_options(),
            "locations": by_location,
            "timeout_s": settings.timeout_s,
            "retries": settings.retries,
        }
    )


def _split_name(name: str | None, namespace: str | None) -> dict[str, Any]:
    if name is None:
        if namespace is not None:
            split_table_name(join_table_name(namespace, "t"))  # checks the namespace
        return {"namespace": namespace}
    full_name = name if namespace is None else join_table_name(namespace, name)
    space, short = split_table_name(full_name)
    return {"name": short, "namespace": space}


def _at_least(least: int, key: str, value: int | None) -> int | None:
    if value is not None and value < least:
        raise TxnLogConfigError(
            f"{key} must be at least {least}, got {value}",
            key=key,
            help=f"Leave out {key} to use its default.",
        )
    return value
