"""Locations, and errors of the local disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deltasql.exceptions import TxnLogConfigError, TxnLogStorageError
from deltasql.storage import open_storage, parse_location

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "location",
    [
        "s3://",
        "s3:///x",
        "s3://key:hunter2@bucket/x",
        "s3://bucket/x?sig=hunter2",
        "s3://bucket/a//b",
        "s3://bucket/../b",
        "ftp://host/x",
        "memory://x",
    ],
)
def test_invalid_location_is_rejected_without_secrets(location: str) -> None:
    with pytest.raises(TxnLogConfigError, match="Help: ") as caught:
        parse_location(location)
    assert "hunter2" not in f"{caught.value} {caught.value!r}"


def test_relative_path_follows_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        assert open_storage("lake").location == str(tmp_path / folder / "lake")


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("file:///data/a%20b/", "/data/a b"),
        ("file://localhost/data/x", "/data/x"),
        ("file:/data/x", "/data/x"),
        ("/data/a%20b", "/data/a%20b"),
        ("FILE:///data", "/data"),
    ],
)
def test_paths_and_file_urls_are_parsed_to_folders(location: str, path: str) -> None:
    assert parse_location(location).path == path


def test_disk_error_names_location_file_and_operation(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    storage = open_storage(str(tmp_path))
    for operation, call in {
        "put_if_absent": lambda: storage.put_if_absent("file/x", b""),
        "put": lambda: storage.put("file/x", b""),
        "read": lambda: storage.read("file/x"),
    }.items():
        with pytest.raises(TxnLogStorageError, match="Help: ") as caught:
            call()
        error = caught.value
        assert (error.operation, error.name, error.location) == (operation, "file/x", str(tmp_path))
        assert isinstance(error.__cause__, NotADirectoryError | FileExistsError)
