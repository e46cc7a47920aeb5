"""Delete files of transactions that never committed and whose table does not exist.

A process that is killed while it creates a table leaves data files and their intents. There is no
table whose vacuum could delete them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.api.catalog.vacuum import databases, mirror_targets
from deltasql.model.clock import now_ms
from deltasql.operations.vacuum.file_search import needed_names
from deltasql.operations.vacuum.vacuum import INTENT_GRACE_MS
from deltasql.storage import open_storage
from deltasql.storage.deletion import CHANGE_DATA, Deletable, delete_data
from deltasql.storage.location import location_key
from deltasql.store.locations import tables_around, tables_at

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog


def vacuum_uncommitted(catalog: Catalog, *, dry_run: bool = True) -> list[str]:
    """Delete files whose intent is older than an hour and whose table does not exist.

    Returns the paths of the files. A transaction that still runs cannot commit after that.
    """
    rows = catalog.store.query("staged_without_table", before_ms=now_ms() - INTENT_GRACE_MS)
    if dry_run:
        return [file for _, _, path in rows for file in _Abandoned(catalog, path).files()]
    gone: list[str] = []
    for table_id in sorted({row[1] for row in rows}):
        intents = [(txn_id, path) for txn_id, owner, path in rows if owner == table_id]
        taken = catalog.store.take_intents(table_id, intents)
        for _, path in taken:
            gone += _Abandoned(catalog, path).discard()
        catalog.store.delete_taken_intents(table_id, taken)
    return gone


class _Abandoned:
    """The files of one intent: a single file, or the folder of one write by an engine."""

    def __init__(self, catalog: Catalog, path: str) -> None:
        self._catalog, self._is_folder = catalog, path.endswith("/")
        self._root, self._name = _split(path.rstrip("/"))
        self._storage = open_storage(self._root, catalog.config.storage)

    def files(self) -> list[str]:
        """Return the paths of the files that exist and that no table needs."""
        return [f"{self._root}/{name}" for name in self._names()]

    def discard(self) -> list[str]:
        """Delete these files; returns their paths."""
        deleted = delete_data(self._storage, self._names(), self._deletable())
        return [f"{self._root}/{name}" for name in deleted]

    def _names(self) -> list[str]:
        found = [self._name] if self._storage.exists(self._name) else []
        if self._is_folder:
            found = [each.name for each in self._storage.list(self._name)]
        needed = self._needed() if found else frozenset()
        key = location_key(self._root)
        return self._deletable().allowed(name for name in found if f"{key}{name}" not in needed)

    def _deletable(self) -> Deletable:
        return Deletable(
            self._storage,
            partition_columns=None,
            engine_folders=[f"{self._name}/"] if self._is_folder else (),
            databases=databases(self._catalog, mirror_targets(self._catalog)),
        )

    def _needed(self) -> frozenset[str]:
        """Return the files of tables that were created in this folder since, or around it."""
        query, cache = self._catalog.store.query, self._catalog.cache
        tables = [*tables_at(query, self._root), *tables_around(query, self._root)]
        return frozenset(
            f"{location_key(table.location)}{name}"
            for table in tables
            if table.dropped_at_ms is None
            for name in needed_names(self._catalog.store, cache, table, now_ms())
        )


def _split(path: str) -> tuple[str, str]:
    """Return a table's location and the file name below it, which includes partition folders.

    >>> _split("/lake/sales/_change_data/day=1/part.parquet")
    ('/lake/sales', '_change_data/day=1/part.parquet')
    """
    folders, names = path.split("/")[:-1], [path.rpartition("/")[2]]
    while "=" in folders[-1] or folders[-1] == CHANGE_DATA:
        names.insert(0, folders.pop())
    return "/".join(folders), "/".join(names)
