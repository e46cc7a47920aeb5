"""Listing what lies in a table's folder: divided or not, every name is seen once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from deltasql.model.progress import Meter
from deltasql.operations.strays import StrayRule, Strays, find_strays, list_range, ranges_of
from deltasql.storage import open_storage

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PART = st.text("ab/-0é", min_size=1, max_size=4)


@settings(deadline=None)
@given(names=st.sets(PART), at_most=st.integers(1, 9))
def test_ranges_hold_every_name_once(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], at_most: int
) -> None:
    storage = open_storage(str(tmp_path_factory.mktemp("names")))
    for name in names:
        parts = [part for part in name.split("/") if part]
        if parts:
            storage.put("/".join([*(f"{part}_" for part in parts[:-1]), parts[-1]]), b"")
    ranges = ranges_of(storage, at_most)
    assert len(ranges) <= at_most
    found = [file for each in ranges for file in list_range(storage, each)]
    assert found == [*storage.list()]


def test_many_folders_become_as_many_ranges_as_wanted(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    for year in range(2):
        for month in range(12):
            storage.put(f"y={year}/m={month:02}/f", b"")
    ranges = ranges_of(storage, 8)
    assert len(ranges) == 8
    sizes = [len([*list_range(storage, each)]) for each in ranges]
    assert sum(sizes) == 24
    assert max(sizes) <= 4
    storage.put("y=0/m=99/late", b"")
    assert sum(len([*list_range(storage, each)]) for each in ranges) == 25


def test_what_is_new_needed_hidden_or_behind_a_link_is_no_stray(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "f").touch()
    storage = open_storage(str(root))
    for name in ("old", "new", "needed", ".x/old", "inner/_delta_log/0.json", "inner/f", "_p=1/f"):
        storage.put(name, b"1")
        os.utime(root / name, (1, 1))
    os.utime(root / "new", (3, 3))
    (root / "link").symlink_to(elsewhere)
    told: list[int] = []
    meter = Meter("t", lambda progress: told.append(progress.done))
    found = find_strays(StrayRule(str(root), 2000, ("_p",)), storage, {"needed"}, meter)
    assert found == Strays({"_p=1/f": 1, "inner/f": 1, "old": 1}, {"inner/"})
    assert told[-1] == 8
