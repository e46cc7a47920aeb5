"""All roles run concurrently for some seconds: nothing is lost, partial or left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import new_catalog_uri
from tests.soak.checks import check_run
from tests.soak.ledger import SCHEMAS, Place
from tests.soak.record import DONE, load
from tests.soak.report import figures, tables
from tests.soak.run import run

if TYPE_CHECKING:
    from pathlib import Path

_SECONDS = 5.0


@pytest.mark.everything("half a minute of writing")
@pytest.mark.one_database
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_no_commit_is_lost_while_all_roles_run_concurrently(backend: str, tmp_path: Path) -> None:
    for uri in new_catalog_uri(backend, tmp_path):
        place = Place(uri, tmp_path, retention_s=2)
        soak = run(place, seed="fixed", seconds=_SECONDS, writers=3, readers=1)
        assert soak.result.problems == []
        reported = figures(soak, title=backend, seed="fixed", load=1)
        assert reported["operations"]["order"]["done"] > 0
        assert reported["operations"]["sums"]["done"] > 0
        assert reported["operations"]["optimize"]["done"] > 0
        assert f"{reported['commits']:,} commits" in tables(reported)
        _is_found_when_wrong(place)


def _is_found_when_wrong(place: Place) -> None:
    """Check that a lost commit, a row without a writer and an unreferenced file are found."""
    operations = load(place.folder)
    lost = next(each for each in operations if each.kind == "order" and each.outcome == DONE)
    with place.open("sync") as catalog:
        lost.txn_id = "never"
        assert any(
            "acknowledged, the log" in each for each in check_run(catalog, operations).problems
        )
        with catalog.begin() as tx:
            tx.write("payments", SCHEMAS["payments"].empty_table())
            extra = {"writer": [99], "seq": [0], "line": [0], "amount": [1]}
            tx.write("orders", SCHEMAS["orders"].empty_table().from_pydict(extra))
        (place.folder / "lake" / "default" / "orders" / "nobody.parquet").touch()
        found = check_run(catalog, load(place.folder)).problems
    assert any("payments of" in each for each in found)
    assert any("differ from those of their writers" in each for each in found)
    assert any("unreferenced file nobody.parquet" in each for each in found)
