"""Files are copied between storages of every kind, as for a replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deltasql.storage import Storage, object_store, open_storage
from tests.s3 import new_bucket

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.config import StorageSettings

NAME = "day=1 2/part-%41.parquet"
DATA = bytes(range(256)) * 50_000


@pytest.fixture(params=["disk to disk", "disk to s3", "s3 to disk", "bucket to bucket", "s3 to s3"])
def pair(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    s3_location: str,
    s3_server: str,
    s3_settings: StorageSettings,
) -> tuple[Storage, Storage]:
    """A source and a target."""
    disk = [str(tmp_path / "a"), str(tmp_path / "b")]
    places = {
        "disk to disk": disk,
        "disk to s3": [disk[0], s3_location],
        "s3 to disk": [s3_location, disk[1]],
        "bucket to bucket": [s3_location, f"{new_bucket(s3_server)}/x"],
        "s3 to s3": [f"{s3_location}/a", f"{s3_location}/b"],
    }[request.param]
    source, target = (open_storage(place, s3_settings) for place in places)
    return source, target


def test_copy_has_the_same_name_and_content(pair: tuple[Storage, Storage]) -> None:
    source, target = pair
    source.put(NAME, DATA)
    target.copy_from(source, NAME)
    assert target.read(NAME) == source.read(NAME) == DATA
    assert [file.name for file in target.list()] == [NAME]


def test_copy_can_have_another_name(pair: tuple[Storage, Storage]) -> None:
    source, target = pair
    source.put(NAME, DATA)
    target.copy_from(source, NAME, to="day=2/other-%41.parquet")
    assert target.read("day=2/other-%41.parquet") == DATA
    assert [file.name for file in target.list()] == ["day=2/other-%41.parquet"]


def test_copy_replaces_the_target_and_is_independent_of_the_source(
    pair: tuple[Storage, Storage],
) -> None:
    source, target = pair
    source.put(NAME, b"new")
    target.put(NAME, b"old")
    target.copy_from(source, NAME)
    source.delete(NAME)
    assert target.read(NAME) == b"new"


def test_copy_of_a_missing_file_changes_nothing(pair: tuple[Storage, Storage]) -> None:
    source, target = pair
    target.put(NAME, b"old")
    with pytest.raises(FileNotFoundError):
        target.copy_from(source, NAME)
    assert target.read(NAME) == b"old"
    assert [file.name for file in target.list()] == [NAME]


def test_object_too_large_for_a_server_copy_is_copied_by_the_client(
    s3_storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_LARGEST_COPY", 5)
    s3_storage.put("a", DATA)
    s3_storage.rename("a", "b")
    assert s3_storage.read("b") == DATA
    assert not s3_storage.exists("a")
