"""Find the Delta tables below a folder, and import all of them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogError, TxnLogStorageError
from deltasql.exceptions.redaction import redact
from deltasql.migrate.importing.import_table import import_table
from deltasql.migrate.importing.names import valid_name
from deltasql.migrate.importing.report import ImportReport, ImportSummary
from deltasql.mirror.log.listing import LOG_FOLDER
from deltasql.storage import absolute_location, join_location, open_storage
from deltasql.uri import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql.config import StorageSettings
    from deltasql.migrate.importing.run import ImportOptions
    from deltasql.model.progress import OnProgress
    from deltasql.storage import Storage
    from deltasql.store.store import Store


def import_tables(
    store: Store,
    root: str,
    options: ImportOptions,
    *,
    settings: StorageSettings,
    on_progress: OnProgress | None = None,
    on_table: Callable[[ImportReport], None] | None = None,
) -> ImportSummary:
    """Import every table below a folder; an error in one table does not stop the others.

    The folders between the root and a new table become its namespace.
    """
    started = time.monotonic()
    root = absolute_location(root)
    reports: list[ImportReport] = []
    for folder in find_tables(open_storage(root, settings)):
        location = join_location(root, *folder.split("/")) if folder else root
        chosen = replace(options, name=None, default_namespace=_namespace(folder), root=root)
        report = _import_one(store, location, chosen, settings, on_progress)
        reports.append(report)
        if on_table is not None:
            on_table(report)
    if not reports:
        raise TxnLogStorageError(
            f"there is no Delta table below {root}",
            location=root,
            help="Name a folder that contains Delta tables, and check the storage options.",
        )
    return ImportSummary(root, reports, time.monotonic() - started)


def find_tables(storage: Storage) -> Iterator[str]:
    """Yield the folders that have a `_delta_log`, relative to the root; '' is the root itself.

    Folders inside a table are not searched.
    """
    after: str | None = None
    while True:
        folder = _next_table(storage, after)
        if folder is None:
            return
        yield folder.removesuffix("/")
        if not folder:
            return
        # '0' is the next character after '/', so the listing continues after the whole folder.
        after = f"{folder.removesuffix('/')}0"


def _next_table(storage: Storage, after: str | None) -> str | None:
    for file in storage.list(start_after=after):
        if file.name.startswith(LOG_FOLDER):
            return ""
        folder, found, _ = file.name.partition(f"/{LOG_FOLDER}")
        if found:
            return f"{folder}/"
    return None


def _import_one(
    store: Store,
    location: str,
    options: ImportOptions,
    settings: StorageSettings,
    on_progress: OnProgress | None,
) -> ImportReport:
    try:
        return import_table(store, location, options, settings=settings, on_progress=on_progress)
    except TxnLogError as error:
        return ImportReport(location, state="failed", error=error)
    except OSError as error:
        failure = TxnLogStorageError(redact(str(error)), location=location)
        return ImportReport(location, state="failed", error=failure)


def _namespace(folder: str) -> str:
    """Return the namespace for a table in a folder, made from the folders above it.

    >>> _namespace("crm/sales"), _namespace("eu/crm/sales"), _namespace("sales")
    ('crm', 'eu_crm', 'default')
    """
    above = folder.split("/")[:-1]
    return valid_name("default", "_".join(above)) if above else DEFAULT_NAMESPACE
