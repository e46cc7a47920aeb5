"""Clients that commit as fast as they can and are killed from outside at a random time."""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.commit.support import PROCESSES
from tests.faults.client import FIRST, SCHEMA, append, arrow, open_client
from tests.faults.invariants import (
    Checked,
    check_history,
    check_lagging_log,
    check_mirror,
    check_next_writer,
    check_orphans,
    check_vacuum,
    rows_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

_PATIENCE_S = 300.0
_LIFE_S = 0.3
_BOTH = 4
"""Every nth commit writes to both tables."""


def run_lives(uri: DeltaSqlUri, folder: Path, lives: int, seed: str) -> Checked:
    """Kill one client after another on the same two tables; raise AssertionError on a violation."""
    chance = random.Random(seed)
    tables = [f"{name}_{uuid.uuid4().hex[:8]}" for name in "tu"]
    with open_client(uri, folder) as catalog, catalog.begin() as tx:
        for table in tables:
            tx.create_table(table, SCHEMA)
            tx.write(table, arrow(FIRST))
    checked, known = Checked(), set(FIRST)
    for life in range(lives):
        acknowledgements = folder / f"acknowledgements-{tables[0]}-{life}"
        first = 1000 * (life + 1)
        _live(uri, folder, tables, acknowledgements, first, chance.uniform(0, _LIFE_S))
        acknowledged = {int(line) for line in acknowledgements.read_text().split("\n")[:-1]}
        with open_client(uri, folder, mirror="off") as catalog:
            known = _check(catalog, tables, known, acknowledged)
            checked.orphans += check_orphans(catalog, tables)
            for table in tables:
                check_lagging_log(catalog, table)
            checked.commits += len(acknowledged)
    with open_client(uri, folder, mirror="off") as catalog:
        check_history(catalog, tables)
        check_next_writer(catalog, tables)
        check_vacuum(catalog, tables)
        checked.rows += check_mirror(catalog, tables, verify=True)
    return checked


def commit_forever(
    uri: DeltaSqlUri, folder: Path, tables: list[str], acknowledgements: Path, first: int
) -> None:
    """Append one row after another; write each to the file once acknowledged."""
    with open_client(uri, folder) as catalog, acknowledgements.open("a", buffering=1) as out:
        for number in count(first):
            append(catalog, tables if number % _BOTH == 0 else tables[:1], {number: 0})
            out.write(f"{number}\n")


def _live(
    uri: DeltaSqlUri,
    folder: Path,
    tables: list[str],
    acknowledgements: Path,
    first: int,
    life_s: float,
) -> None:
    process: Any = PROCESSES.Process(
        target=commit_forever, args=(uri, folder, tables, acknowledgements, first), daemon=True
    )
    process.start()
    deadline = time.monotonic() + _PATIENCE_S
    while not (acknowledgements.exists() and acknowledgements.stat().st_size):
        assert process.is_alive(), "the client has failed"
        assert time.monotonic() < deadline, "the client does not commit"
        time.sleep(0.005)
    time.sleep(life_s)
    os.kill(process.pid, signal.SIGKILL)
    process.join(_PATIENCE_S)
    assert process.exitcode == -signal.SIGKILL


def _check(catalog: Any, tables: list[str], known: set[int], acknowledged: set[int]) -> set[int]:
    """Check that acknowledged rows exist, and at most one that was not acknowledged."""
    # This commit has to wait until the server has finished the request of the killed client.
    append(catalog, tables, {-max(acknowledged): 0})
    found = [[row[0] for row in rows_of(catalog, table)] for table in tables]
    for ids in found:
        assert len(ids) == len(set(ids)), "a row is there twice"
    new = set(found[0]) - known
    assert new >= acknowledged, f"lost: {acknowledged - new}"
    assert new - acknowledged - {-max(acknowledged)} <= {max(acknowledged) + 1}
    both = {each for each in new if each < 0 or each % _BOTH == 0}
    assert {each for each in found[1] if each in new} == both, "a commit is partial"
    return known | new
