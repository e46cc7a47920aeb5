"""One cell of the matrix: create tables, inject a fault into a commit, check the invariants."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tests.commit.proxy import Proxy
from tests.commit.support import PROCESSES, run
from tests.faults.cells import DURABLE, LOCKED, POINTS, Cell
from tests.faults.client import (
    ANOTHER,
    FIRST,
    SCHEMA,
    WARM_UP,
    Strike,
    append,
    arrow,
    changed,
    commit_and_die,
    commit_on_message,
    fault_of,
    open_client,
    run_commit,
)
from tests.faults.invariants import (
    Checked,
    check_history,
    check_lagging_log,
    check_mirror,
    check_next_writer,
    check_no_intents,
    check_orphans,
    check_outcome,
    check_vacuum,
    rows_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri
    from tests.faults.cells import Operation

_PATIENCE_S = 300.0
_WAITING_S = 0.05


def run_without_response(operation: Operation, uri: DeltaSqlUri, folder: Path) -> Checked:
    """Kill a client after PostgreSQL has committed and before its response arrives."""
    tables = _new_tables(2)
    with open_client(uri, folder) as catalog:
        _create(catalog, tables, {})
    here, there = PROCESSES.Pipe()
    with Proxy() as proxy:
        arguments = (proxy.uri(uri), folder, operation, tables, there)
        client: Any = PROCESSES.Process(target=commit_on_message, args=arguments, daemon=True)
        client.start()
        there.close()
        assert here.recv() == "ready"
        proxy.arm("reply to COMMIT", then=lambda: os.kill(client.pid, signal.SIGKILL))
        here.send("go")
        client.join(_PATIENCE_S)
        assert (client.exitcode, proxy.cuts) == (-signal.SIGKILL, 1)
    with open_client(uri, folder, mirror="off") as catalog:
        after = changed(FIRST, operation)
        assert check_outcome(catalog, tables, FIRST, after, others=False)
        return _check_rest(catalog, tables, did_happen=True, verify=True)


def run_cell(cell: Cell, uri: DeltaSqlUri, folder: Path, seed: str = "") -> Checked:
    """Inject a fault into a commit on new tables; raise AssertionError on a violation."""
    tables = _new_tables(cell.tables)
    with open_client(uri, folder) as catalog:
        _create(catalog, tables, _properties(cell))
        if cell.point == "copied":
            for table in tables:
                catalog.mirror.add_target(table, "copy", str(folder / "copies" / table))
    is_acknowledged = _inject(cell, uri, folder, tables, seed)
    if cell.is_acknowledged is not None:
        assert is_acknowledged == cell.is_acknowledged
    before = FIRST | WARM_UP if cell.way == "warm" else FIRST
    after = changed(before, cell.operation)
    with open_client(uri, folder, mirror="off") as catalog:
        others = cell.fault == "pause"
        did_happen = check_outcome(catalog, tables, before, after, others=others)
        assert did_happen or not is_acknowledged, "an acknowledged commit is lost"
        assert cell.is_ratified in (None, did_happen)
        is_of_mirror = POINTS.index(cell.point) >= DURABLE
        return _check_rest(catalog, tables, did_happen=did_happen, verify=is_of_mirror)


def _check_rest(
    catalog: Catalog, tables: Sequence[str], *, did_happen: bool, verify: bool
) -> Checked:
    checked = Checked(orphans=check_orphans(catalog, tables))
    for table in tables:
        check_lagging_log(catalog, table)
    checked.commits = check_history(catalog, tables)
    check_next_writer(catalog, tables)
    if did_happen:
        for table in tables:
            check_no_intents(catalog, table)
    else:
        check_vacuum(catalog, tables)
    checked.rows = check_mirror(catalog, tables, verify=verify)
    return checked


def _new_tables(number: int) -> list[str]:
    own = uuid.uuid4().hex[:8]
    return [f"{name}_{own}" for name in "tu"[:number]]


def _create(catalog: Catalog, tables: Sequence[str], properties: dict[str, str]) -> None:
    with catalog.begin() as tx:
        for table in tables:
            tx.create_table(table, SCHEMA, properties=properties)
            tx.write(table, arrow(FIRST))


def _properties(cell: Cell) -> dict[str, str]:
    """Return properties with which the faulty commit makes a checkpoint due."""
    properties = {"delta.checkpointInterval": "2" if cell.way == "warm" else "1"}
    if cell.point == "cleaning":
        properties["delta.logRetentionDuration"] = "interval 0 days"
    return properties


def _inject(cell: Cell, uri: DeltaSqlUri, folder: Path, tables: list[str], seed: str) -> bool:
    """Run the commit; return whether the client got an acknowledgement."""
    if cell.fault.startswith("kill"):
        acknowledgement = folder / f"acknowledgement-{tables[0]}"
        [outcome] = run(commit_and_die, [(uri, folder, cell, tables, acknowledgement, seed)])
        assert outcome.error is None, outcome.error
        assert outcome.exitcode == -signal.SIGKILL
        return acknowledgement.exists()
    with open_client(uri, folder) as catalog:
        if cell.fault == "pause":
            _pause(cell, catalog, folder, tables)
            return True
        error = fault_of(cell)
        strike = Strike(cell, lambda: _raise(error))
        raised: BaseException | None = None
        try:
            run_commit(catalog, cell, tables, strike)
        except Exception as found:
            raised = found
        assert raised in (None, error), "another error was raised"
        assert strike.has_struck, f"{cell.point} was not reached"
    return raised is None


def _raise(error: BaseException) -> None:
    raise error


def _pause(cell: Cell, catalog: Catalog, folder: Path, tables: Sequence[str]) -> None:
    """Hold a commit at its point while another client reads, commits and reconciles."""
    is_there, may_go = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def hold() -> None:
        is_there.set()
        assert may_go.wait(_PATIENCE_S)

    def commit() -> None:
        try:
            strike = Strike(cell, hold)
            run_commit(catalog, cell, tables, strike)
            assert strike.has_struck, f"{cell.point} was not reached"
        except BaseException as error:
            errors.append(error)
        finally:
            is_there.set()

    def others() -> None:
        try:
            append(other, tables, ANOTHER)
            other.mirror.run(once=True)
        except BaseException as error:
            errors.append(error)

    # Only one process can open a DuckDB file, so its clients are threads of one catalog.
    shares = cell.backend == "duckdb"
    with nullcontext(catalog) if shares else open_client(catalog.uri, folder) as other:
        slow, busy = (threading.Thread(target=work, daemon=True) for work in (commit, others))
        slow.start()
        assert is_there.wait(_PATIENCE_S)
        try:
            if not errors:
                _look(cell, other, tables)
                busy.start()
                busy.join(_WAITING_S if cell.point in LOCKED or shares else _PATIENCE_S)
                if cell.point not in LOCKED and not shares:
                    assert not busy.is_alive(), f"others wait for a commit that is {cell.point}"
        finally:
            may_go.set()
        deadline = time.monotonic() + _PATIENCE_S
        for thread in (slow, busy):
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
                assert not thread.is_alive(), "a client waits for ever"
    for error in errors:
        raise error


def _look(cell: Cell, other: Catalog, tables: Sequence[str]) -> None:
    """Check that a reader does not wait and sees the commit in all of its tables or in none."""
    before = FIRST | WARM_UP if cell.way == "warm" else FIRST
    is_there = POINTS.index(cell.point) >= DURABLE
    wanted = changed(before, cell.operation) if is_there else before
    for table in tables:
        assert rows_of(other, table) == sorted(wanted.items())
