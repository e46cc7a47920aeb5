"""Failed operations leave no files behind, not even hidden ones."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from deltasql.storage import Storage, local_files, open_storage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["unnamed files", "hidden names"])
def disk(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Storage:
    """A storage on disk, for both ways to write a file before it gets its name."""
    if request.param == "hidden names":
        monkeypatch.setattr(local_files, "_UNNAMED", 0)
    return open_storage(str(tmp_path))


def on_disk(storage: Storage) -> list[str]:
    return sorted(name for _, _, names in os.walk(storage.location) for name in names)


def fail(storage: Storage, name: str) -> None:
    with pytest.raises(KeyError), storage.writer(name) as sink:
        sink.write(b"x" * 20_000_000)
        raise KeyError


def test_failed_writes_leave_no_files_on_disk(disk: Storage) -> None:
    disk.put("a", b"1")
    disk.put("a", b"2")
    assert not disk.put_if_absent("a", b"3")
    with disk.writer("a") as sink:
        sink.write(b"4")
    fail(disk, "a")
    fail(disk, "b")
    with pytest.raises(FileNotFoundError):
        disk.copy_from(disk, "c")
    assert on_disk(disk) == ["a"]


def test_unfinished_files_are_not_listed(disk: Storage) -> None:
    with disk.writer("a") as sink:
        sink.write(b"1")
        assert list(disk.list()) == []


def test_new_files_follow_the_umask(disk: Storage) -> None:
    before = os.umask(0o027)
    try:
        disk.put_if_absent("a", b"")
        disk.put("b", b"")
        disk.put("b", b"")
        with disk.writer("c"):
            pass
    finally:
        os.umask(before)
    rights = {oct(os.stat(f"{disk.location}/{name}").st_mode & 0o777) for name in "abc"}
    assert rights == {oct(0o640)}


@pytest.mark.skipif(not local_files._UNNAMED, reason="this system knows no files without a name")
def test_killed_process_leaves_no_file_on_disk(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    child = os.fork()
    if child == 0:
        with storage.writer("half") as sink:
            sink.write(b"x" * 1_000_000)
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert on_disk(storage) == []


def test_failed_upload_leaves_no_parts_in_the_bucket(s3_storage: Storage, s3_server: str) -> None:
    bucket = s3_storage.location.split("/")[2]
    with s3_storage.writer("whole") as sink:
        sink.write(b"x" * 20_000_000)
        with urlopen(f"{s3_server}/{bucket}?uploads") as reply:
            assert b"<Upload>" in reply.read()
    fail(s3_storage, "half")
    with urlopen(f"{s3_server}/{bucket}?uploads") as reply:
        assert b"<Upload>" not in reply.read()
    assert [file.name for file in s3_storage.list()] == ["whole"]
