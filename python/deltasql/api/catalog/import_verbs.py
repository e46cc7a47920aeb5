"""The methods of a catalog that take Delta tables over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.config import StorageSettings
from deltasql.exceptions import TxnLogConfigError
from deltasql.storage import absolute_location
from deltasql.uri import join_table_name, split_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deltasql.api.catalog.mirror import Mirror
    from deltasql.config import Config
    from deltasql.migrate.importing.report import ImportProgress, ImportReport, ImportSummary
    from deltasql.store.store import Store


class ImportVerbs:
    """What a catalog can do with tables that exist elsewhere."""

    if TYPE_CHECKING:
        store: Store
        config: Config
        mirror: Mirror

    def import_table(
        self,
        source: str,
        *,
        name: str | None = None,
        namespace: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        up_to_version: int | None = None,
        since: int | None = None,
        batch_size: int | None = None,
        verify: bool = True,
        engine: object = None,
        allow_nested_location: bool = False,
        storage_options: Mapping[str, str] | None = None,
        on_progress: Callable[[ImportProgress], None] | None = None,
    ) -> ImportReport:
        """Take a Delta table over with its history; its files stay where they are.

        A table that was taken over before is brought up to its log. `since` begins a new table
        at that version; `up_to_version` ends it; `batch_size` is how many actions go into one SQL
        transaction; `force` drops what stands in the way and goes on without data files that are
        missing; `dry_run` only reports; `allow_nested_location` accepts a table inside another
        table's folder, or around one. See docs/guides/migrating.md.
        """
        # late: few processes import a table
        from deltasql.migrate.importing.import_table import import_table
        from deltasql.migrate.importing.run import ImportOptions

        options = ImportOptions(
            **_named(name, namespace),
            force=force,
            dry_run=dry_run,
            up_to_version=_whole("up_to_version", up_to_version, 0),
            since=_whole("since", since, 0),
            batch_size=_whole("batch_size", batch_size, 1),
            verify=verify,
            engine=engine,
            allow_nested_location=self._allows_nested(allow_nested_location),
        )
        settings = settings_for(self.config.storage, source, storage_options)
        report = import_table(
            self.store, source, options, settings=settings, on_progress=on_progress
        )
        if report.state in ("imported", "replaced"):
            self.mirror.names_changed()
        return report

    def import_tables(
        self,
        root: str,
        *,
        namespace: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        batch_size: int | None = None,
        verify: bool = True,
        engine: object = None,
        allow_nested_location: bool = False,
        storage_options: Mapping[str, str] | None = None,
        on_progress: Callable[[ImportProgress], None] | None = None,
        on_table: Callable[[ImportReport], None] | None = None,
    ) -> ImportSummary:
        """Take every Delta table below a folder over; one that fails does not stop the others.

        The folders above a table name its namespace, unless one is given.
        """
        # late: few processes import a table
        from deltasql.migrate.importing.import_tree import import_tables
        from deltasql.migrate.importing.run import ImportOptions

        options = ImportOptions(
            **_named(None, namespace),
            force=force,
            dry_run=dry_run,
            batch_size=_whole("batch_size", batch_size, 1),
            verify=verify,
            engine=engine,
            allow_nested_location=self._allows_nested(allow_nested_location),
        )
        settings = settings_for(self.config.storage, root, storage_options)
        summary = import_tables(
            self.store, root, options, settings=settings, on_progress=on_progress, on_table=on_table
        )
        if any(each.state in ("imported", "replaced") for each in summary.tables):
            self.mirror.names_changed()
        return summary

    def _allows_nested(self, wanted: bool) -> bool:
        return wanted or self.config.table.allow_nested_location


def _named(name: str | None, namespace: str | None) -> dict[str, Any]:
    """Read a name, which may hold its namespace: `sales`, `crm.sales`."""
    if name is None:
        if namespace is not None:
            split_table_name(join_table_name(namespace, "t"))  # the same rules as for a table
        return {"namespace": namespace}
    if namespace is None:
        space, short = split_table_name(name)
        return {"name": short, "namespace": space}
    space, short = split_table_name(join_table_name(namespace, name))
    return {"name": short, "namespace": space}


def _whole(key: str, value: int | None, least: int) -> int | None:
    if value is not None and value < least:
        raise TxnLogConfigError(
            f"{key} is a whole number from {least} on, got {value}",
            key=key,
            help="Leave it out to take everything.",
        )
    return value


def settings_for(
    settings: StorageSettings, source: str, options: Mapping[str, str] | None
) -> StorageSettings:
    """Return the settings of the storage with a call's own options for a place."""
    if not options:
        return settings
    place = absolute_location(source)
    known = {each: settings.plain_options(each) for each in settings.locations}
    known[place] = {**settings.plain_options(place), **options}
    given = {"options": settings.plain_options(), "locations": known}
    return StorageSettings.model_validate(
        {**given, "timeout_s": settings.timeout_s, "retries": settings.retries}
    )
