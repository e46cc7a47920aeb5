"""Faults at every point of a commit, on every database: no commit is lost or partial."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING

import pytest

from tests.conftest import new_catalog_uri
from tests.faults.cells import BACKENDS, FAULTS, OPERATIONS, POINTS, Cell, cells
from tests.faults.killed_clients import run_lives
from tests.faults.matrix import run_cell, run_without_response
from tests.faults.report import PAGE, RESULT, page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri
    from tests.faults.cells import Operation

    Lake = tuple[DeltaSqlUri, Path]

ALL = list(cells())


def one_of_each() -> Iterator[Cell]:
    """Yield a cell for each point and fault, and each point and database; operations alternate."""
    turns = dict.fromkeys(FAULTS, 0)
    for (number, point), (offset, backend) in product(enumerate(POINTS), enumerate(BACKENDS)):
        # Three faults in turn, so that every point has each of them; the others less often.
        faults = [("kill", "error", "pause")[(number + offset) % 3]]
        if (
            number + offset
        ) % 3 == 0 and backend != "duckdb":  # a cell on DuckDB takes three times as long
            faults += ["kill soon", "lost"]
        for fault in faults:
            found = [c for c in ALL if (c.backend, c.point, c.fault) == (backend, point, fault)]
            if found:
                turns[fault] += 1
                wanted = OPERATIONS[turns[fault] % 3]
                fitting = [cell for cell in found if cell.operation == wanted]
                yield fitting[turns[fault] // 3 % len(fitting)]


CHOSEN = set(one_of_each())
BEYOND = pytest.mark.everything("more cells of the fault matrix")


@pytest.fixture(scope="module", params=BACKENDS)
def lake(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    """One catalog for all faults, because a user's catalog also survives many of them."""
    folder = tmp_path_factory.mktemp("faults")
    for uri in new_catalog_uri(request.param, folder):
        yield uri, folder


@pytest.mark.parametrize(
    ("lake", "cell"),
    [pytest.param(c.backend, c, id=str(c), marks=() if c in CHOSEN else BEYOND) for c in ALL],
    indirect=["lake"],
)
def test_commit_with_a_fault_is_atomic(lake: Lake, cell: Cell) -> None:
    run_cell(cell, *lake, seed=str(cell))


@pytest.mark.parametrize("lake", ["postgres"], indirect=True)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_commit_survives_a_client_that_dies_before_the_response(
    lake: Lake, operation: Operation
) -> None:
    run_without_response(operation, *lake)


def test_acknowledged_commits_survive_a_kill_of_their_client(lake: Lake) -> None:
    assert run_lives(*lake, lives=2, seed="lives").commits


def test_default_cells_cover_every_point_fault_and_database() -> None:
    chosen = list(one_of_each())
    assert {(c.point, c.backend) for c in chosen} == {*product(POINTS, BACKENDS)}
    assert {(c.point, c.fault) for c in chosen} >= {*product(POINTS, ("kill", "error", "pause"))}
    assert {(c.backend, c.operation, c.tables) for c in chosen} == {
        *product(BACKENDS, OPERATIONS, (1, 2))
    }
    assert {c.fault for c in chosen} == {*FAULTS}
    assert {c.is_short for c in chosen} == {True, False}


def test_fault_page_matches_the_last_full_run() -> None:
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == page(result)
    assert set(result["broken"].values()) == {0}
