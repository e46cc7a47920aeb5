"""After kill -9 at any step or SQL transaction of a cutover or rollback, a repeated call succeeds.

In between, other writers commit through SQL or outside it, wherever they are allowed to.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from deltasql.exceptions import TableFollowsError, TxnLogTableNotFoundError
from deltasql.phases import HAND_OVER_PHASES
from tests.commit.support import run
from tests.conftest import new_catalog_uri
from tests.migrate.authority_support import (
    IDS,
    NAME,
    cut_over_and_die,
    is_write_blocked,
    kill_after,
    open_catalog,
    ours,
    roll_back_and_die,
    sql_ids,
    theirs,
    verify_all_versions,
)
from tests.migrate.sources import HEAD, copy_of, read_ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database


LEFT = HAND_OVER_PHASES.index("left")
CUTOVER, ROLLBACK = HAND_OVER_PHASES[:LEFT], HAND_OVER_PHASES[LEFT:]


def written_by(act: Callable[[], object], *refusals: type[Exception]) -> bool:
    """Return whether a write is accepted."""
    try:
        act()
    except refusals:
        return False
    return True


@pytest.mark.one_database
@pytest.mark.parametrize("phase", CUTOVER)
def test_killed_cutover_of_a_followed_table_can_be_repeated(
    catalog_uri: DeltaSqlUri, place: Path, phase: str
) -> None:
    with open_catalog(catalog_uri) as catalog:
        catalog.follow(str(place))
    [outcome] = run(cut_over_and_die, [(catalog_uri, phase)])
    assert outcome.exitcode == -signal.SIGKILL
    is_in_log = CUTOVER.index(phase) >= CUTOVER.index("handed over")
    expected = list(IDS)
    # There is always exactly one authority, so it is known who may write.
    if written_by(lambda: theirs(place, 20), deltalake.exceptions.DeltaError):
        expected.append(20)
    assert (20 in expected) == (not is_in_log)
    with open_catalog(catalog_uri) as catalog:
        if written_by(lambda: ours(catalog, 30), TableFollowsError):
            expected.append(30)
        assert (30 in expected) == (phase == "taken over")
        assert catalog.cutover(NAME).state in ("cut over", "was cut over")
        check_cut_over(catalog, place, expected)


@pytest.mark.parametrize("phase", CUTOVER)
@pytest.mark.parametrize("writer", ["path", "sql"])
def test_killed_cutover_of_an_imported_table_can_be_repeated(
    catalog_uri: DeltaSqlUri, place: Path, phase: str, writer: str
) -> None:
    with open_catalog(catalog_uri) as catalog:
        catalog.import_table(str(place))
    [outcome] = run(cut_over_and_die, [(catalog_uri, phase)])
    assert outcome.exitcode == -signal.SIGKILL
    expected = list(IDS)
    with open_catalog(catalog_uri) as catalog:
        if writer == "sql":
            ours(catalog, 30)
            expected.append(30)
        elif written_by(lambda: theirs(place, 20), deltalake.exceptions.DeltaError):
            expected.append(20)
        catalog.cutover(NAME)
        check_cut_over(catalog, place, expected)


def check_cut_over(catalog: Catalog, place: Path, expected: list[int]) -> None:
    assert is_write_blocked(place)
    assert not catalog.table(NAME).row.properties
    ours(catalog, 40)
    assert sql_ids(catalog) == read_ids(place) == sorted([*expected, 40])
    assert verify_all_versions(catalog)
    assert [each.pending for each in catalog.mirror.status(NAME)] == [0]


@pytest.mark.parametrize("phase", CUTOVER)
def test_killed_cutover_can_be_rolled_back(
    catalog_uri: DeltaSqlUri, place: Path, phase: str
) -> None:
    with open_catalog(catalog_uri) as catalog:
        catalog.follow(str(place))
    run(cut_over_and_die, [(catalog_uri, phase)])
    with open_catalog(catalog_uri) as catalog:
        catalog.rollback(NAME)
        assert catalog.tables() == []
    theirs(place, 20)
    assert read_ids(place) == [*IDS, 20]


@pytest.mark.parametrize("phase", ROLLBACK)
def test_killed_rollback_can_be_repeated(catalog_uri: DeltaSqlUri, place: Path, phase: str) -> None:
    with open_catalog(catalog_uri, mirror={"mode": "off"}) as catalog:
        catalog.follow(str(place))
        catalog.cutover(NAME)
        ours(catalog, 10)
    [outcome] = run(roll_back_and_die, [(catalog_uri, phase)])
    assert outcome.exitcode == -signal.SIGKILL
    expected = [*IDS, 10]
    with open_catalog(catalog_uri) as catalog:
        assert not written_by(lambda: ours(catalog, 30), TxnLogTableNotFoundError)
        if written_by(lambda: theirs(place, 20), deltalake.exceptions.DeltaError):
            expected.append(20)
        assert (20 in expected) == (phase == "given back")
        catalog.rollback(NAME)
        theirs(place, 21)
        assert read_ids(place) == sorted([*expected, 21])
        catalog.follow(str(place))
        assert sql_ids(catalog) == sorted([*expected, 21])
        assert verify_all_versions(catalog)


def act_and_die(_: Any, uri: DeltaSqlUri, place: str, verb: str, transactions: int) -> None:
    with open_catalog(uri) as catalog:
        kill_after(transactions)
        if verb == "follow":
            catalog.follow(place, batch_size=1)
        elif verb == "cutover":
            catalog.cutover(NAME)
        else:
            catalog.rollback(NAME)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
@pytest.mark.parametrize("verb", ["follow", "cutover", "rollback"])
def test_operation_killed_after_any_sql_transaction_can_be_repeated(
    backend: str, verb: str, pristine: Path, tmp_path: Path
) -> None:
    for transactions in range(1, 40):
        folder = tmp_path / str(transactions)
        place = copy_of(pristine, folder / NAME)
        for uri in new_catalog_uri(backend, folder):
            prepare(uri, place, verb)
            [outcome] = run(act_and_die, [(uri, str(place), verb, transactions)])
            check(uri, place, verb)
        if outcome.exitcode == 0:
            break
        assert outcome.exitcode == -signal.SIGKILL
    assert transactions > 1


def prepare(uri: DeltaSqlUri, place: Path, verb: str) -> None:
    """Prepare a catalog in which every step has something to do."""
    if verb == "follow":
        return
    with open_catalog(uri, mirror={"mode": "off"}) as catalog:
        catalog.follow(str(place))
        theirs(place, 9)
        theirs(place, 10)
        if verb == "rollback":
            catalog.cutover(NAME)
            ours(catalog, 11)


def check(uri: DeltaSqlUri, place: Path, verb: str) -> None:
    with open_catalog(uri) as catalog:
        if verb == "follow":
            catalog.follow(str(place))
            assert catalog.table(NAME).version() == HEAD
            assert sql_ids(catalog) == IDS
        elif verb == "cutover":
            catalog.cutover(NAME)
            check_cut_over(catalog, place, [*IDS, 9, 10])
        else:
            catalog.rollback(NAME)
            theirs(place, 12)
            assert read_ids(place) == [*IDS, 9, 10, 11, 12]
            return
        assert verify_all_versions(catalog)
