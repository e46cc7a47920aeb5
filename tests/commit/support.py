"""Helpers for the commit tests: real processes, short builders, and an audit of the SQL rows."""

from __future__ import annotations

import json
import multiprocessing
import traceback
from dataclasses import dataclass, replace
from itertools import pairwise
from threading import BrokenBarrierError
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import deltasql
from deltasql import AddFile, Catalog, ReadSet, RemoveFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deltasql.uri import DeltaSqlUri

SCHEMA = pa.schema([("id", pa.int64())])
# A fork server has only imported modules, so its children have no state of this process, and they
# start faster than spawned processes. All tests share the server, so it preloads all their modules.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "pytest",
        "tests.commit.support",
        "tests.serializability.clients",
        "tests.faults.client",
        "deltasql.store.sqlite.dialect",
        "deltasql.store.duckdb",
        "deltasql.store.postgres.dialect",
        "adbc_driver_postgresql.dbapi",
        "deltasql.engine.duckdb.engine",
        "deltasql.operations.merge.merge",
        "deltasql.operations.write",
    ]
)


def open_catalog(uri: DeltaSqlUri, **settings: Any) -> Catalog:
    """Open a catalog without a mirror; no file is written, so the data root need not exist."""
    defaults = {"mirror": {"mode": "off"}, "table": {"data_root": "/nowhere"}}
    return deltasql.connect(uri, create=True, **{**defaults, **settings})


def file(path: str, low: int = 0, high: int = 9, **fields: Any) -> AddFile:
    """Return an AddFile of ten rows whose column `id` spans low..high."""
    stats = json.dumps(
        {
            "numRecords": 10,
            "minValues": {"id": low},
            "maxValues": {"id": high},
            "nullCount": {"id": 0},
        }
    )
    values = {"partition_values": {}, "size": 100, "modification_time": 0, "stats": stats}
    return AddFile(path=path, **{**values, **fields})


def removal(add: AddFile, *, data_change: bool = True) -> RemoveFile:
    """Return the RemoveFile of a file."""
    return RemoveFile(
        path=add.path,
        data_change=data_change,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        stats=add.stats,
    )


def commit(
    catalog: Catalog,
    actions: object,
    *,
    table: str = "t",
    read_version: int | None = None,
    reads: ReadSet | None = None,
    operation: str | None = None,
) -> int:
    """Commit actions to one table and return the version."""
    with catalog.begin() as tx:
        tx.stage_table(table, actions, read_version=read_version, reads=reads, operation=operation)
    return tx.versions[table]


def live(catalog: Catalog, table: str = "t", version: int | None = None) -> list[str]:
    """Return the sorted paths of the live files; a file that is live twice is listed twice."""
    files = catalog.table(table).snapshot(version).files()
    paths: list[str] = files["path"].to_pylist()
    return sorted(paths)


def serializable(catalog: Catalog) -> None:
    """Set the isolation level Serializable as a table property."""
    set_isolation_level(catalog, "Serializable")


def set_isolation_level(catalog: Catalog, level: str) -> None:
    """Set the table property `delta.isolationLevel`."""
    metadata = catalog.table("t").snapshot().metadata
    configuration = {**metadata.configuration, "delta.isolationLevel": level}
    commit(catalog, replace(metadata, configuration=configuration))


# Processes


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a process ended: its result, its exception and its exit code."""

    value: Any = None
    error: BaseException | None = None
    exitcode: int | None = None


def run(work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Outcome]:
    """Run a function in one process per tuple of arguments; a barrier starts all together."""
    barrier = PROCESSES.Barrier(len(arguments))
    started = []
    for each in arguments:
        receiver, sender = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=_child, args=(sender, barrier, work, each), daemon=True)
        process.start()
        sender.close()
        started.append((process, receiver))
    outcomes = []
    for process, receiver in started:
        try:
            value, error = receiver.recv()
        except EOFError:  # killed before it sent a result
            value, error = None, None
        process.join(timeout=60)
        outcomes.append(Outcome(value, error, process.exitcode))
    return outcomes


def values(outcomes: Sequence[Outcome]) -> list[Any]:
    """Return the results of the processes, or raise the exception of one of them."""
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    # A failed process breaks the barrier of the others: raise its error, not theirs.
    for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
        raise error
    assert all(outcome.exitcode == 0 for outcome in outcomes)
    return [outcome.value for outcome in outcomes]


def _child(sender: Any, barrier: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        value = work(barrier, *arguments)
    except Exception as error:
        error.add_note(traceback.format_exc())
        barrier.abort()
        sender.send((None, error))
    else:
        sender.send((value, None))


# Audit


def audit(catalog: Catalog) -> None:
    """Check that the rows of every table are consistent."""
    rows = _rows(catalog, "SELECT table_id, version, next_file_id FROM dl_table_heads")
    heads = {row[0]: row for row in rows}
    versions: dict[int, list[tuple[Any, ...]]] = {table_id: [] for table_id in heads}
    groups: dict[str, list[int]] = {}
    for table_id, version, next_file_id, committed_at_ms, txn_id, group_size in _rows(
        catalog,
        "SELECT table_id, version, next_file_id, committed_at_ms, txn_id, group_size "
        "FROM dl_table_versions ORDER BY table_id, version",
    ):
        versions[table_id].append((version, next_file_id, committed_at_ms))
        groups.setdefault(txn_id, []).append(group_size)
    for table_id, log in versions.items():
        assert [row[0] for row in log] == list(range(len(log))), f"gap in table {table_id}"
        assert log[-1][:2] == heads[table_id][1:], f"head of table {table_id} is not its last"
        times = [row[2] for row in log]
        assert all(a < b for a, b in pairwise(times)), "time goes back"
    for txn_id, sizes in groups.items():
        assert set(sizes) == {len(sizes)}, f"transaction {txn_id} is partial"
    _audit_files(catalog, {table_id: log[-1][:2] for table_id, log in versions.items()})
    tables = {row[0] for row in _rows(catalog, "SELECT table_id FROM dl_tables")}
    assert tables == heads.keys()


def _audit_files(catalog: Catalog, heads: dict[int, tuple[int, int]]) -> None:
    alive = set()
    for table_id, file_id, path, added, removed in _rows(
        catalog, "SELECT table_id, file_id, path, added_version, removed_version FROM dl_add_files"
    ):
        version, next_file_id = heads[table_id]
        assert file_id < next_file_id
        assert added <= version
        assert removed is None or added < removed <= version
        if removed is None:
            assert (table_id, path) not in alive, f"{path} lives twice"
            alive.add((table_id, path))
    for table_id, version in _rows(catalog, "SELECT table_id, version FROM dl_remove_files"):
        assert version <= heads[table_id][0]


def _rows(catalog: Catalog, text: str) -> list[tuple[Any, ...]]:
    with catalog.store.session() as session:
        found: list[tuple[Any, ...]] = session._connection.execute(text).fetchall()  # type: ignore[attr-defined]
    return found
