"""What is not written again can be made to survive a loss of power."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deltasql.storage import local_files, open_storage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("unnamed", [True, False], ids=["unnamed", "hidden"])
def test_a_durable_name_never_outlives_its_content(
    tmp_path: Path, flushed: list[str], monkeypatch: pytest.MonkeyPatch, unnamed: bool
) -> None:
    if not unnamed:
        monkeypatch.setattr(local_files, "_UNNAMED", 0)  # as on a disk without such files
    disk = open_storage(str(tmp_path))
    assert disk.put_if_absent("log/commit", b"{}", durable=True)
    before, *after = flushed
    assert before != f"{tmp_path}/log/commit"
    assert after == [f"{tmp_path}/log/commit", f"{tmp_path}/log"]
    assert not disk.put_if_absent("log/commit", b"[]", durable=True)
    assert disk.read("log/commit") == b"{}"


def test_files_are_flushed_later_with_their_folders(tmp_path: Path, flushed: list[str]) -> None:
    disk = open_storage(str(tmp_path))
    for name in ("log/a", "log/b"):
        disk.put(name, b"{}")
    disk.flush(["log/a", "log/b", "log/gone", "elsewhere/gone"])
    assert flushed[:2] == [f"{tmp_path}/log/a", f"{tmp_path}/log/b"]
    assert sorted(flushed[2:]) == [str(tmp_path), f"{tmp_path}/log"]
