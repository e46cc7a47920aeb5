"""Vacuum: delete files that no retained version of a table needs, or that were never committed.

A vacuum of a table commits VACUUM START, deletes files, and commits VACUUM END. A process that is
killed while it creates a table leaves data files and intents that belong to no table, so no vacuum
of a table deletes them. `vacuum_uncommitted` does.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TxnLogEngineError, TxnLogError
from deltasql.migrate.authority.foreign_commits import check_no_foreign_commits
from deltasql.mirror.publish.targets import DELTA, DUCKDB
from deltasql.model.clock import now_ms
from deltasql.model.progress import Meter
from deltasql.operations.vacuum.file_search import needed_names, protected_versions
from deltasql.operations.vacuum.spark_listing import SparkListing
from deltasql.operations.vacuum.unreferenced import find_unreferenced
from deltasql.operations.vacuum.vacuum import INTENT_GRACE_MS, plan_vacuum, spare_needed
from deltasql.snapshot.snapshot import open_snapshot
from deltasql.storage import open_storage
from deltasql.storage.deletion import CHANGE_DATA, Deletable, delete_data
from deltasql.storage.location import location_key
from deltasql.store.dialect import chunks
from deltasql.store.locations import keys_inside, tables_around, tables_at
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.model.progress import OnProgress
    from deltasql.operations.vacuum.unreferenced import FindUnreferenced
    from deltasql.operations.vacuum.vacuum import VacuumPlan
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow

    Commit = Callable[[Callable[[MultiTableTransaction], None]], None]

_AT_ONCE = 1000


def vacuum(
    catalog: BaseCatalog,
    table: TableRow,
    commit: Commit,
    *,
    retention_hours: float | None = None,
    dry_run: bool = True,
    enforce_retention_duration: bool = True,
    full: bool = False,
    keep_versions: Sequence[int] | None = None,
    engine: str | None = None,
    session: Any = None,
    on_progress: OnProgress | None = None,
) -> list[str]:
    """Delete files that no retained version needs; returns their names.

    `commit` runs an operation in a transaction and commits it. With the engine `spark`, a full
    vacuum lists files on the executors of `session`, by default of the active session.
    """
    meter = Meter(join_table_name(table.namespace, table.name), on_progress)
    if table.is_following and not dry_run:
        catalog.writable(join_table_name(table.namespace, table.name))
    storage = open_storage(table.location, catalog.config.storage)
    if not dry_run:
        check_no_foreign_commits(catalog.store, table, storage)
        catalog.store.record_locations()  # files of tables inside the folder are kept
    snapshot = open_snapshot(catalog.store, table, catalog.cache)
    targets = _mirror_targets(catalog)
    plan = plan_vacuum(
        snapshot,
        storage,
        retention=None if retention_hours is None else timedelta(hours=retention_hours),
        enforce_retention_duration=enforce_retention_duration,
        full=full,
        keep_versions=keep_versions or (),
        others=_other_tables(catalog, table, targets),
        databases=_databases(catalog, targets),
        find=_finder(catalog, engine, session),
        meter=meter,
    )
    if dry_run:
        return plan.files
    # A commit also records which versions must not expire.
    is_recorded = plan.protected() == protected_versions(catalog.store, table.table_id)
    if is_recorded and not plan.sizes:
        return plan.files
    start = partial(_record, table, "VACUUM START", plan.parameters(), plan.metrics())
    commit(partial(start, extra=plan.kept()))
    taken = catalog.store.take_intents(table.table_id, plan.intents)
    plan.keep(plan.intents.keys() - taken.keys())
    # Keep planned files that a restore made live before VACUUM START. A later restore fails with a
    # conflict. This raises if one of the kept versions expired before VACUUM START.
    spare_needed(plan, snapshot)
    try:
        # Another writer may have added a removed file to the log again: raise in that case.
        check_no_foreign_commits(catalog.store, table, storage)
        _delete(storage, plan, meter)
    except (OSError, TxnLogError):
        commit(partial(_record, table, "VACUUM END", {"status": "FAILED"}, _deleted(0)))
        raise
    catalog.store.delete_taken_intents(table.table_id, taken)
    end = partial(_record, table, "VACUUM END", {"status": "COMPLETED"}, _deleted(len(plan.sizes)))
    commit(partial(end, extra=plan.mark()))
    return plan.files


def _finder(catalog: BaseCatalog, engine: str | None, session: Any) -> FindUnreferenced:
    wanted = engine or catalog.config.engine.default
    if wanted in ("auto", "duckdb"):
        return find_unreferenced
    if wanted == "spark":
        return SparkListing(session, catalog.config.storage, needs_spark=engine is not None)
    raise TxnLogEngineError(
        f"there is no engine called {wanted!r}", engine=wanted, help="Use 'duckdb' or 'spark'."
    )


def _delete(storage: Storage, plan: VacuumPlan, meter: Meter) -> None:
    assert plan.deletable is not None
    meter.begin("deleting", "files", len(plan.sizes))
    for some in chunks(plan.files, _AT_ONCE):
        delete_data(storage, some, plan.deletable)
        meter.step(len(some))


def _deleted(files: int) -> dict[str, int]:
    return {"numDeletedFiles": files, "numVacuumedDirectories": 0}


def _record(
    table: TableRow,
    operation: str,
    parameters: Mapping[str, str],
    metrics: Mapping[str, int],
    tx: MultiTableTransaction,
    *,
    extra: Mapping[str, Any] | None = None,
) -> None:
    name = join_table_name(table.namespace, table.name)
    tx.target(name).set_commit_info(operation, parameters, metrics, extra=extra)


def _mirror_targets(catalog: BaseCatalog) -> list[tuple[str, str]]:
    """Return kind and location of all publish targets of a catalog."""
    return [(kind, location) for kind, location in catalog.store.query("target_locations")]


def _databases(catalog: BaseCatalog, targets: Sequence[tuple[str, str]]) -> list[str]:
    """Return the database file of this catalog, and the DuckDB files with views of its tables."""
    views = [location for kind, location in targets if kind == DUCKDB]
    uri = catalog.uri
    return [uri.database, *views] if uri.is_file else views


def _other_tables(
    catalog: BaseCatalog, table: TableRow, targets: Sequence[tuple[str, str]]
) -> list[str]:
    """Return the location keys of other tables and replicas below a table's folder."""
    replicas = [location_key(location) for kind, location in targets if kind == DELTA]
    return keys_inside(catalog.store.query, table.location) + replicas


