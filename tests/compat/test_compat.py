"""The checks of `make compat`, run with the installed release."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.compat import page
from tests.compat.checks import IMPORTS, MOVES, READS, REJECTED, YES, Check, Place, checks
from tests.compat.environments import ROOT, Release, ReleaseError
from tests.mirror.support import open_mirrored
from tests.oracles.fixed_set import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs" / "reference" / "compatibility.md"
# tests/oracles covers reading; one import check is enough here.
ASKED = [
    check
    for check in checks()
    if check.topic != READS and (check.topic != IMPORTS or check.title.startswith("Delete"))
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("compat")
    uri = f"deltasql://sqlite/{folder}/meta.db"
    with (
        open_mirrored(uri, folder / "lake") as catalog,
        Release(Path(sys.executable)) as release,
    ):
        yield Place(release, Lake(catalog), folder / "installed")


@pytest.mark.xdist_group("compat")  # the steps of a cutover depend on each other
@pytest.mark.parametrize("check", ASKED, ids=lambda check: f"{check.topic}: {check.title}")
def test_installed_release_is_compatible(check: Check, place: Place) -> None:
    cell = check.run(place)
    assert cell in (YES, REJECTED, f"reads, {REJECTED}")


def test_error_in_the_environment_of_a_release_is_raised_with_its_type(place: Place) -> None:
    with pytest.raises(ReleaseError, match="TableNotFoundError"):
        place.release.request("read", location="/nowhere", at=0, way="sql")


def test_compatibility_page_has_a_line_for_every_check() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "compatibility.md").read_text(
        "utf-8"
    )
    # A new table of the fixed set gets its line when the matrix is filled again.
    expected = [check for check in checks() if check.topic != READS]
    assert all(f"| {check.title} |" in text for check in expected)
    assert f"## {READS}" in text


def test_matrix_columns_are_aligned_on_a_terminal() -> None:
    lines = [Check(MOVES, "long title", str), Check(MOVES, "t", str)]
    cells = {(MOVES, "long title", "1.0"): "yes", (MOVES, "t", "1.0"): "no"}
    _, head, first, second = page.terminal(lines, ["1.0"], cells).splitlines()
    assert head.index("1.0") == first.index("yes") == second.index("no")
