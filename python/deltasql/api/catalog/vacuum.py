"""Vacuum a table: delete files between a VACUUM START and a VACUUM END commit."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TxnLogEngineError, TxnLogError
from deltasql.migrate.authority.foreign_commits import refuse_foreign
from deltasql.mirror.publish.targets import DELTA, DUCKDB
from deltasql.model.progress import Meter
from deltasql.operations.commit_info import set_commit_info
from deltasql.operations.vacuum.spark_listing import SparkListing
from deltasql.operations.vacuum.unreferenced import find_unreferenced
from deltasql.operations.vacuum.vacuum import plan_vacuum, spare_needed
from deltasql.snapshot.snapshot import open_snapshot
from deltasql.storage import open_storage
from deltasql.storage.deletion import delete_data
from deltasql.storage.location import location_key
from deltasql.store.dialect import chunks
from deltasql.store.locations import keys_inside
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.model.progress import OnProgress
    from deltasql.operations.vacuum.unreferenced import FindUnreferenced
    from deltasql.operations.vacuum.vacuum import VacuumPlan
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow

    Commit = Callable[[Callable[[MultiTableTransaction], None]], None]

_AT_ONCE = 1000


def vacuum(
    catalog: Catalog,
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

    `commit` runs an operation on a transaction and commits it. With the engine `spark` a full
    vacuum lists files on the executors of `session`, by default the active session.
    """
    meter = Meter(join_table_name(table.namespace, table.name), on_progress)
    if table.is_following and not dry_run:
        catalog.writable(join_table_name(table.namespace, table.name))
    storage = open_storage(table.location, catalog.config.storage)
    if not dry_run:
        refuse_foreign(catalog.store, table, storage)
    snapshot = open_snapshot(catalog.store, table, catalog.cache)
    targets = mirror_targets(catalog)
    plan = plan_vacuum(
        snapshot,
        storage,
        retention=None if retention_hours is None else timedelta(hours=retention_hours),
        enforce_retention_duration=enforce_retention_duration,
        full=full,
        keep_versions=keep_versions or (),
        others=_other_tables(catalog, table, targets),
        databases=databases(catalog, targets),
        find=_finder(catalog, engine, session),
        meter=meter,
    )
    if dry_run or not plan.sizes:
        return plan.files
    commit(partial(_record, table, "VACUUM START", plan.parameters(), plan.metrics()))
    taken = catalog.store.take_intents(table.table_id, plan.intents)
    plan.keep(plan.intents.keys() - taken.keys())
    # A commit that restores a file after VACUUM START conflicts with it, and fails.
    spare_needed(plan, snapshot)
    try:
        # Another writer may have added a removed file to the log again.
        refuse_foreign(catalog.store, table, storage)
        _delete(storage, plan, meter)
    except (OSError, TxnLogError):
        commit(partial(_record, table, "VACUUM END", {"status": "FAILED"}, _deleted(0)))
        raise
    catalog.store.delete_taken_intents(table.table_id, taken)
    end = partial(_record, table, "VACUUM END", {"status": "COMPLETED"}, _deleted(len(plan.sizes)))
    commit(partial(end, extra=plan.mark()))
    return plan.files


def _finder(catalog: Catalog, engine: str | None, session: Any) -> FindUnreferenced:
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
    set_commit_info(tx.target(name), operation, parameters, metrics, extra=extra)


def mirror_targets(catalog: Catalog) -> list[tuple[str, str]]:
    """Return kind and location of all publish targets of a catalog."""
    return [(kind, location) for kind, location in catalog.store.query("target_locations")]


def databases(catalog: Catalog, targets: Sequence[tuple[str, str]]) -> list[str]:
    """Return the database file of this catalog, and the DuckDB files with views of its tables."""
    views = [location for kind, location in targets if kind == DUCKDB]
    uri = catalog.uri
    return views if uri.backend == "postgres" or uri.is_memory else [uri.database, *views]


def _other_tables(
    catalog: Catalog, table: TableRow, targets: Sequence[tuple[str, str]]
) -> list[str]:
    """Return the location keys of other tables and replicas below a table's folder."""
    replicas = [location_key(location) for kind, location in targets if kind == DELTA]
    return keys_inside(catalog.store.query, table.location) + replicas
