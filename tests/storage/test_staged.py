"""A staged file is whole, has no name, and gets it at once or never."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from deltasql.storage import open_storage

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.storage import Storage

NAME = "_delta_log/1.json"


@pytest.fixture
def disk(tmp_path: Path) -> Storage:
    (tmp_path / "_delta_log").mkdir()
    storage = open_storage(str(tmp_path))
    if storage.stage(NAME, b"") is None:
        pytest.skip("this disk knows no files without a name")
    return storage


def names(storage: Storage) -> list[str]:
    return [each.name for each in storage.list()]


def test_it_appears_whole_when_it_gets_its_name(disk: Storage) -> None:
    staged = disk.stage(NAME, b"whole")
    assert staged is not None
    assert names(disk) == []
    assert staged.put_if_absent() is True
    assert disk.read(NAME) == b"whole"
    assert staged.put_if_absent() is False


def test_a_name_that_is_taken_stays_what_it_is(disk: Storage) -> None:
    staged = disk.stage(NAME, b"late")
    assert staged is not None
    disk.put(NAME, b"early")
    assert staged.put_if_absent() is False
    assert disk.read(NAME) == b"early"


def test_what_gets_no_name_leaves_nothing(disk: Storage) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert disk.stage(NAME, b"never") is not None
    assert names(disk) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_is_gone_is_left_to_who_puts_the_file(disk: Storage, tmp_path: Path) -> None:
    staged = disk.stage(NAME, b"whole")
    assert staged is not None
    (tmp_path / "_delta_log").rmdir()
    assert staged.put_if_absent() is None
    assert disk.stage(NAME, b"whole") is None


def test_an_object_store_has_no_such_files(s3_storage: Storage) -> None:
    assert s3_storage.stage(NAME, b"whole") is None
    assert not s3_storage.exists(NAME)
