"""Unreferenced files of a table: listing in ranges finds every file once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltasql.config import Config
from deltasql.model.progress import Meter
from deltasql.operations.vacuum.spark_listing import SparkListing
from deltasql.operations.vacuum.unreferenced import (
    UnreferencedFiles,
    VacuumRule,
    find_unreferenced,
    list_range,
    ranges_of,
)
from deltasql.storage import open_storage

if TYPE_CHECKING:
    from pathlib import Path

PART = st.text("ab/-0é", min_size=1, max_size=4)


@settings(deadline=None)
@given(names=st.sets(PART), at_most=st.integers(1, 9))
def test_ranges_cover_every_name_once(
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


def test_many_folders_are_split_into_the_requested_number_of_ranges(tmp_path: Path) -> None:
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


def test_new_needed_hidden_and_linked_files_are_not_listed(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "f").touch()
    storage = open_storage(str(root))
    for name in ("old", "new", "needed", ".x/old", "inner/_delta_log/0.json", "inner/f", "_p=1/f"):
        storage.put(name, b"1")
        os.utime(root / name, (1, 1))
    os.utime(root / "new", (3, 3))
    (root / "link").symlink_to(elsewhere)
    reported: list[int] = []
    meter = Meter("t", lambda progress: reported.append(progress.done))
    found = find_unreferenced(VacuumRule(str(root), 2000, ("_p",)), storage, {"needed"}, meter)
    assert found == UnreferencedFiles({"_p=1/f": 1, "old": 1}, {"inner/"})
    assert reported[-1] == 8


@pytest.mark.parametrize("log", ["../logs/inner", "../../elsewhere", "../nowhere"])
def test_files_of_a_nested_table_with_a_linked_log_are_not_listed(tmp_path: Path, log: str) -> None:
    root, storage = tmp_path / "t", open_storage(str(tmp_path / "t"))
    for name in ("inner/f", "inner/p=1/f", "logs/inner/0.json", "old"):
        storage.put(name, b"1")
        os.utime(root / name, (1, 1))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "0.json").touch()
    (root / "inner" / "_delta_log").symlink_to(log)
    rule = VacuumRule(str(root), 2000)
    found = find_unreferenced(rule, storage, set(), Meter("t", None))
    spared = ("logs/inner/",) if log == "../logs/inner" else ()
    assert found.tables.issuperset(spared)
    assert {name for name in found.sizes if not name.startswith(tuple(found.tables))} == {
        "old",
        *(() if spared else ("logs/inner/0.json",)),
    }
    apart = UnreferencedFiles()  # list only a part of the names, as one of several workers does
    rule.collect(list_range(storage, ("inner/e", "inner/p=2/")), set(), apart)
    assert not apart.sizes


def test_files_in_a_linked_log_of_the_table_are_not_listed(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    for name in ("log/0.json", "f"):
        storage.put(name, b"1")
        os.utime(tmp_path / name, (1, 1))
    (tmp_path / "_delta_log").symlink_to("log")
    found = find_unreferenced(VacuumRule(str(tmp_path), 2000), storage, set(), Meter("t", None))
    assert found.tables == {"log/"}
    assert "f" in found.sizes


def test_symlink_loops_are_not_followed(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    for number in range(3):
        storage.put(f"p={number}/f", b"")
    (tmp_path / "self").symlink_to(".")
    (tmp_path / "p=1" / "up").symlink_to("..")
    (tmp_path / "link").symlink_to("p=2")
    assert storage.folders() == ["p=0/", "p=1/", "p=2/"]
    found = [file for each in ranges_of(storage) for file in list_range(storage, each)]
    assert found == [*storage.list()]


def test_folders_with_non_utf8_names_are_listed_by_the_driver(tmp_path: Path) -> None:
    for number in range(20):
        folder = os.fsencode(tmp_path) + b"/p=\xff" + str(number).encode()
        os.mkdir(folder)
        open(folder + b"/f", "w").close()
        os.utime(folder + b"/f", (1, 1))
    storage, rule = open_storage(str(tmp_path)), VacuumRule(str(tmp_path), 2000)
    here = find_unreferenced(rule, storage, set(), Meter("t", None))
    no_session = object()  # no method of it is called
    there = SparkListing(no_session, Config().storage)(rule, storage, set(), Meter("t", None))
    assert len(there.sizes) == 20
    assert there == here
