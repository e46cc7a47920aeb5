"""Take over every Delta table below a folder; what is wrong with one does not stop the others."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogError, TxnLogStorageError
from deltasql.exceptions.redaction import redact
from deltasql.migrate.importing.find_tables import find_tables
from deltasql.migrate.importing.import_table import import_table
from deltasql.migrate.importing.report import ImportReport, ImportSummary
from deltasql.migrate.importing.target import lawful_name
from deltasql.storage import absolute_location, join_location, open_storage
from deltasql.uri import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.config import StorageSettings
    from deltasql.migrate.importing.run import ImportOptions, Tell
    from deltasql.store.store import Store


def import_tables(
    store: Store,
    root: str,
    options: ImportOptions,
    *,
    settings: StorageSettings,
    tell: Tell | None = None,
    on_table: Callable[[ImportReport], None] | None = None,
) -> ImportSummary:
    """Import the tables below a folder, new ones into the namespace that their folders name."""
    started = time.monotonic()
    place = absolute_location(root)
    summary = ImportSummary(place)
    for folder in find_tables(open_storage(place, settings)):
        location = join_location(place, *folder.split("/")) if folder else place
        chosen = replace(options, name=None, default_namespace=_namespace(folder), root=place)
        report = _import_one(store, location, chosen, settings, tell)
        summary.tables.append(report)
        if on_table is not None:
            on_table(report)
    summary.seconds = time.monotonic() - started
    if not summary.tables:
        raise TxnLogStorageError(
            f"there is no Delta table below {place}",
            location=place,
            help="Name a folder that holds tables; check the storage options.",
        )
    return summary


def _import_one(
    store: Store,
    location: str,
    options: ImportOptions,
    settings: StorageSettings,
    tell: Tell | None,
) -> ImportReport:
    try:
        return import_table(store, location, options, settings=settings, tell=tell)
    except TxnLogError as error:
        return ImportReport(location, state="failed", error=error)
    except OSError as error:
        told = TxnLogStorageError(redact(str(error)), location=location)
        return ImportReport(location, state="failed", error=told)


def _namespace(folder: str) -> str:
    """Return the namespace for a table in a folder: the folders above it.

    >>> _namespace("crm/sales"), _namespace("eu/crm/sales"), _namespace("sales")
    ('crm', 'eu_crm', 'default')
    """
    above = folder.split("/")[:-1]
    return lawful_name("default", "_".join(above)) if above else DEFAULT_NAMESPACE
