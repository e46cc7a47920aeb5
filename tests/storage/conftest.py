"""One storage of each kind: the same guarantees hold for all of them.

`DELTASQL_TEST_STORE`, a JSON object with `location` and `options`, selects one other store instead.
"""

from __future__ import annotations

import json
import os
import uuid
from typing import TYPE_CHECKING

import pytest

from deltasql.config import StorageSettings
from deltasql.storage import Storage, local_files, open_storage

if TYPE_CHECKING:
    from pathlib import Path

STORE = json.loads(os.environ.get("DELTASQL_TEST_STORE", "null"))
KINDS = ("local", "local with names", "s3") if STORE is None else ("store",)


@pytest.fixture
def s3_settings(s3_options: dict[str, str]) -> StorageSettings:
    """Settings that reach the S3 test server."""
    return StorageSettings(options=s3_options, timeout_s=60, retries=2)


@pytest.fixture(params=KINDS)
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Storage:
    """An empty storage, in a folder whose name is percent-encoded in a URL."""
    if request.param == "store":
        settings = StorageSettings(options=STORE["options"], timeout_s=60, retries=2)
        return open_storage(f"{STORE['location']}/{uuid.uuid4().hex}/100%25 of it", settings)
    if request.param == "s3":
        settings = request.getfixturevalue("s3_settings")
        return open_storage(f"{request.getfixturevalue('s3_location')}/100%25 of it", settings)
    if request.param == "local with names":
        # Behave as on a file system that does not support unnamed files.
        monkeypatch.setattr(local_files, "_UNNAMED", 0)
    return open_storage(str(tmp_path / "100% of it"))


@pytest.fixture
def s3_storage(s3_location: str, s3_settings: StorageSettings) -> Storage:
    """An empty storage on the S3 test server."""
    return open_storage(s3_location, s3_settings)


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of files at the time that they are flushed."""
    seen: list[str] = []
    flush = os.fsync

    def record_fsync(file: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{file}"))
        flush(file)

    monkeypatch.setattr(os, "fsync", record_fsync)
    return seen