def vacuum_uncommitted(catalog: BaseCatalog, *, dry_run: bool = True) -> list[str]:
    """Delete files whose intent is older than an hour and whose table does not exist.

    Returns the paths of the files. If a transaction that wrote such files is still running, it can
    no longer commit.
    """
    rows = catalog.store.query("staged_without_table", before_ms=now_ms() - INTENT_GRACE_MS)
    if dry_run:
        return [file for _, _, path in rows for file in _Abandoned(catalog, path).files()]
    catalog.store.record_locations()
    deleted: list[str] = []
    for table_id in sorted({row[1] for row in rows}):
        intents = [(txn_id, path) for txn_id, owner, path in rows if owner == table_id]
        taken = catalog.store.take_intents(table_id, intents)
        for _, path in taken:
            deleted += _Abandoned(catalog, path).discard()
        catalog.store.delete_taken_intents(table_id, taken)
    return deleted


class _Abandoned:
    """The files of one intent: a single file, or all files in the folder of one engine's write."""

    def __init__(self, catalog: BaseCatalog, path: str) -> None:
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
            databases=_databases(self._catalog, _mirror_targets(self._catalog)),
        )

    def _needed(self) -> frozenset[str]:
        """Return the files of tables that now exist in this folder or in a folder above it."""
        query, cache = self._catalog.store.query, self._catalog.cache
        tables = [*tables_at(query, self._root), *tables_around(query, self._root)]
        return frozenset(
            f"{location_key(table.location)}{name}"
            for table in tables
            if table.dropped_at_ms is None
            for name in needed_names(self._catalog.store, cache, table, now_ms())
        )


def _split(path: str) -> tuple[str, str]:
    """Split a path into a table's location and the file name below it, with partition folders.

    >>> _split("/lake/sales/_change_data/day=1/part.parquet")
    ('/lake/sales', '_change_data/day=1/part.parquet')
    """
    folders, names = path.split("/")[:-1], [path.rpartition("/")[2]]
    while "=" in folders[-1] or folders[-1] == CHANGE_DATA:
        names.insert(0, folders.pop())
    return "/".join(folders), "/".join(names)
