"""A real file system loses power: versions that were reported as published survive.

ext4 on a loop device is shut down by force while a process commits. Nothing is written back, not
even the journal: everything that was not flushed is lost, as after a power loss.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

import deltasql

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.everything("mounts a loop device, which needs root")
ROOT = Path(__file__).parents[2]
SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
NOT_EVEN_THE_JOURNAL = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH
ACKNOWLEDGED = 40

WORK = """
import sys
import pyarrow as pa
import deltasql

uri, root, mode = sys.argv[1:]
row = pa.table({"id": [1]})
with deltasql.connect(uri, mirror={"mode": mode}, table={"data_root": root}) as catalog:
    catalog.create_table("t", row.schema)
    while True:
        with catalog.begin() as tx:
            tx.write("t", row)
        (status,) = catalog.mirror.status("t", files=False)
        print(tx.versions["t"], status.published_version, flush=True)
"""


class Device:
    """A file system in a file."""

    def __init__(self, folder: Path) -> None:
        self.image, self.place = folder / "image", folder / "mounted"
        self.place.mkdir()
        self.image.touch()
        os.truncate(self.image, 128 * 1024 * 1024)

    def make(self) -> None:
        subprocess.run(["mkfs.ext4", "-q", str(self.image)], check=True, capture_output=True)

    @contextmanager
    def mounted(self) -> Iterator[Path]:
        command = ["mount", "-o", "loop", str(self.image), str(self.place)]
        subprocess.run(command, check=True, capture_output=True)
        try:
            yield self.place
        finally:
            subprocess.run(["umount", str(self.place)], check=True, capture_output=True)

    def lose_power(self) -> None:
        folder = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, SHUTDOWN, struct.pack("I", NOT_EVEN_THE_JOURNAL))
        finally:
            os.close(folder)


@pytest.fixture
def device(tmp_path: Path) -> Device:
    if not sys.platform.startswith("linux") or os.geteuid():
        pytest.skip("only root of Linux mounts loop devices")
    missing = [name for name in ("mkfs.ext4", "mount", "umount") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    found = Device(tmp_path)
    found.make()
    try:
        with found.mounted():
            pass
    except subprocess.CalledProcessError as error:
        pytest.skip(f"loop devices cannot be mounted here: {error.stderr.decode().strip()}")
    return found


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_acknowledged_versions_survive_a_power_loss(device: Device, mode: str) -> None:
    uri = f"deltasql://sqlite/{device.place}/meta.db"
    root = device.place / "lake"
    with device.mounted():
        command = [sys.executable, "-c", WORK, uri, str(root), mode]
        worker = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert worker.stdout is not None
        try:
            committed = published = -1
            while committed < ACKNOWLEDGED:
                committed, published = map(int, worker.stdout.readline().split())
            device.lose_power()
        finally:
            worker.kill()
            lines = worker.stdout.read().splitlines()
            worker.wait()
    # Also check the versions that the process reported before it noticed the power loss.
    for line in lines:
        committed, published = map(int, line.split())
    with device.mounted():
        assert published >= (committed if mode == "sync" else 0)
        (log,) = root.rglob("_delta_log")
        place = str(log.parent)
        assert [path.name for path in root.rglob("*") if path.stat().st_size == 0] == []
        for version in range(published + 1):
            found = deltalake.DeltaTable(place, version=version)
            assert found.to_pyarrow_table().num_rows == version
        with deltasql.connect(uri, mirror={"mode": mode}) as catalog:
            assert catalog.table("t").version() >= committed
            with catalog.begin() as tx:
                tx.write("t", pa.table({"id": [1]}))
            assert catalog.mirror.flush()
            (report,) = catalog.mirror.verify("t")
            assert report.ok, report.summary()
            latest = catalog.table("t").version()
        assert deltalake.DeltaTable(place).to_pyarrow_table().num_rows == latest
